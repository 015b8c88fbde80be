"""The peers: what each needs, and the command that runs its program."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scripts.npm_packages import cache_folder

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
CACHE_VARIABLE = "BENCH_PEERS_CACHE"
INSTALL_SECONDS = 900
NEWEST_MINOR = 16
VERSIONS = "import sys; print(sys.version_info.minor)"
INSTALLED = "import importlib.metadata as found, sys; print(found.version(sys.argv[1]))"


class UnavailableError(Exception):
    """A peer cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A peer that can be run."""

    command: tuple[str, ...]
    version: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue to compare with."""

    name: str
    provide: Callable[[], Ready]
    slow: bool = False
    """Gets a tenth of the jobs."""
    needs_redis: bool = False


def _python(module: str, *packages: str, minor: int = 11) -> Callable[[], Ready]:
    """A program in Python, with packages in an environment of their own; the first one has the version."""

    def provide() -> Ready:
        python = _environment(_interpreter(minor), packages)
        name = packages[0].partition("[")[0]
        version = subprocess.check_output([python, "-c", INSTALLED, name], text=True).strip()
        return Ready((python, "-m", f"benchmarks.peers.programs.{module}"), version)

    return provide


def _ours() -> Ready:
    return Ready(
        (sys.executable, "-m", "benchmarks.peers.programs.ours"),
        importlib.metadata.version("graphile-worker"),
    )


def _node() -> Ready:
    from interop import node_packages

    packages = node_packages.provide()
    manifest = packages.folder / "node_modules" / node_packages.CURRENT / "package.json"
    return Ready(
        (str(packages.binary), str(PROGRAMS / "node.mjs")),
        json.loads(manifest.read_text())["version"],
        {"GRAPHILE_WORKER_LIBRARY": packages.library.as_uri()},
    )


def _rust() -> Ready:
    from peers import rust_program

    lock = (rust_program.PROJECT / "Cargo.lock").read_text()
    version = lock.partition('name = "graphile_worker"\nversion = "')[2].partition('"')[0]
    return Ready((str(rust_program.provide(rust_program.BENCH)),), version)


OURS = "this package"
PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, _ours),
        Peer("Rust", _rust),
        Peer("Node", _node),
        Peer("PgQueuer", _python("pgqueuer", "pgqueuer[asyncpg]", "uvloop")),
        Peer("Oban", _python("oban", "oban", "uvloop", minor=12)),
        Peer("Chancy", _python("chancy", "chancy", "uvloop")),
        Peer("Procrastinate", _python("procrastinate", "procrastinate", "uvloop"), slow=True),
        Peer("DBOS", _python("dbos", "dbos"), slow=True),
        Peer("Django", _python("django_tasks", "django-tasks-db", "psycopg[binary]", minor=12), slow=True),
        Peer("Celery", _python("celery", "celery[redis]"), needs_redis=True),
        Peer("Dramatiq", _python("dramatiq", "dramatiq[redis]"), needs_redis=True),
    )
}


def provide(peer: Peer) -> Ready:
    """Install a peer if it is not there yet. Raises UnavailableError."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))  # tests with Node and Rust need the same programs
    try:
        return peer.provide()
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        raise UnavailableError(str(error).strip().splitlines()[-1]) from None


def _interpreter(minor: int) -> str:
    """A Python that is new enough."""
    for candidate in _interpreters():
        found = subprocess.run([candidate, "-c", VERSIONS], capture_output=True, text=True, check=False)
        if found.returncode == 0 and int(found.stdout) >= minor:
            return candidate
    raise UnavailableError(f"needs Python 3.{minor} or later, which is not installed")


def _interpreters() -> Iterator[str]:
    yield sys.executable
    for minor in range(NEWEST_MINOR, 10, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob("versions/3.*/bin/python3")))


def _environment(python: str, packages: tuple[str, ...]) -> str:
    """The interpreter of an environment with these packages, in the cache folder."""
    digest = hashlib.sha256("\0".join((python, *packages)).encode()).hexdigest()[:12]
    folder = cache_folder(CACHE_VARIABLE, "peers") / digest
    inside = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for command in ([python, "-m", "venv", str(folder)], [inside, "-m", "pip", "install", *packages]):
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
            if done.returncode:
                lines = [line for line in done.stdout.splitlines() if line.strip()]
                raise UnavailableError(f"cannot be installed: {lines[-1] if lines else done.returncode}")
        (folder / "complete").touch()
    return inside

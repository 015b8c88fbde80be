"""Packages of npm, installed once by name into a cache folder: Node's worker, and the programs of PostgreSQL.

The folder outlives the run that made it, so only the first one downloads anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

INSTALL_SECONDS = 600
UNREACHABLE = re.compile(
    r"\b(E(?:NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|HOSTUNREACH|NETUNREACH|TIMEDOUT|SOCKETTIMEDOUT|NOTCACHED)"
    r"|ERR_SOCKET_TIMEOUT|E40[137]|E5\d\d|UNABLE_TO_\w+|SELF_SIGNED_\w+|CERT_\w+)\b"
)


class OutOfReachError(Exception):
    """The packages cannot be had here, by no fault of ours: the registry does not answer."""


def provide(
    find_npm: Callable[[], str],
    cache: Path,
    packages: Mapping[str, str],
    *,
    brings: str,
    scripts: bool = False,
) -> Path:
    """The folder in which these packages are installed, each with its version.

    `find_npm` is called only if they are not there yet. `brings` is a file below node_modules that they must
    bring. `scripts` runs their install scripts. Raises OutOfReachError, or RuntimeError with what npm said.
    """
    manifest = json.dumps({"private": True, "dependencies": dict(packages)}, indent=2)
    folder = cache / hashlib.sha256(manifest.encode()).hexdigest()[:12]
    complete = folder / "complete"
    if not complete.exists():
        with _exclusive(folder.with_suffix(".lock")):
            if not complete.exists():
                said = _install(find_npm(), folder, manifest, scripts=scripts)
                if not (folder / "node_modules" / brings).exists():
                    raise RuntimeError(f"npm installed no {brings}:\n{said}")
                complete.touch()
    return folder


def cache_folder(variable: str, subject: str, *, for_other_users: bool = False) -> Path:
    """The folder that this environment variable names, else one that belongs to the user.

    Root's home is closed to other users, so what they must read is elsewhere.
    """
    if given := os.environ.get(variable):
        return Path(given)
    if for_other_users and os.geteuid() == 0:
        base = Path("/var/cache")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "graphile-worker-tests" / subject


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the file's lock: of several runs one installs, the others wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(npm: str, folder: Path, manifest: str, *, scripts: bool) -> str:
    """Install into an empty folder; what npm said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(manifest)
    # npm itself may run on an older Node.js than a package wants, hence no strict engines.
    command = [npm, "install", "--no-audit", "--no-fund", "--engine-strict=false"]
    command += [f"--ignore-scripts={'false' if scripts else 'true'}"]
    command += ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]
    try:
        result = subprocess.run(  # noqa: S603
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OutOfReachError(f"npm did not get its packages within {INSTALL_SECONDS} seconds") from None
    if result.returncode != 0:
        if reason := UNREACHABLE.search(result.stdout):
            raise OutOfReachError(f"npm cannot reach its registry ({reason.group()})")
        raise RuntimeError(f"npm install failed:\n{result.stdout}")
    return result.stdout

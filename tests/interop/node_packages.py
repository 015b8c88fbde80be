"""Node.js and the real Graphile Worker, installed once by package name into a cache folder.

The folder belongs to the user and outlives the test run, so only the first run downloads anything. Where
npm is missing or cannot reach its registry, the tests that ask for these packages are skipped and say why.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

CACHE_VARIABLE = "GRAPHILE_WORKER_TEST_NODE_CACHE"
INSTALL_SECONDS = 600

# Releases side by side: the one we interoperate with, and older ones for the schemas they leave behind.
CURRENT = "graphile-worker"
ENDS_AT_19 = "graphile-worker-0.17"
ENDS_AT_18 = "graphile-worker-0.16"
ENDS_AT_14 = "graphile-worker-0.15"
MANIFEST = json.dumps(
    {
        "private": True,
        "dependencies": {
            CURRENT: "~0.18.0",
            ENDS_AT_19: "npm:graphile-worker@0.17.3",
            ENDS_AT_18: "npm:graphile-worker@0.16.6",
            ENDS_AT_14: "npm:graphile-worker@0.15.1",
            "node": "24",  # 0.18 needs 22.18 or later, which a system's own Node.js often is not
        },
    },
    indent=2,
)

UNREACHABLE = re.compile(
    r"\b(E(?:NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|HOSTUNREACH|NETUNREACH|TIMEDOUT|SOCKETTIMEDOUT|NOTCACHED)"
    r"|ERR_SOCKET_TIMEOUT|E40[137]|E5\d\d|UNABLE_TO_\w+|SELF_SIGNED_\w+|CERT_\w+)\b"
)


@dataclass(frozen=True)
class NodePackages:
    """An installed folder: the `node` binary and the packages beside it."""

    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / "node_modules" / ".bin" / "node"

    def command_line(self, package: str = CURRENT) -> Path:
        """The script behind the command `graphile-worker` of that release."""
        return self.folder / "node_modules" / package / "dist" / "cli.js"

    @property
    def library(self) -> Path:
        """What `import` takes to load the current release."""
        return self.folder / "node_modules" / CURRENT / "dist" / "index.js"


def provide() -> NodePackages:
    """The packages from the cache, installed first if this is the first time."""
    digest = hashlib.sha256(MANIFEST.encode()).hexdigest()[:12]
    packages = NodePackages(cache_folder() / digest)
    complete = packages.folder / "complete"
    if complete.exists():
        return packages
    with exclusive(cache_folder() / f"{digest}.lock"):
        if not complete.exists():
            install(packages)
            complete.touch()
    return packages


def cache_folder() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "graphile-worker-tests" / "node"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the file's lock: of several test runs one installs, the others wait for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(packages: NodePackages) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so the Node worker cannot be")
    shutil.rmtree(packages.folder, ignore_errors=True)
    packages.folder.mkdir(parents=True)
    (packages.folder / "package.json").write_text(MANIFEST)
    # The package "node" brings its binary in an install step of its own, hence no --ignore-scripts;
    # npm itself may run on an older Node.js than graphile-worker wants, hence no strict engines.
    command = [npm, "install", "--no-audit", "--no-fund", "--engine-strict=false", "--ignore-scripts=false"]
    command += ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]
    try:
        result = subprocess.run(
            command,
            cwd=packages.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not get its packages within {INSTALL_SECONDS} seconds")
    if result.returncode != 0:
        reason = UNREACHABLE.search(result.stdout)
        if reason:
            pytest.skip(f"npm cannot reach its registry ({reason.group()})")
        pytest.fail(f"npm install failed:\n{result.stdout}", pytrace=False)
    if not packages.binary.exists():
        pytest.fail(f"npm's package `node` installed no binary:\n{result.stdout}", pytrace=False)

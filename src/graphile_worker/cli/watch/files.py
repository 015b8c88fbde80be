"""Which files matter to a worker, and whether they are still what they were.

The current folder and those below it are searched for Python files, because tasks import the application;
in the folder of tasks every file counts, because any may be an executable task or be read by one. Looking at
the files themselves, and not only at what the operating system reports, means that no change is missed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
MAX_FOLDERS = 5_000
"""Folders that are looked at; a worker that is started in a home folder must not read all of it."""

Fingerprint = dict[str, tuple[int, int]]
"""For each file its time of change and size."""

logger = logging.getLogger("graphile_worker.watch")


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """The files of a worker: Python files below `root`, all files of `tasks`, and `others` if they exist."""

    root: Path
    tasks: Path
    others: tuple[Path, ...] = ()

    def folders(self) -> list[str]:
        """Every folder in which a change can matter."""
        found = {*_folders(self.root), *(_folders(self.tasks) if self.tasks.is_dir() else ())}
        parents = {str(path.parent) for path in (self.tasks, *self.others) if path.parent.is_dir()}
        return sorted(found | parents)

    def fingerprint(self) -> Fingerprint:
        """What the files are like now."""
        found: Fingerprint = {}
        for folder in _folders(self.root):
            _add(found, (entry for entry in _files(folder) if entry.name.endswith(".py")))
        for folder in _folders(self.tasks) if self.tasks.is_dir() else ():
            _add(found, (entry for entry in _files(folder) if _is_written_by_people(entry.name)))
        for path in (self.tasks, *self.others):
            if path.is_file():
                found[str(path)] = _mark(path.stat())
        return found


def changed_files(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Files that are new, gone or different."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _folders(root: Path) -> Iterator[str]:
    """A folder and those below it that may hold code of the project."""
    waiting, count = [str(root)], 0
    while waiting:
        folder = waiting.pop()
        count += 1
        if count > MAX_FOLDERS:
            logger.debug("more than %d folders below %s; the others are not watched", MAX_FOLDERS, root)
            return
        yield folder
        try:
            with os.scandir(folder) as entries:
                inner = sorted(entry.path for entry in entries if _may_hold_code(entry))
        except OSError:
            continue
        waiting += reversed(inner)


def _may_hold_code(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in SKIPPED or not entry.is_dir(follow_symlinks=False):
        return False
    return not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _files(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []


def _is_written_by_people(name: str) -> bool:
    """Not a hidden file, a compiled module, or what an editor leaves beside the file it edits."""
    return not name.startswith((".", "#")) and not name.endswith(("~", ".pyc", ".swp", ".tmp"))


def _add(found: Fingerprint, entries: Iterable[os.DirEntry[str]]) -> None:
    for entry in entries:
        try:
            found[entry.path] = _mark(entry.stat())
        except OSError:  # deleted this moment
            continue


def _mark(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size

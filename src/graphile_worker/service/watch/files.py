"""The files that a worker depends on, and whether they have changed.

These are all Python files below the current directory, because tasks import the application, and all files
in the task directory, because any may be an executable task or be read by one. Comparing the files
themselves, instead of relying on notifications of the operating system, misses no change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
MAX_DIRECTORIES = 5_000
"""Limits the search: a worker may be started in a home directory."""

Fingerprint = dict[str, tuple[int, int]]
"""The modification time and size of each file."""

logger = logging.getLogger("graphile_worker.watch")


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """Python files below `root`, all files in `tasks`, and `others` if they exist."""

    root: Path
    tasks: Path
    others: tuple[Path, ...] = ()

    def directories(self) -> list[str]:
        """All directories to watch."""
        found = {*_directories(self.root), *(_directories(self.tasks) if self.tasks.is_dir() else ())}
        parents = {str(path.parent) for path in (self.tasks, *self.others) if path.parent.is_dir()}
        return sorted(found | parents)

    def fingerprint(self) -> Fingerprint:
        """The current state of the files."""
        found: Fingerprint = {}
        for directory in _directories(self.root):
            _add(found, (entry for entry in _files(directory) if entry.name.endswith(".py")))
        for directory in _directories(self.tasks) if self.tasks.is_dir() else ():
            _add(found, (entry for entry in _files(directory) if _is_source(entry.name)))
        for path in (self.tasks, *self.others):
            if path.is_file():
                found[str(path)] = _stamp(path.stat())
        return found


def changed_files(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Files that were added, deleted or modified."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _directories(root: Path) -> Iterator[str]:
    """A directory and those below it that may contain code of the project."""
    waiting, count = [str(root)], 0
    while waiting:
        directory = waiting.pop()
        count += 1
        if count > MAX_DIRECTORIES:
            logger.debug("watching only %d of the directories below %s", MAX_DIRECTORIES, root)
            return
        yield directory
        try:
            with os.scandir(directory) as entries:
                inner = sorted(entry.path for entry in entries if _may_hold_code(entry))
        except OSError:
            continue
        waiting += reversed(inner)


def _may_hold_code(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in SKIPPED or not entry.is_dir(follow_symlinks=False):
        return False
    return not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _files(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []


def _is_source(name: str) -> bool:
    """Whether it is neither a hidden file, a compiled module nor an editor's backup."""
    return not name.startswith((".", "#")) and not name.endswith(("~", ".pyc", ".swp", ".tmp"))


def _add(found: Fingerprint, entries: Iterable[os.DirEntry[str]]) -> None:
    for entry in entries:
        try:
            found[entry.path] = _stamp(entry.stat())
        except OSError:  # just deleted
            continue


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size

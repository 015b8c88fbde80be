"""Files that a worker depends on, and waiting until they change.

These are all Python files below the current directory, because tasks import the application, and all files
in the task directory, because any may be an executable task or be read by one. Comparing the files
themselves, instead of relying on notifications of the operating system, misses no change.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError

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


CHECK_INTERVAL = 2.0  # seconds; some file systems, such as network mounts, send no notifications
INSTALL_COMMAND = 'pip install "graphile-worker[watch]"'


class Changes:
    """Remembers the files at the last snapshot, and waits until they differ."""

    def __init__(self, files: WatchedFiles) -> None:
        self.files = files
        self._awatch = _import_awatch()
        self._snapshot: Fingerprint = {}

    def take_snapshot(self) -> None:
        """Compare with the files as they are now. Call it before the code is loaded, not after."""
        self._snapshot = self.files.fingerprint()

    async def wait(self) -> list[str]:
        """Wait until files differ; returns them."""
        while not (changed := self._changed()):
            directories = self.files.directories()
            try:
                await self._wait_for_notification(directories)
            except (OSError, RuntimeError) as error:  # out of watches, or a directory was just deleted
                logger.debug("no file notifications (%s); checking every second", error)
                await asyncio.sleep(1.0)
        return changed

    async def _wait_for_notification(self, directories: list[str]) -> None:
        """Wait until files or directories differ. Watches first and compares then, to miss no change."""
        reports: Any = self._awatch(
            *directories,
            watch_filter=None,
            recursive=False,
            rust_timeout=int(CHECK_INTERVAL * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        async with aclosing(reports):
            async for _ in reports:
                if self._changed() or self.files.directories() != directories:
                    return

    def _changed(self) -> list[str]:
        return changed_files(self._snapshot, self.files.fingerprint())


def _import_awatch() -> Any:
    try:
        from watchfiles import awatch
    except ImportError:
        raise ConfigError(
            f"watching files needs the package watchfiles; install it with: {INSTALL_COMMAND}"
        ) from None
    return awatch

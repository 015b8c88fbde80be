"""Finds the task files in a folder and their identifiers (TL2, TL3), by name only.

The identifier consists of the folders and the part of the file name before the first dot. Names that begin
with `_` belong to helper modules, names that begin with `.` to tools. Names with characters other than
letters, digits, `_` and `-` cannot be tasks.
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...errors import TaskLoadError

FOLDER_NAME = re.compile(r"[A-Za-z0-9_-]+")
FILE_NAME = re.compile(r"([A-Za-z0-9_-]+)((?:\.[A-Za-z0-9_-]+)*)")

logger = logging.getLogger("graphile_worker.tasks")


class TaskFile(msgspec.Struct, frozen=True):
    """A file that may define a task; `extension` is all of the name from the first dot."""

    path: Path
    folders: tuple[str, ...]
    base_name: str
    extension: str

    @property
    def identifier(self) -> str:
        return "/".join((*self.folders, self.base_name))

    @property
    def is_executable(self) -> bool:
        """Whether its owner may execute it."""
        return bool(self.path.stat().st_mode & 0o100)


def find_task_files(root: Path) -> dict[str, list[TaskFile]]:
    """The files below `root` by identifier, both in alphabetical order."""
    groups: defaultdict[str, list[TaskFile]] = defaultdict(list)
    for file in _walk(root, ()):
        groups[file.identifier].append(file)
    return {identifier: groups[identifier] for identifier in sorted(groups)}


def _walk(folder: Path, folders: tuple[str, ...]) -> Iterator[TaskFile]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise TaskLoadError(f"cannot be read: {error.strerror}", path=str(folder)) from error
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir(follow_symlinks=False):
            if FOLDER_NAME.fullmatch(entry.name):
                yield from _walk(path, (*folders, entry.name))
            else:
                logger.info("ignoring folder %s: its name cannot be part of a task identifier", path)
        elif _is_file(entry):
            match = FILE_NAME.fullmatch(entry.name)
            if match:
                yield TaskFile(path, folders, match[1], match[2])
            else:
                logger.info("ignoring file %s: its name cannot be a task identifier", path)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Also true for a link to a file. Links to folders are skipped, because they may form a cycle."""
    try:
        return entry.is_file()
    except OSError as error:
        logger.info("ignoring %s: %s", entry.path, error.strerror)
        return False

"""Adding jobs from JSON lines: read as a stream, added in chunks, all in one transaction."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TextIO

import msgspec

from ...client import WorkerUtils
from ...errors import GraphileWorkerError, InvalidArgumentError
from ...spec import JobSpec
from .parameters import parse_when
from .progress import progress_bar

CHUNK = 5_000
LONG = 1_000_000
"""Bytes from which a file is worth a progress bar."""
NAMES = {
    "task": "task_identifier",
    "identifier": "task_identifier",
    "task_identifier": "task_identifier",
    "payload": "payload",
    "queue": "queue_name",
    "queue_name": "queue_name",
    "run_at": "run_at",
    "max_attempts": "max_attempts",
    "key": "job_key",
    "job_key": "job_key",
    "key_mode": "job_key_mode",
    "job_key_mode": "job_key_mode",
    "priority": "priority",
    "flags": "flags",
}
"""Members of a line and the option of JobSpec they stand for: the flags' names, and the database's."""


async def add_from(
    utils: WorkerUtils,
    lines: TextIO,
    name: str,
    check_names: Callable[[Iterable[str]], object] = lambda names: None,
) -> int:
    """Add a job for each line that is not empty; returns how many. A bad line adds none at all.

    `check_names` is called with the task names of each chunk before it is added, and may raise.
    """
    added = 0
    size = _size(lines)
    specs = read_specs(lines, name)
    with progress_bar("adding jobs", total=size, wanted=size is None or size >= LONG) as bar:
        async with utils.with_pg_client() as connection, connection.transaction():
            while chunk := list(islice(specs, CHUNK)):
                check_names({spec.task_identifier for spec in chunk})
                added += len(await utils.add_jobs(chunk, connection=connection))
                # How far it was read, not how much of it was decoded: bytes are what is known of the whole.
                bar.show(f"{added:,} jobs", done=lines.buffer.tell() if size is not None else None)
    return added


def read_specs(lines: TextIO, name: str) -> Iterator[JobSpec]:
    """The specs of a file of JSON lines; an error names the file and the line."""
    number = 1
    try:
        for line in lines:
            if line.strip():
                yield _spec(line)
            number += 1
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name}:{number}", "this is not UTF-8 text") from error
    except (msgspec.DecodeError, GraphileWorkerError, ValueError) as error:
        raise InvalidArgumentError(f"{name}:{number}", str(error)) from error


def _spec(line: str) -> JobSpec:
    members = msgspec.json.decode(line)
    if not isinstance(members, dict):
        raise ValueError('expected an object such as {"task": "send_email", "payload": {}}')
    values: dict[str, Any] = {}
    for member, value in members.items():
        if member not in NAMES:
            raise ValueError(f"unknown member {member!r}; known: {', '.join(NAMES)}")
        if NAMES[member] in values:
            raise ValueError(f"{member!r} is given twice under different names")
        values[NAMES[member]] = value
    if "task_identifier" not in values:
        raise ValueError('"task" is missing: the name of the task')
    if isinstance(values.get("run_at"), str):
        values["run_at"] = parse_when(values["run_at"])
    return JobSpec(**values)


def _size(lines: TextIO) -> int | None:
    """The bytes of a file; None for a pipe, of which nobody knows how much will come."""
    try:
        about = os.fstat(lines.fileno())
    except (OSError, ValueError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None

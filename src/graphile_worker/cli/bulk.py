"""Adding jobs from JSON lines: read as a stream, added in chunks, all in one transaction."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TextIO

import msgspec

from ..client import WorkerUtils
from ..errors import GraphileWorkerError, InvalidArgumentError
from ..spec import JobSpec
from .parameters import parse_when

CHUNK = 5_000
LONG = 1_000_000
"""Bytes from which a file is worth a progress bar."""
NAMES = {
    "task": "identifier",
    "identifier": "identifier",
    "task_identifier": "identifier",
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


async def add_from(utils: WorkerUtils, lines: TextIO, name: str) -> int:
    """Add a job for each line that is not empty; returns how many. A bad line adds none at all."""
    added = 0
    with _progress(lines) as advance:
        specs = read_specs(lines, name, advance)
        async with utils.with_pg_client() as connection, connection.transaction():
            while chunk := list(islice(specs, CHUNK)):
                added += len(await utils.add_jobs(chunk, connection=connection))
    return added


def read_specs(
    lines: TextIO, name: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[JobSpec]:
    """The specs of a file of JSON lines; an error names the file and the line."""
    number = 1
    try:
        for line in lines:
            advance(len(line))
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
    if "identifier" not in values:
        raise ValueError('"task" is missing: the name of the task')
    if isinstance(values.get("run_at"), str):
        values["run_at"] = parse_when(values["run_at"])
    return JobSpec(**values)


@contextmanager
def _progress(lines: TextIO) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error for long files, if a person is there to see it."""
    try:
        size = os.fstat(lines.fileno()).st_size
    except (OSError, ValueError):
        size = 0
    if size < LONG or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("adding jobs"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("adding jobs", total=size)
        yield lambda done: progress.advance(bar, done)

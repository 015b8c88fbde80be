"""Adds jobs from JSON lines: a stream, added in chunks within one transaction."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TextIO

import msgspec

from ...client import WorkerUtils
from ...errors import GraphileWorkerError, InvalidArgumentError
from ...tasks.task import AnyTask
from ...values.job_options import BY_NAME, from_json, options_on
from ...values.spec import JobSpec
from .output import progress_bar

CHUNK = 5_000
LONG = 1_000_000
"""Bytes from which a file gets a progress bar."""
NAMES = {
    **dict.fromkeys(("task", "identifier", "task_identifier"), "task_identifier"),
    "payload": "payload",
    **{name: option.name for option in options_on("lines") for name in (option.short, option.name)},
}
"""Members of a line, with their short names or as in Python, and the option of JobSpec that they set."""
NO_TASKS: Mapping[str, AnyTask] = {}


async def add_from(
    utils: WorkerUtils,
    lines: TextIO,
    name: str,
    check_names: Callable[[Iterable[str]], object] = lambda names: None,
    *,
    tasks: Mapping[str, AnyTask] = NO_TASKS,
) -> int:
    """Add a job for each non-empty line; returns how many. A bad line rolls back all of them.

    `check_names` gets the task names of each chunk before it is added, and may raise. The options of `tasks`
    apply to their jobs, and payloads are checked.
    """
    added = 0
    size = _size(lines)
    specs = read_specs(lines, name, tasks)
    with progress_bar("adding jobs", total=size, wanted=size is None or size >= LONG) as bar:
        async with utils.with_pg_client() as connection, connection.transaction():
            while chunk := list(islice(specs, CHUNK)):
                check_names({spec.task_identifier for spec in chunk})
                added += len(await utils.add_jobs(chunk, connection=connection))
                # Bytes read rather than lines decoded: the file's size is the only total we know.
                bar.show(f"{added:,} jobs", done=lines.buffer.tell() if size is not None else None)
    return added


def read_specs(lines: TextIO, name: str, tasks: Mapping[str, AnyTask] = NO_TASKS) -> Iterator[JobSpec]:
    """The specs in a file of JSON lines; errors name the file and the line."""
    number = 1
    try:
        for line in lines:
            if line.strip():
                yield _spec(line, tasks)
            number += 1
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name}:{number}", "not UTF-8 text") from error
    except (msgspec.DecodeError, GraphileWorkerError, ValueError) as error:
        raise InvalidArgumentError(f"{name}:{number}", str(error)) from error


def _spec(line: str, tasks: Mapping[str, AnyTask]) -> JobSpec:
    members = msgspec.json.decode(line)
    if not isinstance(members, dict):
        raise ValueError('expected an object such as {"task": "send_email", "payload": {}}')
    values: dict[str, Any] = {}
    for member, value in members.items():
        if member not in NAMES:
            raise ValueError(f"unknown member {member!r}; known: {', '.join(NAMES)}")
        if NAMES[member] in values:
            raise ValueError(f"{member!r} is set twice, under different names")
        option = BY_NAME.get(NAMES[member])
        values[NAMES[member]] = value if option is None else from_json(option, value)
    if "task_identifier" not in values:
        raise ValueError('the member "task" is missing: the name of the task')
    identifier = values["task_identifier"]
    if isinstance(identifier, str):
        values["task_identifier"] = tasks.get(identifier, identifier)
    return JobSpec(**values)


def _size(lines: TextIO) -> int | None:
    """The size of a file in bytes; None for a pipe."""
    try:
        status = os.fstat(lines.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None

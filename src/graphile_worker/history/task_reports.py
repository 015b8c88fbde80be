"""What a task says about its job: progress while it runs, its result at the end.

Here is what a task may report, what is stored, and what a client reads. The result of a kept job is what its
task returned, as JSON of bounded size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..database.connections.connection import Connection
from ..database.connections.encoding import fit_to_server
from ..database.sql import load
from ..errors import InvalidArgumentError, ResultError
from ..errors.text import storable
from ..hooks.interceptors import Redactor, redacted_json
from ..values.job import Job
from ..values.outcome import Kept
from ..values.payload import encode
from ..values.retention import Retention, is_awaited
from ..values.schema_name import SchemaName

MAX_NOTE = 500
"""Characters."""
MAX_DATA = 8_192
"""Bytes of JSON."""


class Progress(msgspec.Struct, frozen=True):
    """How far a job is."""

    share: float | None
    """From 0 to 1; None if the task does not know."""
    note: str | None
    data: Any
    updated_at: datetime


class ProgressReport(msgspec.Struct, frozen=True):
    """What a task has reported."""

    share: float | None = None
    note: str | None = None
    raw_data: str | None = None


def checked_report(share: float | None, note: str | None, data: object) -> ProgressReport:
    """A report; InvalidArgumentError if it cannot be stored."""
    is_number = isinstance(share, int | float) and not isinstance(share, bool) and math.isfinite(share)
    if share is not None and not is_number:
        raise InvalidArgumentError("share", f"expected a number from 0 to 1, got {share!r}")
    if note is not None and not isinstance(note, str):
        raise InvalidArgumentError("note", f"expected text, got {note!r}")
    raw_data = None if data is None else encode(data)
    if raw_data is not None and len(raw_data) > MAX_DATA:
        raise InvalidArgumentError("data", f"has {len(raw_data):,} characters of JSON; at most {MAX_DATA:,}")
    return ProgressReport(
        None if share is None else min(max(float(share), 0.0), 1.0),
        None if note is None else storable(note[:MAX_NOTE]),
        raw_data,
    )


async def write_progress(
    connection: Connection, schema: SchemaName, reports: Mapping[int, ProgressReport], ended: Sequence[int]
) -> None:
    """Store these reports by job id, and delete those of jobs that have ended."""

    def texts(values: Sequence[str | None]) -> list[str | None]:
        return [None if value is None else fit_to_server(connection, value) for value in values]

    await connection.execute(
        load("history/write_progress", schema),
        list(reports),
        [report.share for report in reports.values()],
        texts([report.note for report in reports.values()]),
        texts([report.raw_data for report in reports.values()]),
        list(ended),
    )


async def get_progress(connection: Connection, schema: SchemaName, job_id: int) -> Progress | None:
    """What the task of a running job has reported last."""
    row = await connection.fetchrow(load("history/get_progress", schema), job_id)
    if row is None:
        return None
    share, note, data, updated_at = row
    return Progress(share, note, None if data is None else msgspec.json.decode(data), updated_at)


async def purge_progress(connection: Connection, schema: SchemaName) -> None:
    """Delete what dead workers left behind."""
    await connection.execute(load("history/purge_progress", schema))


MAX_RESULT = 64 * 1024
"""Bytes of JSON."""


class UnsendableResult(msgspec.Struct, frozen=True):
    """Stands for a result that stayed in the process that ran the task."""

    problem: str


def kept(job: Job, result: object, retention: Retention, redactors: Sequence[Redactor] = ()) -> Kept:
    """The outcome of a completed job that is kept. Raises ResultError if the result cannot be."""
    return Kept(
        retention=retention,
        raw_result=None if result is None else encoded_result(job.task_identifier, result, redactors),
        raw_payload=redacted_json(redactors, "payload", job.task_identifier, job.raw_payload)
        if redactors and retention.payload
        else None,
        is_awaited=is_awaited(job.raw_flags),
    )


def encoded_result(task_identifier: str, result: object, redactors: Sequence[Redactor] = ()) -> str:
    """The result as JSON text, redacted."""
    try:
        if isinstance(result, UnsendableResult):
            raise InvalidArgumentError("payload", result.problem)
        text = encode(result)
    except InvalidArgumentError as error:
        problem = str(error).removeprefix("payload: ")
        raise ResultError(
            f"the result of the task {task_identifier} cannot be kept: {problem}; return values that JSON "
            "can express, or None"
        ) from error
    if redactors:
        text = redacted_json(redactors, "result", task_identifier, text)
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_RESULT:
        raise ResultError(
            f"the result of the task {task_identifier} has {size:,} bytes of JSON; at most {MAX_RESULT:,} "
            "are kept: store it elsewhere and return a reference"
        )
    return text

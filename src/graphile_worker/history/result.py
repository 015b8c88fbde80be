"""The result of a kept job: what its task returned, as JSON of bounded size."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import InvalidArgumentError, ResultError
from ..hooks.redaction import Redactor, redacted_json
from ..values.job import Job
from ..values.outcome import Kept
from ..values.payload import encode
from ..values.retention import Retention, is_awaited

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

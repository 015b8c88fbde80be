"""Formatting for log lines: outcomes on one line, counts, and the fields of structured logs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..errors.text import MAX_SUMMARY, message_of, summarize, type_name
from ..hooks import events
from ..values.text import count
from .job_context import job_fields


def outcome_text(event: events.JobErrored | events.JobFailed) -> str:
    """The error of a job on one line; for a batch job, the number of failed items and their errors."""
    parts = event.batch_job_errors
    if not parts:
        return summarize(event.error)
    shown, length = [], 0
    for part in parts:
        shown.append(summarize(part))
        length += len(shown[-1])
        if length > MAX_SUMMARY:
            shown.append("…")
            break
    return f"{count(len(parts), 'item')} of the batch: {' | '.join(shown)}"


def job_scope(event: events.JobEvent) -> dict[str, Any]:
    """The fields that identify the event, the job, its pool and the slot."""
    fields = job_fields(event.job, event.worker_id)
    fields["event"] = event.name
    return fields


def pool_scope(event: events.PoolEvent | events.RecoveryEvent) -> dict[str, Any]:
    """The fields that identify the event and the pool."""
    return {"event": event.name, "pool_id": event.pool_id}


def worker_scope(event: events.WorkerEvent) -> dict[str, Any]:
    """The fields that identify the event and the slot."""
    return {"event": event.name, "worker_id": event.worker_id}


def error_fields(error: BaseException) -> dict[str, Any]:
    """The fields of an error."""
    return {"error": message_of(error), "error_type": type_name(error)}


def failure_fields(event: events.JobErrored | events.JobFailed) -> dict[str, Any]:
    """The fields of a failed attempt."""
    return error_fields(event.error) | {"duration_ms": milliseconds(event.duration)}


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)


def minute(time: datetime) -> str:
    """A point in time to the minute."""
    return f"{time:%Y-%m-%d %H:%M} UTC"

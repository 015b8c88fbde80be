"""The job that a log record is about: its fields, its name in messages, the job of the current context.

A record also has the trace in which it was made: that of OpenTelemetry or Sentry, if one of them is loaded.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from ..values.job import Job, current_helpers

ROOT = "graphile_worker"


def job_fields(job: Job, worker_id: str | None = None) -> dict[str, Any]:
    """The attributes of a record about this job: the job, its pool and, if given, its slot."""
    fields: dict[str, Any] = {} if worker_id is None else {"worker_id": worker_id}
    fields["pool_id"] = job.locked_by
    fields["task_identifier"] = job.task_identifier
    fields["job_id"] = job.id
    fields["attempt"] = job.attempts
    fields["max_attempts"] = job.max_attempts
    return fields


def current_job_fields() -> dict[str, Any] | None:
    """The attributes for the job whose task runs in this context; None outside a task."""
    helpers = current_helpers.get(None)
    return None if helpers is None else job_fields(helpers.job, helpers.worker_id)


def add_job_fields(record: logging.LogRecord) -> None:
    """Give a record of the application the attributes of the job in whose task it was made.

    Records of this package have their own: its code also runs in contexts that a task left behind.
    """
    own = record.__dict__
    if "job_id" in own or "event" in own or is_own(record.name):
        return
    fields = current_job_fields()
    if fields is not None:
        own.update({name: value for name, value in fields.items() if name not in own})


class JobContextFilter(logging.Filter):
    """Adds the attributes of the running job and of the trace to your own records; lets every record pass.

    Our formatters do the same. Use this for a handler with another formatter, or for a `QueueHandler`, whose
    records are formatted in another thread.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes."""
        add_job_fields(record)
        add_trace_fields(record)
        return True


def is_own(name: str) -> bool:
    """Whether a logger of this name belongs to this package."""
    return name == ROOT or name.startswith(f"{ROOT}.")


def job_name(record: logging.LogRecord) -> str | None:
    """`task send_email (job 7)` for a record about a job; None for others."""
    own = record.__dict__
    job_id, task = own.get("job_id"), own.get("task_identifier")
    return None if job_id is None or task is None else f"task {task} (job {job_id})"


def with_job(record: logging.LogRecord) -> str:
    """The message, which names the job if the record is about one."""
    message, name = record.getMessage(), job_name(record)
    return message if name is None or name in message else f"{name}: {message}"


def without_job(record: logging.LogRecord) -> str:
    """The message without the name of the job that `JobLogger` puts before it."""
    message, name = record.getMessage(), job_name(record)
    return message if name is None else message.removeprefix(f"{name}: ")


NO_TRACE = 2**128 - 1
"""The trace id of our own statements, which are kept out of traces."""


def add_trace_fields(record: logging.LogRecord) -> None:
    """Give a record the ids of the current trace and span.

    Records of the engine get none: it works outside of traces, whatever its context says.
    """
    own = record.__dict__
    if "trace_id" in own or "event" in own or (is_own(record.name) and "job_id" not in own):
        return
    if (ids := current_trace()) is not None:
        own["trace_id"], own["span_id"] = ids


def current_trace() -> tuple[str, str] | None:
    """The ids of the current trace and span in hexadecimal digits; None outside a trace.

    Nothing is imported: what is not loaded has no current trace.
    """
    modules = sys.modules
    if (opentelemetry := modules.get("opentelemetry.trace")) is not None:
        context = opentelemetry.get_current_span().get_span_context()
        if context.is_valid and context.trace_id != NO_TRACE:
            return f"{context.trace_id:032x}", f"{context.span_id:016x}"
    if (sentry := modules.get("sentry_sdk")) is not None and sentry.is_initialized():
        return _of_sentry(sentry)
    return None


def _of_sentry(sentry: Any) -> tuple[str, str] | None:
    span = sentry.get_current_span()
    if span is None and (traces := sys.modules.get("sentry_sdk.traces")) is not None:
        span = traces.get_current_span()  # in the mode that streams spans
    return None if span is None else (span.trace_id, span.span_id)

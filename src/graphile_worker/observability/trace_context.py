"""The trace in which a log record was made: that of OpenTelemetry or Sentry, if one of them is loaded."""

from __future__ import annotations

import logging
import sys
from typing import Any

from .job_context import is_own

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

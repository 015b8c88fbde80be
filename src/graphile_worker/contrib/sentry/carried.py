"""The trace that a job carries: from Sentry's headers to the member `_trace`, and back.

An error in this package must not fail a job or an add.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import sentry_sdk

from ...values.job import Job
from ...values.payload import traces_in

SAMPLED = 1
"""The bit of `flags` that says that the trace is sampled."""


def current_trace(span: Any | None) -> str | None:
    """The member for a job that is added in this span, or in the current scope, as JSON text."""
    if span is not None:
        trace_id, span_id, sampled = span.trace_id, span.span_id, span.sampled
    else:
        header = sentry_sdk.get_traceparent()
        if not header:
            return None
        trace_id, span_id, sampled = _parsed(header)
    trace: dict[str, Any] = {"flags": SAMPLED if sampled else 0, "trace_id": trace_id, "span_id": span_id}
    if baggage := sentry_sdk.get_baggage():
        trace["baggage"] = baggage
    return msgspec.json.encode(trace).decode()


def _parsed(header: str) -> tuple[str, str, bool | None]:
    trace_id, span_id, *decision = header.split("-")
    return trace_id, span_id, decision[0] == "1" if decision else None


def headers_of(job: Job) -> dict[str, str]:
    """The headers that continue the trace of a job; empty if it has none, or a batch job has several."""
    traces = traces_in(job.raw_payload)
    if len({trace["trace_id"] for trace in traces}) != 1:
        return {}
    trace = traces[0]
    baggage = trace.get("baggage")
    headers = {"sentry-trace": f"{trace['trace_id']}-{trace['span_id']}{_decision(trace, baggage)}"}
    if isinstance(baggage, str):
        headers["baggage"] = baggage
    return headers


def _decision(trace: dict[str, Any], baggage: object) -> str:
    """Whether the trace is sampled; empty if Sentry has not decided, because it traces only errors there."""
    flags = trace.get("flags")
    if isinstance(flags, int) and flags & SAMPLED:
        return "-1"
    is_undecided = (
        isinstance(baggage, str) and "sentry-trace_id=" in baggage and "sentry-sampled=" not in baggage
    )
    return "" if is_undecided else "-0"


def is_written_by_opentelemetry() -> bool:
    """Whether OpenTelemetry has a current span and our plugin for it, which then writes the member."""
    if "graphile_worker.contrib.opentelemetry" not in sys.modules:
        return False
    from opentelemetry.trace import get_current_span

    return get_current_span().get_span_context().is_valid


logger = logging.getLogger("graphile_worker.contrib")

_logged: set[tuple[type, str]] = set()


@contextmanager
def guarded() -> Iterator[None]:
    """Log an error, once for each kind, and go on behind the block."""
    try:
        yield
    except Exception as error:
        kind = (type(error), str(error)[:200])
        if kind not in _logged and len(_logged) < 100:
            _logged.add(kind)
            logger.exception("reporting to Sentry failed; this error is logged once")

"""Spans in both modes of the SDK, and the trace that a job carries.

The modes are transactions and the stream of spans (`trace_lifecycle="stream"`). Newer versions have both and
choose by an option of the client; older ones have transactions only. The trace is translated from Sentry's
headers to the member `_trace`, and back.

An error in this package must not fail a job or an add: see `guarded`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import sentry_sdk
from sentry_sdk import tracing_utils

from ...values.job import Job
from ...values.payload import traces_in

ORIGIN = "auto.queue.graphile_worker"


def is_streaming() -> bool:
    is_enabled = getattr(tracing_utils, "has_span_streaming_enabled", None)
    return is_enabled is not None and bool(is_enabled(sentry_sdk.get_client().options))


def is_tracing() -> bool:
    """Whether the client makes spans at all; without, errors still name the trace that they belong to."""
    return tracing_utils.has_tracing_enabled(sentry_sdk.get_client().options)


def continue_trace(headers: dict[str, str]) -> None:
    """Let the errors of the current scope belong to the trace of the headers, or to one of their own."""
    for scope in (sentry_sdk.get_isolation_scope(), sentry_sdk.get_current_scope()):
        scope.generate_propagation_context(headers)


@contextmanager
def root_span(name: str, op: str, headers: dict[str, str], sampling: dict[str, Any]) -> Iterator[Any]:
    """The first span of a run: it continues the trace of the headers, or starts one."""
    if is_streaming():
        from sentry_sdk import traces

        continue_trace(headers)
        sentry_sdk.get_current_scope().set_custom_sampling_context(sampling)
        attributes: dict[str, Any] = {
            "sentry.op": op,
            "sentry.origin": ORIGIN,
            "sentry.segment.name.source": "task",
        }
        with traces.start_span(name=name, parent_span=None, attributes=attributes) as span:
            yield span
        return
    transaction = sentry_sdk.continue_trace(headers, op=op, name=name, source="task", origin=ORIGIN)
    transaction.set_status("ok")
    with sentry_sdk.start_transaction(transaction, custom_sampling_context=sampling) as span:
        yield span


@contextmanager
def inner_span(name: str, op: str, attributes: Mapping[str, Any]) -> Iterator[Any]:
    """A span within the current one."""
    if is_streaming():
        from sentry_sdk import traces

        own = {"sentry.op": op, "sentry.origin": ORIGIN}
        with traces.start_span(name=name, attributes={**own, **attributes}) as span:
            yield span
        return
    with sentry_sdk.start_span(op=op, name=name, origin=ORIGIN) as span:
        set_attributes(span, attributes)
        yield span


def detached_span(name: str, op: str) -> Any | None:
    """A span within the current one that does not become the current one; None outside a trace.

    It ends with `end_span`, in any order with others: several adds of one coroutine may overlap.
    """
    if is_streaming():
        from sentry_sdk import traces

        if traces.get_current_span() is None:
            return None
        own: dict[str, Any] = {"sentry.op": op, "sentry.origin": ORIGIN}
        return traces.start_span(name=name, attributes=own, active=False)
    parent = sentry_sdk.get_current_span()
    return None if parent is None else parent.start_child(op=op, name=name, origin=ORIGIN)


def set_attributes(span: Any, attributes: Mapping[str, Any]) -> None:
    """Add attributes; those that are None are left out."""
    put = span.set_attribute if hasattr(span, "set_attribute") else span.set_data
    for name, value in attributes.items():
        if value is not None:
            put(name, value)


def mark_failed(span: Any) -> None:
    """What the span stands for has failed."""
    if hasattr(span, "set_status"):
        span.set_status("internal_error")
    else:
        span.status = "error"


def end_span(span: Any) -> None:
    if hasattr(span, "end"):
        span.end()
    else:
        span.finish()


def trace_context_of(span: Any) -> dict[str, Any]:
    """The context `trace` of an event that belongs to the span."""
    get = getattr(span, "get_trace_context", None) or span._get_trace_context
    context: dict[str, Any] = get()
    return context


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

"""Spans in both modes of the SDK: transactions, and the stream of spans (`trace_lifecycle="stream"`).

Newer versions have both and choose by an option of the client; older ones have transactions only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk import tracing_utils

ORIGIN = "auto.queue.graphile_worker"


def is_streaming() -> bool:
    """Whether the client streams spans."""
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
    """End a detached span."""
    if hasattr(span, "end"):
        span.end()
    else:
        span.finish()


def trace_context_of(span: Any) -> dict[str, Any]:
    """The context `trace` of an event that belongs to the span."""
    get = getattr(span, "get_trace_context", None) or span._get_trace_context
    context: dict[str, Any] = get()
    return context

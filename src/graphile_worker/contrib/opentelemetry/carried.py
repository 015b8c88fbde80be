"""The context that travels in a payload, as the member `_trace`: written by adds, read by runs.

Its members `flags`, `trace_id` and `span_id` are those of the Rust port, which ignores the others:
`tracestate` and `baggage`, in the form of the W3C headers.

The current context can be had as text or as environment variables, too, to pass it to another process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...values.job import Job
from ...values.payload import encode, traces_in, with_trace

ROOT = Context()
"""A context without anything: what is started in it begins a trace."""
_TRACE_ID = re.compile("[0-9a-fA-F]{32}")
_SPAN_ID = re.compile("[0-9a-fA-F]{16}")
_baggage = W3CBaggagePropagator()


def inject(payload: object) -> object:
    """The payload with the current context, as plain JSON values: for jobs that are added in SQL.

    Without a current span, and for payloads that are no objects or arrays, it is returned as it is. A client
    with the plugin does this by itself.
    """
    context = get_current()
    span = get_current_span(context).get_span_context()
    if not span.is_valid:
        return payload
    raw = encode(payload)
    carrying = with_trace(raw, member(span, context))
    return payload if carrying == raw else msgspec.json.decode(carrying)


def context_of(job: Job) -> Context | None:
    """The context in which the job was added; of a batch job, that of the first item that has one.

    None if the job carries none.
    """
    for trace in traces_in(job.raw_payload):
        if (context := context_in(trace)) is not None:
            return context
    return None


def member(span: SpanContext, context: Context) -> str:
    """The member `_trace` for this span, as JSON text; the baggage is that of the context."""
    more = ""
    if span.trace_state:
        more = f',"tracestate":{_text(span.trace_state.to_header())}'
    if baggage.get_all(context):
        carrier: dict[str, str] = {}
        _baggage.inject(carrier, context)
        if "baggage" in carrier:
            more += f',"baggage":{_text(carrier["baggage"])}'
    return (
        f'{{"flags":{int(span.trace_flags)},"trace_id":"{span.trace_id:032x}",'
        f'"span_id":"{span.span_id:016x}"{more}}}'
    )


def context_in(trace: Mapping[str, Any]) -> Context | None:
    """The context that a member carries, with its baggage; None if it is malformed."""
    span = span_context_in(trace)
    if span is None:
        return None
    return set_span_in_context(NonRecordingSpan(span), with_baggage(trace, ROOT))


def with_baggage(trace: Mapping[str, Any], context: Context) -> Context:
    """The context with the baggage of a member."""
    text = trace.get("baggage")
    return _baggage.extract({"baggage": text}, context) if isinstance(text, str) else context


def span_context_in(trace: Mapping[str, Any]) -> SpanContext | None:
    """The span that a member names; None if it is malformed."""
    trace_id, span_id, flags = trace.get("trace_id"), trace.get("span_id"), trace.get("flags", 0)
    if not isinstance(trace_id, str) or _TRACE_ID.fullmatch(trace_id) is None:
        return None
    if not isinstance(span_id, str) or _SPAN_ID.fullmatch(span_id) is None:
        return None
    if not isinstance(flags, int) or not 0 <= flags <= 255:
        return None
    state = trace.get("tracestate")
    found = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(flags),
        trace_state=TraceState.from_header([state]) if isinstance(state, str) else None,
    )
    return found if found.is_valid else None


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


_propagators = (TraceContextTextMapPropagator(), W3CBaggagePropagator())


def context_as_text() -> str | None:
    """The current context as a line of text; None if there is no span to continue."""
    context = get_current()
    span = get_current_span(context).get_span_context()
    return member(span, context) if span.is_valid else None


def context_as_variables() -> dict[str, str]:
    """The current context as environment variables, for programs: TRACEPARENT, TRACESTATE and BAGGAGE."""
    carrier: dict[str, str] = {}
    for propagator in _propagators:
        propagator.inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}


@contextmanager
def context_from_text(text: str | None) -> Iterator[None]:
    """`with context_from_text(text):` continues the trace of the process that wrote the text."""
    try:
        trace = None if text is None else msgspec.json.decode(text, type=dict)
    except msgspec.DecodeError:
        trace = None
    context = None if trace is None else context_in(trace)
    if context is None:
        yield
        return
    token = attach(context)
    try:
        yield
    finally:
        detach(token)

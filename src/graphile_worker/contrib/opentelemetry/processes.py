"""The current context as text or as environment variables, to pass it to another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import attach, detach, get_current
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .carried import context_in, member

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

"""Keeps instrumented database drivers from making spans of the statements of the engine.

A worker sends a statement every few seconds even if there is nothing to do. Its own tasks therefore run in a
context in which instrumentations are suppressed. Those that do not ask for that find a current span that is
not sampled, so theirs are not either, with every sampler that follows the parent.
"""

from __future__ import annotations

from opentelemetry import context as context_api
from opentelemetry.context import attach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from .carried import ROOT

QUIET_SPAN = SpanContext(2**128 - 1, 2**64 - 1, is_remote=False, trace_flags=TraceFlags(0))
"""A span of no trace, all digits f, in case it shows up somewhere."""
_KEYS = ("suppress_instrumentation", getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", None))


def be_quiet() -> None:
    """Suppress instrumentation in this context from now on."""
    context = set_span_in_context(NonRecordingSpan(QUIET_SPAN), ROOT)
    for key in _KEYS:
        if key is not None:
            context = set_value(key, True, context)
    attach(context)

"""Spans that begin a trace, most of which are not sampled: a fast path for the sampler by ratio.

The SDK takes most of the time of a short job to begin a span that it then drops. Its sampler by ratio decides
by the trace id alone. So we draw the id, make the same decision, and ask the SDK only for spans to record,
with that id. Every other sampler, and an SDK that looks different inside, is asked for each span.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer

Start = Callable[[str, Context, SpanKind], Span]


def root_starter(tracer: Tracer, root: Context) -> Start | None:
    """A function that begins spans in the context `root`; None if the SDK must be asked for each."""
    try:
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        actual: Any = getattr(tracer, "_tracer", tracer)  # behind the proxy of the API
        sampler = actual.sampler
        if isinstance(sampler, ParentBased):
            sampler = sampler._root
        if type(sampler) is not TraceIdRatioBased or not actual._is_enabled():
            return None
        bound, limit, ids = sampler.bound, sampler.TRACE_ID_LIMIT, _ChosenIds(actual.id_generator)
        flags = TraceFlags(0x02 if ids.is_trace_id_random() else 0)  # the bit says that the id is random
    except (ImportError, AttributeError):
        return None
    actual.id_generator = ids  # of this tracer, which is ours alone
    start_span, trace_id, span_id = actual.start_span, ids.own.generate_trace_id, ids.own.generate_span_id

    def start(name: str, context: Context, kind: SpanKind) -> Span:
        if context is not root:
            return start_span(name, context, kind)  # type: ignore[no-any-return]
        drawn = trace_id()
        if drawn & limit >= bound:
            return DroppedSpan(drawn, span_id, flags)
        ids.chosen = drawn
        return start_span(name, context, kind)  # type: ignore[no-any-return]

    return start


class DroppedSpan(NonRecordingSpan):
    """A span that is not sampled. It gets its id when it is first asked for it, which few tasks do."""

    def __init__(self, trace_id: int, span_id: Callable[[], int], flags: TraceFlags) -> None:
        self._trace_id = trace_id
        self._make_span_id = span_id
        self._flags = flags
        self._made: SpanContext | None = None

    def get_span_context(self) -> SpanContext:
        if self._made is None:
            self._made = SpanContext(self._trace_id, self._make_span_id(), False, self._flags)
        return self._made

    def __repr__(self) -> str:
        return f"DroppedSpan({self.get_span_context()!r})"


class _ChosenIds:
    """Generates ids with the generator of the SDK, except for a trace id that was drawn before."""

    def __init__(self, own: Any) -> None:
        self.own = own
        self.chosen: int | None = None
        self.generate_span_id = own.generate_span_id
        self.is_trace_id_random = own.is_trace_id_random

    def generate_trace_id(self) -> int:
        chosen, self.chosen = self.chosen, None
        found: int = self.own.generate_trace_id() if chosen is None else chosen
        return found

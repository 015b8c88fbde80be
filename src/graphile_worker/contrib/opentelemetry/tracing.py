"""What the parts of the plugin share: tracer, instruments, attributes, and which tasks are traced.

Attributes of spans and metrics follow the messaging conventions of OpenTelemetry. The destination is the
task: workers subscribe to tasks, and there are few of them. The metrics are counters and durations of sending
and processing, by task.

`root_starter` begins spans that begin a trace, most of which are not sampled. The SDK takes most of the time
of a short job to begin a span that it then drops. Its sampler by ratio decides by the trace id alone. So we
draw the id, make the same decision, and ask the SDK only for spans to record, with that id. Every other
sampler, and an SDK that looks different inside, is asked for each span.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    TracerProvider,
    get_tracer,
)

from ...hooks.hooks import DatabaseTarget
from ...metrics.catalogue import CONSUMED_MESSAGES, PROCESS_DURATION, SEND_DURATION, SENT_MESSAGES, Metric
from ...values import __version__
from .carried import ROOT

Start = Callable[[str, Context, SpanKind], Span]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

logger = logging.getLogger("graphile_worker.opentelemetry")


class Tracing:
    """One for each plugin."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        tasks: Callable[[str], bool] | None,
    ) -> None:
        self._tracer = get_tracer("graphile_worker", __version__, tracer_provider, SCHEMA_URL)
        self.start: Start = self._tracer.start_span
        """Begins a span. Most are not recorded, so it gets its attributes only if it is."""
        self._meter_provider = meter_provider
        self._tasks = tasks
        self._has_failed = False

    @cached_property
    def instruments(self) -> Instruments | None:
        """The metrics; looked up at the first job, after the program has set its providers."""
        return instruments_of(self._meter_provider)

    @cached_property
    def start_run(self) -> Start:
        """Begins the span of a run, most of which begin a trace; looked up at the first job."""
        return root_starter(self._tracer, ROOT) or self.start

    def covers(self, task: str) -> bool:
        """Whether jobs of this task are traced."""
        return self._tasks is None or self._tasks(task)

    def failed(self, what: str) -> None:
        """Log the current exception, the first time only: tracing must not flood the log."""
        if not self._has_failed:
            self._has_failed = True
            logger.exception("tracing failed while %s; later failures are not logged", what)


SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

ATTEMPT = "graphile_worker.attempt"
MAX_ATTEMPTS = "graphile_worker.max_attempts"
OUTCOME = "graphile_worker.outcome"
JOB_KEY = "graphile_worker.job_key"
QUEUE_NAME = "graphile_worker.queue_name"
SCHEMA = "graphile_worker.schema"
IS_EXISTING = "graphile_worker.is_existing"
CRON_ITEM = "graphile_worker.cron_item"


def of_operation(operation: str, task: str | None) -> dict[str, Any]:
    """The attributes that every span of an operation has; `task` is None if there are several."""
    found = {SYSTEM: "graphile_worker", OPERATION: operation, OPERATION_TYPE: operation}
    return found if task is None else {**found, DESTINATION: task}


def of_target(target: DatabaseTarget | None) -> dict[str, Any]:
    """The attributes of the database that is contacted, as far as it is known."""
    if target is None:
        return {}
    found = {SCHEMA: target.schema, SERVER_ADDRESS: target.address, SERVER_PORT: target.port}
    return {name: value for name, value in found.items() if value is not None}


_Labels = tuple[str | None, str | None]
"""Task and type of the error."""
_NOT_SET = {"NoOpMeterProvider", "_ProxyMeterProvider"}


class Instruments:
    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("graphile_worker", __version__)
        # Counted here and read at each export, because the SDK takes far longer to count.
        self._sent: Counter[_Labels] = Counter()
        self._consumed: Counter[_Labels] = Counter()
        for counter, operation, counts in (
            (SENT_MESSAGES, "send", self._sent),
            (CONSUMED_MESSAGES, "process", self._consumed),
        ):
            observe = partial(_observations, operation, counts)
            meter.create_observable_counter(counter.name, [observe], counter.unit, counter.help)
        self._send_duration = _histogram(meter, SEND_DURATION)
        self._process_duration = _histogram(meter, PROCESS_DURATION)

    def sent(self, task: str | None, count: int, seconds: float, error: str | None) -> None:
        self._sent[task, error] += count
        self._send_duration.record(seconds, _labels("send", task, error))

    def processed(self, task: str, seconds: float, error: str | None) -> None:
        self._consumed[task, error] += 1
        self._process_duration.record(seconds, _labels("process", task, error))


def instruments_of(provider: MeterProvider | None) -> Instruments | None:
    """The instruments; None if the program has set no provider, so that metrics cost nothing."""
    chosen = provider if provider is not None else get_meter_provider()
    return None if type(chosen).__name__ in _NOT_SET else Instruments(chosen)


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(
        metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
    )


def _observations(operation: str, counts: Counter[_Labels], _: CallbackOptions) -> list[Observation]:
    found = list(counts.items())  # in the thread of the exporter
    return [Observation(count, _labels(operation, task, error)) for (task, error), count in found]


@lru_cache(maxsize=4096)
def _labels(operation: str, task: str | None, error: str | None) -> dict[str, Any]:
    found = {SYSTEM: "graphile_worker", OPERATION: operation}
    if task is not None:
        found[DESTINATION] = task
    if error is not None:
        found[ERROR_TYPE] = error
    return found


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

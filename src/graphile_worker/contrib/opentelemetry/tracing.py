"""What the parts of the plugin share: the tracer, the instruments, and which tasks are traced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, TracerProvider, get_tracer

from ...version import __version__
from .instruments import Instruments, instruments_of

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
        self._start = self._tracer.start_span
        self._meter_provider = meter_provider
        self._tasks = tasks
        self._has_failed = False

    @cached_property
    def instruments(self) -> Instruments | None:
        """The metrics; looked up at the first job, after the program has set its providers."""
        return instruments_of(self._meter_provider)

    def covers(self, task: str) -> bool:
        """Whether jobs of this task are traced."""
        return self._tasks is None or self._tasks(task)

    def start(self, name: str, context: Context, kind: SpanKind) -> Span:
        """Begin a span. Most are not recorded, so it gets its attributes only if it is."""
        return self._start(name, context, kind)

    def failed(self, what: str) -> None:
        """Log the current exception, the first time only: tracing must not flood the log."""
        if not self._has_failed:
            self._has_failed = True
            logger.exception("tracing failed while %s; further failures are not logged", what)

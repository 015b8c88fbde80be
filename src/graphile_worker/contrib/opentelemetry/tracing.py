"""What the parts of the plugin share: the tracer, the instruments, and which tasks are traced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer

from ...version import __version__
from .carried import ROOT
from .instruments import Instruments, instruments_of
from .unsampled import Start, root_starter

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
            logger.exception("tracing failed while %s; further failures are not logged", what)

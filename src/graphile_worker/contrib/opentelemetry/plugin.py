"""The plugin: what a worker or a client installs.

`be_quiet` keeps instrumented database drivers from making spans of the statements of the engine. A worker
sends a statement every few seconds even if there is nothing to do. Its own tasks therefore run in a context
in which instrumentations are suppressed. Those that do not ask for that find a current span that is not
sampled, so theirs are not either, with every sampler that follows the parent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from opentelemetry import context as context_api
from opentelemetry.context import attach, set_value
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TracerProvider, set_span_in_context

from ...errors import ConfigError
from ...hooks import Hooks, WorkerContext
from .carried import ROOT, context_as_text, context_as_variables
from .spans import Relation, RunSpans, TracedAdds
from .tracing import Tracing


class OpenTelemetryPlugin:
    """Spans and metrics of workers (`run(plugins=[…])`) and clients (`make_worker_utils(plugins=[…])`)."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagate: bool = True,
        relation: Relation = "link",
        create_spans: bool = False,
        quiet_database: bool = True,
        tasks: Callable[[str], bool] | None = None,
    ) -> None:
        """The providers are those of the program unless given here.

        `propagate`: write the current context into payloads. `relation`: whether the span of a run begins a
        trace, with a link to the span that added the job, or is its child. `create_spans`: one more span for
        each job of an `add_jobs`. `quiet_database`: make no spans of the worker's own statements. `tasks`
        returns whether jobs of a task are traced; all are without it.
        """
        if relation not in get_args(Relation):
            raise ConfigError(f"relation: expected 'link' or 'parent', got {relation!r}")
        if tasks is not None and not callable(tasks):
            raise ConfigError(f"tasks: expected a function that takes a task identifier, got {tasks!r}")
        self._tracing = Tracing(tracer_provider, meter_provider, tasks)
        self._propagate = propagate
        self._relation: Relation = relation
        self._create_spans = create_spans
        self._quiet_database = quiet_database

    def install(self, hooks: Hooks) -> None:
        """Watch adds and runs; does nothing if another such plugin does that here."""
        if any(isinstance(watcher, TracedAdds) for watcher in hooks.table.add_watchers):
            return
        hooks.watch_adds(
            TracedAdds(
                self._tracing, hooks._target, propagate=self._propagate, create_spans=self._create_spans
            )
        )
        hooks.watch_runs(RunSpans(self._tracing, hooks, relation=self._relation))
        hooks.carry_context(context_as_text, f"{__package__}:context_from_text")
        hooks.carry_environment(context_as_variables)
        if self._quiet_database:
            hooks._set_in_engine(be_quiet)

    async def start(self, worker: WorkerContext) -> None:
        """Note which database it is, in case the plugin was installed before that was known."""
        for watcher in (*worker.hooks.table.add_watchers, *worker.hooks.table.run_watchers):
            if isinstance(watcher, TracedAdds | RunSpans):
                watcher.target = worker.hooks._target


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

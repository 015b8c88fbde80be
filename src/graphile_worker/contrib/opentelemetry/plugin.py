"""The plugin that a worker or a client installs, and its spans for adding and for running jobs.

Jobs carry the context of the add, and the task and what it calls are part of the trace.

`be_quiet` keeps instrumented database drivers from making spans of the statements of the engine. A worker
sends a statement every few seconds even if there is nothing to do. Its own tasks therefore run in a context
in which instrumentations are suppressed. Those that do not ask for that find a current span that is not
sampled, so theirs are not either, with every sampler that follows the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

from opentelemetry import context as context_api
from opentelemetry.context import Context, attach, detach, get_current, set_value
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    set_span_in_context,
)

from ...errors import ConfigError, InvalidArgumentError
from ...errors.text import message_of, qualified_name
from ...hooks import Hooks, WorkerContext
from ...hooks.hooks import DatabaseTarget
from ...values.job import Job, current_helpers
from ...values.outcome import Failed, Interrupted, Outcome
from ...values.payload import MARK, encode, traces_in, with_trace
from ...values.spec import CronJob, JobSpec
from . import tracing as names
from .carried import (
    ROOT,
    context_as_text,
    context_as_variables,
    context_in,
    member,
    span_context_in,
    with_baggage,
)
from .tracing import Tracing

Relation = Literal["link", "parent"]
"""How a run relates to the span that added its job."""
MAX_NAMES = 10_000


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


class RunSpans:
    def __init__(self, tracing: Tracing, hooks: Hooks, *, relation: Relation) -> None:
        self._tracing = tracing
        self._hooks = hooks
        self._is_parent = relation == "parent"
        self._names: dict[str, str | None] = {}
        self.target = hooks._target
        """The database, if it is known."""

    # Every job passes through the first two methods. Most spans are not recorded, so they do little.

    def before(self, job: Job) -> object:
        try:
            task, raw, context = job.task_identifier, job.raw_payload, ROOT
            name = self._names[task] if task in self._names else self._name(task)
            if name is None:
                return None, attach(ROOT), 0.0
            if MARK in raw and (self._is_parent or '"baggage"' in raw):
                context = self._inherited(traces_in(raw))
            span = self._tracing.start_run(name, context, SpanKind.CONSUMER)
            if span.is_recording():
                self._describe(span, job)
            began = perf_counter() if self._tracing.instruments is not None else 0.0
            return span, attach(set_span_in_context(span, context)), began
        except Exception:
            self._tracing.failed("running a job")
            return None

    def after(self, state: Any, job: Job, outcome: Outcome | None) -> None:
        if state is None:
            return
        span, token, began = state
        try:
            detach(token)
            if span is None:
                return
            if span.is_recording():
                self._end(span, job, outcome)
            if (instruments := self._tracing.instruments) is not None:
                kind = qualified_name(outcome.error) if isinstance(outcome, Failed) else None
                instruments.processed(job.task_identifier, perf_counter() - began, kind)
        except Exception:
            self._tracing.failed("running a job")

    def _name(self, task: str) -> str | None:
        """The name of the spans of a task; None if it is not traced."""
        name = f"process {task}" if self._tracing.covers(task) else None
        if len(self._names) < MAX_NAMES:
            self._names[task] = name
        return name

    def _inherited(self, traces: list[dict[str, Any]]) -> Context:
        """What the run takes over from the add: the baggage, and the span if that is the parent."""
        if len(traces) != 1:
            return ROOT  # the items of a batch come from several requests
        if self._is_parent:
            return context_in(traces[0]) or ROOT
        return with_baggage(traces[0], ROOT)

    def _describe(self, span: Span, job: Job) -> None:
        traces = traces_in(job.raw_payload)
        if not self._is_parent or len(traces) > 1:
            for trace in traces:
                if (linked := span_context_in(trace)) is not None:
                    span.add_link(linked)
        found = names.of_operation("process", job.task_identifier) | {
            names.MESSAGE_ID: str(job.id),
            names.CLIENT_ID: job.locked_by,
            names.ATTEMPT: job.attempts,
            names.MAX_ATTEMPTS: job.max_attempts,
            names.JOB_KEY: job.key,
            names.QUEUE_NAME: _queue_name(job),
        }
        if job.raw_payload.lstrip().startswith("["):
            found[names.MESSAGE_COUNT] = len(job.payload)
        known = {name: value for name, value in found.items() if value is not None}
        span.set_attributes(known | names.of_target(self.target))

    def _end(self, span: Span, job: Job, outcome: Outcome | None) -> None:
        span.set_attribute(names.OUTCOME, "broken off" if outcome is None else _word(outcome))
        if isinstance(outcome, Failed):
            self._record(span, job, outcome)
        elif isinstance(outcome, Interrupted):
            span.add_event("interrupted", {"reason": message_of(outcome.error)})
        span.end()

    def _record(self, span: Span, job: Job, outcome: Failed) -> None:
        """The error as it is kept in the history: with texts that were made before, and redacted."""
        message, traceback = (
            self._hooks.redacted("error", job.task_identifier, text)
            for text in (message_of(outcome.error), outcome.traceback)
        )
        kind = qualified_name(outcome.error)
        span.set_attribute(names.ERROR_TYPE, kind)
        span.add_event(
            "exception",
            {
                "exception.type": kind,
                "exception.message": str(message),
                "exception.stacktrace": str(traceback),
            },
        )
        span.set_status(Status(StatusCode.ERROR, str(message)))


def _word(outcome: Outcome) -> str:
    """The outcome in a word: completed, failed, snoozed, expired, cancelled or interrupted."""
    return "completed" if outcome.__class__.__name__ == "Kept" else outcome.__class__.__name__.lower()


def _queue_name(job: Job) -> str | None:
    """The name of the job's queue, if this worker has looked it up before."""
    helpers = current_helpers.get(None)
    if job.job_queue_id is None or helpers is None:
        return None
    name: str | None = helpers._services.queue_names.cached(job.job_queue_id)
    return name


class Sending(NamedTuple):
    """An add that has begun."""

    span: Span
    token: Token[Context]
    task: str | None
    """The task of all jobs; None if there are several."""
    size: int
    began: float


class TracedAdds:
    def __init__(
        self, tracing: Tracing, target: DatabaseTarget | None, *, propagate: bool, create_spans: bool
    ) -> None:
        self._tracing = tracing
        self.target = target
        """The database, if it is known."""
        self._propagate = propagate
        self._create_spans = create_spans

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        try:
            return self._begin(specs)
        except Exception:
            self._tracing.failed("adding jobs")
            return specs, None

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        if not isinstance(state, Sending):
            return
        try:
            detach(state.token)
            if jobs is None or jobs:  # else another worker has added the recurring job
                self._end(state, jobs, error)
        except Exception:
            self._tracing.failed("adding jobs")

    def _begin(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], Sending | None]:
        if not any(self._tracing.covers(spec.task_identifier) for spec in specs):
            return specs, None
        first, count = specs[0], len(specs)
        task = first.task_identifier if len({spec.task_identifier for spec in specs}) == 1 else None
        has_create_spans = self._create_spans and count > 1
        # A recurring job has no cause within a trace, and the engine runs in a context without spans.
        parent = ROOT if isinstance(first, CronJob) else get_current()
        span = self._tracing.start(
            "send" if task is None else f"send {task}",
            parent,
            SpanKind.CLIENT if has_create_spans else SpanKind.PRODUCER,
        )
        if span.is_recording():
            _describe(span, specs, task)
            span.set_attributes(names.of_target(self.target))
        context = set_span_in_context(span, parent)
        sent = specs
        if has_create_spans:
            sent = [self._created(spec, context) for spec in specs]
        elif self._propagate and (span_context := span.get_span_context()).is_valid:
            carried = member(span_context, context)
            sent = [self._carrying(spec, carried) for spec in specs]
        return sent, Sending(span, attach(context), task, count, perf_counter())

    def _created(self, spec: JobSpec, context: Context) -> JobSpec:
        """The spec with the context of a span of its own."""
        if not self._tracing.covers(spec.task_identifier):
            return spec
        span = self._tracing.start(f"create {spec.task_identifier}", context, SpanKind.PRODUCER)
        if span.is_recording():
            found = names.of_operation("create", spec.task_identifier) | _options(spec)
            span.set_attributes(found | names.of_target(self.target))
        span.end()
        if not self._propagate or not (created := span.get_span_context()).is_valid:
            return spec
        return self._carrying(spec, member(created, context))

    def _carrying(self, spec: JobSpec, carried: str) -> JobSpec:
        if not self._tracing.covers(spec.task_identifier):
            return spec
        try:
            raw = encode(spec.payload)
        except InvalidArgumentError:  # the add will say so
            return spec
        traced = with_trace(raw, carried)
        return spec if traced == raw else spec._with_json(traced)

    def _end(self, sending: Sending, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        span, kind = sending.span, None if error is None else qualified_name(error)
        if span.is_recording():
            if error is not None:
                span.set_attribute(names.ERROR_TYPE, kind or "")
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, message_of(error)))
            elif jobs is not None and sending.size == 1:
                span.set_attribute(names.MESSAGE_ID, str(jobs[0].id))
                if jobs[0].is_existing:
                    span.set_attribute(names.IS_EXISTING, True)
        span.end()
        if (instruments := self._tracing.instruments) is not None:
            instruments.sent(sending.task, sending.size, perf_counter() - sending.began, kind)


def _describe(span: Span, specs: Sequence[JobSpec], task: str | None) -> None:
    found = names.of_operation("send", task)
    if len(specs) == 1:
        found |= _options(specs[0])
    else:
        found[names.MESSAGE_COUNT] = len(specs)
    span.set_attributes(found)


def _options(spec: JobSpec) -> dict[str, str]:
    found = {names.JOB_KEY: spec.job_key, names.QUEUE_NAME: spec.queue_name}
    if isinstance(spec, CronJob):
        found[names.CRON_ITEM] = spec.identifier
    return {name: value for name, value in found.items() if value is not None}

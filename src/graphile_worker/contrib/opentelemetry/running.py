"""Spans for running jobs: the task and what it calls are part of the trace."""

from __future__ import annotations

from contextvars import Token
from time import perf_counter
from typing import Any, Literal, NamedTuple

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from ...error_parts import qualified_name
from ...error_text import message_of
from ...hooks import Hooks
from ...job import Job, current_helpers
from ...outcome import Failed, Interrupted, Outcome
from ...trace_member import MARK, traces_in
from . import attributes as names
from .carried import ROOT, context_in, span_context_in, with_baggage
from .tracing import Tracing

Relation = Literal["link", "parent"]
"""How a run relates to the span that added its job."""


class Processing(NamedTuple):
    """A run that has begun."""

    span: Span | None
    """None if its task is not traced."""
    token: Token[Context]
    began: float


class RunSpans:
    """Watches runs."""

    def __init__(self, tracing: Tracing, hooks: Hooks, *, relation: Relation) -> None:
        self._tracing = tracing
        self._hooks = hooks
        self._is_parent = relation == "parent"
        self.schema: str | None = None

    def before(self, job: Job) -> object:
        try:
            if not self._tracing.covers(job.task_identifier):
                return Processing(None, attach(ROOT), 0.0)
            return self._begin(job)
        except Exception:
            self._tracing.failed("running a job")
            return None

    def after(self, state: object, job: Job, outcome: Outcome | None) -> None:
        if not isinstance(state, Processing):
            return
        try:
            detach(state.token)
            if state.span is not None:
                self._end(state, state.span, job, outcome)
        except Exception:
            self._tracing.failed("running a job")

    def _begin(self, job: Job) -> Processing:
        began, task, context = perf_counter(), job.task_identifier, ROOT
        traces: list[dict[str, Any]] | None = None
        if MARK in job.raw_payload and (self._is_parent or '"baggage"' in job.raw_payload):
            traces = traces_in(job.raw_payload)
            context = self._inherited(traces)
        span = self._tracing.start(f"process {task}", context, SpanKind.CONSUMER)
        if span.is_recording():
            traces = traces_in(job.raw_payload) if traces is None else traces
            self._describe(span, job, traces)
        return Processing(span, attach(set_span_in_context(span, context)), began)

    def _inherited(self, traces: list[dict[str, Any]]) -> Context:
        """What the run takes over from the add: the baggage, and the span if that is the parent."""
        if len(traces) != 1:
            return ROOT  # the items of a batch come from several requests
        if self._is_parent:
            return context_in(traces[0]) or ROOT
        return with_baggage(traces[0], ROOT)

    def _describe(self, span: Span, job: Job, traces: list[dict[str, Any]]) -> None:
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
            names.SCHEMA: self.schema,
        }
        if job.raw_payload.lstrip().startswith("["):
            found[names.MESSAGE_COUNT] = len(job.payload)
        span.set_attributes({name: value for name, value in found.items() if value is not None})

    def _end(self, processing: Processing, span: Span, job: Job, outcome: Outcome | None) -> None:
        kind = qualified_name(outcome.error) if isinstance(outcome, Failed) else None
        if span.is_recording():
            span.set_attribute(names.OUTCOME, "broken off" if outcome is None else _word(outcome))
            if isinstance(outcome, Failed):
                self._record(span, job, outcome)
            elif isinstance(outcome, Interrupted):
                span.add_event("interrupted", {"reason": message_of(outcome.error)})
        span.end()
        if (instruments := self._tracing.instruments) is not None:
            instruments.processed(job.task_identifier, perf_counter() - processing.began, kind)

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

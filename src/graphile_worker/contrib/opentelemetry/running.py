"""Spans for running jobs: the task and what it calls are part of the trace."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from ...errors.text import message_of, qualified_name
from ...hooks import Hooks
from ...values.job import Job, current_helpers
from ...values.outcome import Failed, Interrupted, Outcome
from ...values.payload import MARK, traces_in
from . import attributes as names
from .carried import ROOT, context_in, span_context_in, with_baggage
from .tracing import Tracing

Relation = Literal["link", "parent"]
"""How a run relates to the span that added its job."""
MAX_NAMES = 10_000


class RunSpans:
    """Watches runs."""

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
            return span, attach(set_span_in_context(span, context)), perf_counter()
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

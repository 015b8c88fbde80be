"""Spans for adding jobs, and the context that the jobs carry."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from time import perf_counter
from typing import NamedTuple

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, set_span_in_context

from ...errors import InvalidArgumentError
from ...errors.text import message_of, qualified_name
from ...hooks.hooks import DatabaseTarget
from ...values.job import Job
from ...values.payload import encode, with_trace
from ...values.spec import CronJob, JobSpec
from . import attributes as names
from .carried import ROOT, member
from .tracing import Tracing


class Sending(NamedTuple):
    """An add that has begun."""

    span: Span
    token: Token[Context]
    task: str | None
    """The task of all jobs; None if there are several."""
    size: int
    began: float


class TracedAdds:
    """Watches adds."""

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
        if not self._propagate:
            return spec
        return self._with_context(spec, span.get_span_context(), context)

    def _with_context(self, spec: JobSpec, span: SpanContext, context: Context) -> JobSpec:
        return self._carrying(spec, member(span, context)) if span.is_valid else spec

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

"""Spans of adds with the trace that added jobs carry, and the scope and the spans of a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import msgspec
import sentry_sdk
from sentry_sdk.scope import should_send_default_pii

from ...hooks import AddWatcher, Hooks
from ...values.clock import SystemClock
from ...values.job import Job
from ...values.payload import encode, with_trace, without_trace
from ...values.spec import CronJob, JobSpec
from .modes import (
    continue_trace,
    current_trace,
    detached_span,
    end_span,
    guarded,
    headers_of,
    inner_span,
    is_tracing,
    is_written_by_opentelemetry,
    mark_failed,
    root_span,
    set_attributes,
)

PUBLISH = "queue.publish"


class AddSpans(AddWatcher):
    """A span `queue.publish` for each add within a trace."""

    def __init__(self, *, propagate: bool) -> None:
        self._propagate = propagate

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        """Start the span, and put its trace into the payloads."""
        if not sentry_sdk.is_initialized():
            return specs, None
        tasks = {spec.task_identifier for spec in specs}
        task = next(iter(tasks)) if len(tasks) == 1 else None
        span = detached_span(task or "add jobs", PUBLISH)
        if span is not None:
            set_attributes(
                span,
                {
                    "messaging.system": "graphile_worker",
                    "messaging.destination.name": task,
                    "messaging.batch.message_count": len(specs) if len(specs) > 1 else None,
                },
            )
        # A recurring job is added outside any trace: each run is a trace of its own.
        if (
            not self._propagate
            or (span is None and isinstance(specs[0], CronJob))
            or is_written_by_opentelemetry()
        ):
            return specs, span
        trace = current_trace(span)
        if trace is None:
            return specs, span
        return [_carrying(spec, trace) for spec in specs], span

    def after(self, state: Any, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        """End the span."""
        if state is None:
            return
        if error is not None:
            mark_failed(state)
        elif jobs is not None and len(jobs) == 1:
            set_attributes(state, {"messaging.message.id": str(jobs[0].id)})
        end_span(state)


def _carrying(spec: JobSpec, trace: str) -> JobSpec:
    payload = encode(spec.payload)
    changed = with_trace(payload, trace)
    return spec if changed == payload else spec._with_json(changed)


TRANSACTION = "queue.task.graphile_worker"
PROCESS = "queue.process"


class JobScope:
    """An isolation scope with the job's tags, and in it a transaction with a span. Never raises."""

    def __init__(self, job: Job, hooks: Hooks, *, propagate: bool, payloads: bool | None) -> None:
        self._job = job
        self._hooks = hooks
        self._propagate = propagate
        self._payloads = payloads
        self._stack = ExitStack()
        self._spans: list[Any] = []

    def __enter__(self) -> Self:
        with guarded():
            scope = self._stack.enter_context(sentry_sdk.isolation_scope())
            scope.clear_breadcrumbs()
            self._describe(scope)
            headers = headers_of(self._job) if self._propagate else {}
            if not is_tracing():
                continue_trace(headers)
                return self
            sampling = {"graphile_worker_job": self._about()}
            task = self._job.task_identifier
            root = self._stack.enter_context(root_span(task, TRANSACTION, headers, sampling))
            self._spans.append(root)
            span = self._stack.enter_context(inner_span(task, PROCESS, self._attributes()))
            self._spans.append(span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with guarded():
            self._stack.close()

    @property
    def span(self) -> Any | None:
        """The span in which the task runs."""
        return self._spans[-1] if self._spans else None

    def failed(self) -> None:
        """The attempt has failed."""
        for span in self._spans:
            mark_failed(span)

    def _describe(self, scope: Any) -> None:
        job = self._job
        scope.set_tag("graphile_worker.task", job.task_identifier)
        scope.set_tag("graphile_worker.job_id", str(job.id))
        scope.set_tag("graphile_worker.attempt", str(job.attempts))
        about = self._about() | {
            "job_key": job.key,
            "priority": job.priority,
            "run_at": job.run_at.isoformat(),
            "failed_attempts": job.attempts - 1,
        }
        if _collects_payloads() if self._payloads is None else self._payloads:
            payload = msgspec.json.decode(without_trace(job.raw_payload))
            about["payload"] = self._hooks.redacted("payload", job.task_identifier, payload)
        scope.set_context("graphile_worker", about)
        if job.attempts > 1 and job.last_error:
            text = self._hooks.redacted("error", job.task_identifier, job.last_error)
            message = f"attempt {job.attempts - 1} failed: {text.partition(chr(10))[0]}"
            scope.add_breadcrumb(category="graphile_worker", level="error", message=message)

    def _about(self) -> dict[str, Any]:
        job = self._job
        return {
            "task": job.task_identifier,
            "job_id": job.id,
            "attempt": job.attempts,
            "max_attempts": job.max_attempts,
        }

    def _attributes(self) -> dict[str, Any]:
        job = self._job
        waited = max(0.0, SystemClock().now().timestamp() - job.raw_run_at)
        return {
            "messaging.system": "graphile_worker",
            "messaging.destination.name": job.task_identifier,
            "messaging.message.id": str(job.id),
            "messaging.message.retry.count": job.attempts - 1,
            "messaging.message.receive.latency": round(waited * 1000, 3),
        }


def _collects_payloads() -> bool:
    """Whether the SDK is told to send what queues carry."""
    collection = sentry_sdk.get_client().options.get("data_collection")
    if isinstance(collection, dict) and "queues" in collection:
        return bool(collection["queues"])
    return should_send_default_pii()

"""Spans of adds, and the trace that added jobs carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sentry_sdk

from ...hooks import AddWatcher
from ...values.job import Job
from ...values.payload import encode, with_trace
from ...values.spec import CronJob, JobSpec
from .modes import (
    current_trace,
    detached_span,
    end_span,
    is_written_by_opentelemetry,
    mark_failed,
    set_attributes,
)

OP = "queue.publish"


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
        span = detached_span(task or "add jobs", OP)
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

"""What `@task(on_failure=…)` names: a task of which a job is added when a job has failed permanently."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from .errors import InvalidArgumentError
from .job import Job
from .payload import encode
from .spec import JobSpec
from .trace_member import traces_in, with_trace, without_trace

logger = logging.getLogger("graphile_worker.worker")


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job that was added by `on_failure`: the job that failed permanently."""

    job_id: int
    task_identifier: str
    payload: Any
    """Of a batch job, only the items that failed."""
    error: str
    """Its `last_error`."""
    attempts: int
    max_attempts: int
    key: str | None
    created_at: datetime


class FailureHandler(msgspec.Struct, frozen=True):
    """The task that is told of permanent failures, and the options of its jobs."""

    identifier: str
    options: Mapping[str, Any]
    queue_name_for: Callable[[Any], str | None] | None = None

    def spec(self, job: Job, error: str, payload: str | None = None) -> JobSpec:
        """The job to add for a failed job; `payload`: what is left of its own, as JSON text."""
        raw = job.raw_payload if payload is None else payload
        failed = FailedJob(
            job_id=job.id,
            task_identifier=job.task_identifier,
            payload=msgspec.Raw(without_trace(raw)),
            error=error,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            key=job.key,
            created_at=job.created_at,
        )
        try:
            options = self.options
            if self.queue_name_for is not None:
                options = {**options, "queue_name": self.queue_name_for(failed)}
            return _traced(JobSpec(self.identifier, failed, **options), raw)
        except InvalidArgumentError as error:  # must not keep the failure from being written
            logger.error(
                "the job of %r for the failed job %d is added without its queue and unique: %s",
                self.identifier,
                job.id,
                error,
            )
            options = {name: value for name, value in self.options.items() if name != "unique"}
            return _traced(JobSpec(self.identifier, failed, **options), raw)


def _traced(spec: JobSpec, raw: str) -> JobSpec:
    """The job with the trace of the failed one; of a batch job, with that of its first item."""
    traces = traces_in(raw)
    if not traces:
        return spec
    return spec._with_json(with_trace(encode(spec.payload), msgspec.json.encode(traces[0]).decode()))

"""What `@task(on_failure=…)` names: a task of which a job is added when a job has failed permanently."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from .errors import InvalidArgumentError
from .job import Job
from .spec import JobSpec

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
        failed = FailedJob(
            job_id=job.id,
            task_identifier=job.task_identifier,
            payload=msgspec.Raw((job.raw_payload if payload is None else payload).encode()),
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
            return JobSpec(self.identifier, failed, **options)
        except InvalidArgumentError as error:  # must not keep the failure from being written
            logger.error(
                "the job of %r for the failed job %d is added without its queue and unique: %s",
                self.identifier,
                job.id,
                error,
            )
            options = {name: value for name, value in self.options.items() if name != "unique"}
            return JobSpec(self.identifier, failed, **options)

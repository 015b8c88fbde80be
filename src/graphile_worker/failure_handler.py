"""What `@task(on_failure=…)` names: a task of which a job is added when a job has failed permanently."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from .job import Job
from .spec import JobSpec


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
        return JobSpec(self.identifier, failed, **self.options)

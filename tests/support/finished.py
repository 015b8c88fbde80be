"""Jobs and outcomes as plain values, for tests without a server."""

from __future__ import annotations

from graphile_worker.values.job import Job
from graphile_worker.values.outcome import Finished, Outcome


def a_job(job_id: int = 1, *, queue: int | None = None, payload: str = "{}") -> Job:
    """A job of the task `step`, locked by the pool `pool-1`."""
    return Job(
        id=job_id,
        raw_payload=payload,
        priority=0,
        raw_run_at=0.0,
        attempts=1,
        max_attempts=25,
        last_error=None,
        raw_created_at=None,
        raw_updated_at=None,
        key=None,
        raw_locked_at=0.0,
        revision=0,
        raw_flags=None,
        task_id=1,
        job_queue_id=queue,
        locked_by="pool-1",
        task_identifier="step",
    )


def finished(outcome: Outcome, job_id: int = 1, *, queue: int | None = None) -> Finished:
    """A job with its outcome."""
    return Finished(a_job(job_id, queue=queue), outcome, "worker-1", 0.001)

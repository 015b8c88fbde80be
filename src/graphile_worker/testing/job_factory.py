"""A Job without a database, for tests of functions that take one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..values.job import Job
from ..values.payload import encode


def make_job(
    task_identifier: str = "task",
    payload: Any = None,
    *,
    id: int = 1,
    priority: int = 0,
    run_at: datetime | None = None,
    attempts: int = 1,
    max_attempts: int = 25,
    last_error: str | None = None,
    created_at: datetime | None = None,
    updated_at: datetime | None = None,
    key: str | None = None,
    locked_at: datetime | None = None,
    locked_by: str | None = None,
    revision: int = 0,
    flags: Collection[str] | None = None,
    task_id: int = 1,
    job_queue_id: int | None = None,
) -> Job:
    """A job as a task would get it on its first attempt; times default to now."""
    now = datetime.now(UTC)
    return Job(
        id=id,
        raw_payload=encode(payload),
        priority=priority,
        raw_run_at=(run_at or now).timestamp(),
        attempts=attempts,
        max_attempts=max_attempts,
        last_error=last_error,
        raw_created_at=(created_at or now).timestamp(),
        raw_updated_at=(updated_at or created_at or now).timestamp(),
        key=key,
        raw_locked_at=None if locked_at is None else locked_at.timestamp(),
        revision=revision,
        raw_flags=None if flags is None else msgspec.json.encode(dict.fromkeys(flags, True)).decode(),
        task_id=task_id,
        job_queue_id=job_queue_id,
        locked_by=locked_by,
        task_identifier=task_identifier,
    )

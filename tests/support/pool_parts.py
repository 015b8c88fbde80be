"""What parts of a pool need of it, for tests that have no pool."""

from __future__ import annotations

from typing import Any

from graphile_worker.hooks import Events
from graphile_worker.values.clock import Clock, SystemClock
from graphile_worker.values.job import Job
from graphile_worker.values.options import WorkerOptions
from graphile_worker.worker.context import PoolContext


class RecordingOwner:
    """Records what parts report to their pool."""

    is_stopping = sees_cancelled_jobs = is_listening = False

    def __init__(self) -> None:
        self.deaths: list[BaseException] = []
        self.failures: list[BaseException] = []
        self.taken: list[Job] = []
        self.schema_changes = 0

    def begin_shutdown(self, message: str) -> None:
        self.is_stopping = True

    def set_concurrency(self, lane: str, concurrency: int) -> None:
        raise NotImplementedError

    def die(self, error: BaseException, action: str) -> None:
        self.deaths.append(error)

    def fetch_failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def write_failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def jobs_taken(self, jobs: list[Job]) -> None:
        self.taken += jobs

    def schema_changed(self) -> None:
        self.schema_changes += 1


def pool_context(
    pool_id: str = "pool-1",
    *,
    events: Events | None = None,
    clock: Clock | None = None,
    owner: RecordingOwner | None = None,
    **options: Any,
) -> PoolContext:
    """The context of a part whose pool does not exist."""
    return PoolContext(
        pool_id=pool_id,
        options=WorkerOptions.from_mapping(options),
        events=events or Events(),
        clock=clock or SystemClock(),
        owner=owner or RecordingOwner(),
    )

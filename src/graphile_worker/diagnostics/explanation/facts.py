"""The facts for an explanation: a few cheap statements, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.control import list_requests
from ...database.statements.inspection import JobDetails, ReadyTask
from ...database.statements.limits import LimitSummary, list_limits
from ...database.statements.manage_jobs import cancel_reasons
from ...database.statements.pauses import pauses_if_readable
from ...history.statistics import read_statistics
from ...recovery.registry.workers import WorkerList, WorkerSummary, has_other_runtimes, list_workers
from ...values.job import Pause
from ...values.schema_name import SchemaName

COUNTED = 1_000
"""Jobs in line that are counted."""
LATELY = timedelta(minutes=15)
FEWEST_RUNS = 20
"""Runs in a day from which on it is known how long a task usually takes."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The named queue of jobs, with the tracks of a wide one."""

    name: str
    holders: list[tuple[str, float | None]]
    """Who holds the queue or a track of it, and for how many seconds, if that is known."""
    concurrency: int = 1
    running: list[tuple[int, str]] = field(default_factory=list)
    """Ids of jobs of the queue that workers report as running, and their pools."""

    @property
    def is_full(self) -> bool:
        return len(self.holders) >= self.concurrency


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What is known about workers and about what operators asked for; the same for all jobs."""

    workers: list[WorkerSummary] | None = None
    """Registered Python pools; None if they cannot be read."""
    has_others: bool = False
    """Whether workers of other runtimes may be running."""
    others: Sequence[WorkerSummary] = ()
    """Those that are known: they send heartbeats, or have jobs locked."""
    paused: frozenset[str] = frozenset()
    """Pools that were asked to stop or to fetch nothing."""
    pauses: Sequence[Pause] = ()
    limits: Sequence[LimitSummary] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFacts:
    """What is known about ready jobs: those of a task, or one."""

    task: str
    now: datetime
    waited: float
    """Seconds since the first of them could have run."""
    pools: PoolFacts
    queue_name: str | None = None
    queue: QueueFacts | None = None
    flags: Sequence[str] | None = ()
    """Those of the first of them; None if that is not known."""
    ahead: int | None = None
    """Ready jobs before it in line; at least `COUNTED` are not counted further."""
    rate: float | None = None
    """Jobs per second that were finished lately."""

    @classmethod
    def of_task(cls, ready: ReadyTask, pools: PoolFacts, now: datetime, *, fresh: float) -> ReadyFacts:
        """Those of a task. If the ones outside of locked queues are `fresh`, the others are what waits."""
        in_queue = ready.free_age is None or ready.free_age < fresh
        name = ready.queue_name if in_queue else None
        return ReadyFacts(
            task=ready.task_identifier, now=now, pools=pools, queue_name=name,
            waited=ready.age if in_queue else ready.free_age or 0.0,
            queue=None if name is None else QueueFacts(name, [(ready.locked_by or "", None)]),
            flags=None if in_queue else ready.flags,
        )  # fmt: skip

    @property
    def able(self) -> list[WorkerSummary]:
        """Pools that are alive and have the task."""
        return [pool for pool in self.pools.workers or () if pool.can_run(self.task)]

    @property
    def limits(self) -> list[LimitSummary]:
        """Those of the task."""
        return [limit for limit in self.pools.limits if self.task in limit.tasks]

    @property
    def is_one(self) -> bool:
        """Whether it is about one job."""
        return False

    def since(self, at: datetime | None) -> float:
        return 0.0 if at is None else max(0.0, (self.now - at).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts(ReadyFacts):
    """What is known about one job, in any state."""

    job: JobDetails
    usual: float | None = None
    """Seconds that 95 % of the runs of this task do not exceed."""
    is_cancelled: bool = False

    @classmethod
    def of(cls, job: JobDetails, now: datetime, pools: PoolFacts | None = None, **more: Any) -> Self:
        """The facts that are in the job, and `more`."""
        return cls(
            job=job, now=now, pools=PoolFacts() if pools is None else pools, task=job.task_identifier,
            waited=max(0.0, (now - ready_since(job)).total_seconds()), queue_name=job.queue_name,
            flags=sorted(job.flags or ()), **more,
        )  # fmt: skip

    @property
    def is_one(self) -> bool:
        return True

    @property
    def holder(self) -> WorkerSummary | None:
        return next((pool for pool in self.pools.workers or () if pool.id == self.job.locked_by), None)


def ready_since(job: JobDetails) -> datetime:
    """Since when it could have run."""
    return max(job.run_at, job.created_at)


# -- reading -----------------------------------------------------------------------------------------------


async def gather(connection: Connection, schema: SchemaName, job: JobDetails) -> JobFacts:
    """Everything that a decision about this job may need, and no more."""
    now = datetime.now(UTC)
    is_locked, is_ready = job.state == "running", job.state == "ready"
    pools, workers = PoolFacts(), None
    if is_locked or is_ready:
        workers = await if_readable(connection, lambda: list_workers(connection, schema))
        pauses = [] if is_locked else await pauses_if_readable(connection, schema)
        pools = await gather_pools(connection, schema, workers, pauses, limits=is_ready)
    elif job.state == "scheduled":
        pools = PoolFacts(pauses=await pauses_if_readable(connection, schema))
    is_cancelled = False
    if job.state in ("running", "failed"):
        reasons = await if_readable(connection, lambda: cancel_reasons(connection, schema, [job.id]))
        is_cancelled = job.id in (reasons or {})
    rate, usual = await _pace(connection, schema, job, now) if is_locked or is_ready else (None, None)
    return JobFacts.of(
        job, now, pools, rate=rate, usual=usual, is_cancelled=is_cancelled,
        queue=await _queue(connection, schema, job, workers, now) if is_ready else None,
        ahead=await _ahead(connection, schema, job) if is_ready else None,
    )  # fmt: skip


async def gather_pools(
    connection: Connection,
    schema: SchemaName,
    workers: WorkerList | None,
    pauses: Sequence[Pause],
    *,
    limits: bool = True,
) -> PoolFacts:
    """What all ready jobs have in common; `workers` are None if they cannot be read."""
    if workers is None:
        return PoolFacts(pauses=pauses)
    others = await if_readable(connection, lambda: has_other_runtimes(connection, schema, workers))
    requests = await if_readable(connection, lambda: list_requests(connection, schema))
    found = await if_readable(connection, lambda: list_limits(connection, schema)) if limits else None
    return PoolFacts(
        workers=[pool for pool in workers if pool.is_registered],
        has_others=bool(others),
        others=[pool for pool in workers if not pool.is_registered],
        paused=frozenset(request.worker_id for request in requests or ()),
        pauses=pauses,
        limits=found or (),
    )


async def _queue(
    connection: Connection, schema: SchemaName, job: JobDetails, workers: WorkerList | None, now: datetime
) -> QueueFacts | None:
    if job.job_queue_id is None:
        return None
    rows = await connection.fetch(load("admin/queue_of_job", schema), job.job_queue_id)
    if not rows:
        return None
    holders: list[tuple[str, float | None]] = [
        (row["locked_by"], max(0.0, now.timestamp() - row["locked_at"]))
        for row in rows
        if row["locked_at"] is not None
    ]
    running: list[tuple[int, str]] = []
    held_by = {holder for holder, _ in holders}
    ids = [one for pool in workers or () if pool.id in held_by for one in pool.job_ids]
    if ids:
        name = rows[0]["name"]
        found = await connection.fetch(load("admin/find_these", schema), ids, 0)
        running = [
            (row["id"], row["locked_by"])
            for row in reversed(found)
            if row["queue"] == name and row["locked_by"] in held_by
        ]
    return QueueFacts(rows[0]["name"], holders, len(rows), running)


async def _ahead(connection: Connection, schema: SchemaName, job: JobDetails) -> int:
    row: Any = await connection.fetchrow(
        load("admin/jobs_ahead", schema), job.priority, job.raw_run_at, job.id, COUNTED, job.task_id
    )
    return int(row["jobs"])


async def _pace(
    connection: Connection, schema: SchemaName, job: JobDetails, now: datetime
) -> tuple[float | None, float | None]:
    """Jobs per second lately, and what 95 % of the runs of this task do not exceed."""

    async def read() -> tuple[float | None, float | None]:
        everything = await read_statistics(connection, schema, since=now - LATELY, until=None, now=now)
        day = await read_statistics(
            connection, schema, since=now - timedelta(days=1), until=None, now=now,
            task_identifier=job.task_identifier,
        )  # fmt: skip
        finished = sum(one.attempts for one in everything)
        rate = finished / LATELY.total_seconds() if finished else None
        return rate, day[0].run_percentile(0.95) if day and day[0].attempts >= FEWEST_RUNS else None

    return await if_readable(connection, read) or (None, None)

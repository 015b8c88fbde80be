"""Facts about the server, the schema and the jobs, for the doctor: read-only, and cheap with a million jobs.

Nothing is judged here. Locks of other runtimes and stuck queues can only be found by a scan of the jobs
table, because no index leads to locked jobs: the caller decides whether to scan. Everything else uses an
index or a sample of a large table.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import if_readable
from ..database.sql import load
from ..database.statements.inspection import READ_JOBS, ReadyTask, ready_tasks
from ..recovery.registry.workers import WorkerList, list_workers
from ..values.job import Pause
from ..values.schema_name import SchemaName
from .explanation.facts import PoolFacts, gather_pools

NAMED_JOBS = 200


class Depth(msgspec.Struct, frozen=True):
    """How much the checks may read. The dashboard, which asks more often than a person, reads less."""

    listed_failures: int = 10_000
    """Up to this number, failed jobs are counted through their index; beyond it by a sample of the table."""
    counted_pages: int = 2000
    """A table up to this size is counted in full."""
    sampled_pages: int = 1000
    """Pages of a larger one that are read."""
    waiting_queues: int | None = None
    """Named queues with waiting jobs that are looked at; None for all."""
    ready_jobs: int = READ_JOBS
    """Ready jobs of each priority that are looked at."""


class Fact(msgspec.Struct, frozen=True):
    """One row of a statement; its fields are the columns."""

    statement: ClassVar[str]

    @classmethod
    async def load(cls, connection: Connection, schema: SchemaName, *values: Any) -> list[Self]:
        """Run the statement; `values` are its parameters."""
        rows = await connection.fetch(load(f"diagnose/{cls.statement}", schema), *values)
        return [cls(**dict(row.items())) for row in rows]

    @classmethod
    async def load_one(cls, connection: Connection, schema: SchemaName | None = None, *values: Any) -> Self:
        """The same for a statement that has one row."""
        (found,) = await cls.load(connection, schema or SchemaName(), *values)
        return found


class ServerFacts(Fact, frozen=True):
    statement = "server"
    server_version: int
    version: str
    role: str
    database: str
    is_superuser: bool
    is_standby: bool
    is_read_only: bool
    isolation: str
    idle_session_timeout: float | None
    autovacuum: bool
    track_counts: bool
    fsync: bool
    full_page_writes: bool
    connections: int
    max_connections: int
    notification_queue: float
    schemas: list[str]
    """The schemas of search_path that exist, in order."""


class Moment(Fact, frozen=True):
    """The server's clock in seconds since 1970, and the process id of the session."""

    statement = "moment"
    at: float
    pid: int


class TableRights(Fact, frozen=True):
    """What the connected role may do with one table of the schema."""

    statement = "rights"
    name: str
    owner: str
    may_enter: bool
    may_create: bool
    may_use: bool
    row_security: bool


class FunctionFacts(Fact, frozen=True):
    statement = "functions"
    name: str
    owner: str
    body: str
    may_execute: bool


class IndexFacts(Fact, frozen=True):
    statement = "indexes"
    name: str
    table_name: str
    is_valid: bool


class SequenceFacts(Fact, frozen=True):
    """The used share of an identity column's numbers, from 0 to 1."""

    statement = "sequences"
    name: str
    used: float


class LockHolder(Fact, frozen=True):
    """A worker pool that has jobs."""

    statement = "locks"
    locked_by: str | None
    jobs: int | None
    """None if the pool runs a version that does not report them."""
    age: float | None
    """Seconds since its oldest lock was taken, or since its oldest running job started."""
    is_alive: bool | None = None


class StuckQueue(Fact, frozen=True):
    """A queue that is locked although none of its jobs is."""

    statement = "queues"
    queue_name: str
    locked_by: str | None
    age: float


class LostQueue(Fact, frozen=True):
    """A queue with waiting jobs but without a row, and the next of these jobs."""

    statement = "lost_queues"
    job_queue_id: int
    job_id: int
    task_identifier: str


class FailedTask(Fact, frozen=True):
    """Permanently failed jobs of one task."""

    statement = "failures"
    task_identifier: str
    jobs: int
    last_error: str | None


class SampledFailedTask(FailedTask, frozen=True):
    """The same in a sample of the table, as counted."""

    statement = "failures_in_part"


class TaskOfJob(Fact, frozen=True):
    statement = "job_tasks"
    id: int
    task_identifier: str


class TableFacts(Fact, frozen=True):
    """Size and maintenance of the jobs table."""

    statement = "table"
    live: int
    dead: int
    table_bytes: int
    index_bytes: int
    row_bytes: int | None
    changes: int
    vacuumed_ago: float | None
    analysed_ago: float | None
    settings: list[str]


class OldTransaction(Fact, frozen=True):
    """Something that keeps vacuum from removing dead rows."""

    statement = "transactions"
    kind: str
    name: str
    what: str | None
    age: float | None


class SilentJobs(msgspec.Struct, frozen=True):
    """The jobs of a pool that misses heartbeats, as `task (job 17)`."""

    jobs: list[str]
    is_reported: bool
    """Whether it reported them as running; else they are just locked."""


class Locks(msgspec.Struct, frozen=True):
    """Pools that have jobs."""

    holders: list[LockHolder]
    workers: WorkerList | None
    """All pools; None if the table of workers is missing."""
    silent: dict[str, SilentJobs] = {}
    """Jobs of pools that miss heartbeats, by pool id."""
    last_work: float | None = None
    """Seconds since a Python worker last counted an attempt; None if none ever did, or that is not known."""
    schedules: int = 0
    """Recurring jobs that are known."""


class Waiting(msgspec.Struct, frozen=True):
    """Tasks with ready jobs, and what is known about workers."""

    ready: list[ReadyTask]
    pools: PoolFacts


class FailureFacts(msgspec.Struct, frozen=True):
    """All permanently failed jobs; in a large table the numbers are extrapolated from a sample."""

    tasks: list[FailedTask]
    is_estimate: bool

    @property
    def jobs(self) -> int:
        return sum(task.jobs for task in self.tasks)


class JobsOutsideLimit(Fact, frozen=True):
    """Jobs of a limited task in a pool that does not keep limits; none of them if `jobs` is 0."""

    statement = "jobs_outside_limits"
    limit_name: str
    task_identifier: str | None
    locked_by: str | None
    jobs: int


async def locks(connection: Connection, schema: SchemaName, *, has_workers: bool, scan: bool) -> Locks:
    """Who has jobs: from the pools' own reports, or by a scan of the jobs table.

    `has_workers`: whether the table of workers exists.
    """
    if not has_workers:
        return Locks(await LockHolder.load(connection, schema) if scan else [], None)
    async with connection.transaction():
        await connection.fetchrow(load("diagnose/plain_plans"))
        workers = await list_workers(connection, schema, scan=scan)
    now = (await Moment.load_one(connection)).at
    holders = [
        LockHolder(
            locked_by=worker.id,
            jobs=worker.jobs_held,
            age=now - worker.locked_since.timestamp() if worker.locked_since is not None else None,
            is_alive=worker.is_alive,
        )
        for worker in workers
        if worker.jobs_held != 0 and (worker.is_registered or worker.job_ids)
    ]
    silent = await _jobs_of_silent(connection, schema, workers)
    if any(worker.is_alive is not False for worker in workers):
        return Locks(holders, workers, silent)
    last = await if_readable(connection, lambda: connection.fetchrow(load("diagnose/past_work", schema)))
    return (
        Locks(holders, workers, silent, last["last_work"], last["schedules"])
        if last
        else Locks(holders, workers, silent)
    )


async def _jobs_of_silent(
    connection: Connection, schema: SchemaName, workers: WorkerList
) -> dict[str, SilentJobs]:
    ids = {
        worker.id: [job.id for job in worker.running or ()] or worker.job_ids[:NAMED_JOBS]
        for worker in workers
        if worker.silent_for is not None
    }
    wanted = [job_id for of_pool in ids.values() for job_id in of_pool]
    if not wanted:
        return {}
    teach_arrays(connection)
    names = {job.id: job.task_identifier for job in await TaskOfJob.load(connection, schema, wanted)}
    return {
        worker.id: SilentJobs(jobs, is_reported=bool(worker.running))
        for worker in workers
        if (jobs := [f"{names[one]} (job {one})" for one in ids.get(worker.id, ()) if one in names])
    }


async def failures(
    connection: Connection,
    schema: SchemaName,
    pages: int,
    *,
    has_index: bool = False,
    depth: Depth = Depth(),  # noqa: B008 -- frozen
) -> FailureFacts:
    """Permanently failed jobs; `pages` is the size of the jobs table, `has_index` if they have an index."""
    if has_index:
        tasks = await FailedTask.load(connection, schema, depth.listed_failures)
        found = FailureFacts(tasks, is_estimate=False)
        if found.jobs < depth.listed_failures:
            return found
    percentage = 100.0 if pages <= depth.counted_pages else 100.0 * depth.sampled_pages / pages
    sampled = await SampledFailedTask.load(connection, schema, percentage)
    tasks = [
        FailedTask(task.task_identifier, round(task.jobs * 100 / percentage), task.last_error)
        for task in sampled
    ]
    return FailureFacts(tasks, is_estimate=percentage < 100)


async def waiting(
    connection: Connection,
    schema: SchemaName,
    workers: WorkerList | None,
    pauses: list[Pause],
    *,
    ready_jobs: int = READ_JOBS,
) -> Waiting:
    """Tasks with ready jobs, and what may keep workers from them; `workers` are None if not known."""
    ready = await ready_tasks(connection, schema, limit=ready_jobs)
    return Waiting(ready, await gather_pools(connection, schema, workers, pauses) if ready else PoolFacts())

"""The table of worker pools: registration, heartbeats, which pools are alive, and their tasks.

Python pools register their tasks. Pools of other runtimes do not, nor do Python workers without recovery.
What is known of them comes from the Rust port's table of workers and from the jobs that they have locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection, Row
from ...database.connections.encoding import teach_arrays
from ...database.sql import load as sql
from ...errors import InvalidArgumentError
from ...values.flags import FlagDescription
from ...values.job import instant, optional_instant
from ...values.schema_name import SchemaName
from ...values.text import duration
from .load import Load
from .pool_state import (
    BlockedLoop,
    ExecutorPlace,
    LaneDescription,
    decode_blockage,
    decode_list,
    decode_reported,
    decode_state,
)

UNAVAILABLE = (sqlstates.UNDEFINED_TABLE, sqlstates.INVALID_SCHEMA_NAME, sqlstates.INSUFFICIENT_PRIVILEGE)
"""The schema's owner has not run this version's migration, or this role may not use the table."""

Liveness = Literal["lock", "heartbeat"]
Condition = Literal["alive", "late", "dead", "unknown"]
Runtime = Literal["Python", "Node", "Rust", "unknown"]

SCANNED_PAGES = 1000
"""Up to this size of the jobs table, `list_workers` scans it for locked jobs."""
RUST_PREFIX = "graphile_worker_"
POOL_PREFIXES = ("pool-", "otpool-")
"""How the ids of pools begin, in Node and here."""
FOREIGN_SILENCE = 90.0
"""Seconds without a heartbeat after which a Rust worker is late: it sends one every 30 seconds."""
LISTED_FOREIGN = 500
"""Workers of the Rust port's table that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a worker pool registers about itself."""

    id: str
    host: str
    pid: int
    version: str
    tasks: Sequence[str]
    concurrency: int
    heartbeat_interval: float
    grace: float


JobId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class JobReport(NamedTuple):
    """What a pool has and runs, as sent with a heartbeat."""

    jobs_held: int
    running: dict[int, float]
    """Job id to start time, by `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a pool is running."""

    id: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """A worker pool. For pools of other runtimes most fields are None: they do not register here."""

    id: str
    """The value of `locked_by` in its jobs."""
    runtime: Runtime = "Python"
    """Of a pool that is not registered it is told by the form of its id."""
    host: str | None
    pid: int | None
    version: str | None
    tasks: list[str] | None
    concurrency: int | None
    """The number of slots of all lanes now."""
    liveness: Liveness | None
    """What proves it alive: an advisory lock or, behind a pooler, fresh heartbeats."""
    started_at: datetime | None
    last_seen_at: datetime | None
    is_alive: bool | None
    dead_in: float | None
    """Seconds until an unreachable pool is declared dead; 0 if it is dead, None if it is alive."""
    silent_for: float | None = None
    """Seconds since its last heartbeat, if that is too long; a blocked event loop can cause that."""
    stalled_for: float | None = None
    """Seconds for which it has fetched no jobs although slots are free, if that is too long."""
    blocked: BlockedLoop | None = None
    """What blocks its event loop, as of `last_seen_at`; only a pool with a connection string reports it."""
    jobs_held: int | None
    """How many jobs it has, locked or in held batches: running or prefetched. None if unknown."""
    running: list[RunningJob] | None
    """What it runs, the longest-running first, as of `last_seen_at`; the first 200. None if not reported."""
    job_ids: list[int]
    """Ids of the jobs it has locked; without a scan of the jobs table, only of those in `running`."""
    app_version: str | None = None
    """Of the application, as the worker was told."""
    lanes: list[LaneDescription] | None = None
    """None if it does not say."""
    flag_rules: FlagDescription | None = None
    """Which jobs it takes by their flags; None if it does not say."""
    is_listening: bool | None = None
    """Whether notifications reach it; if not, it finds jobs by polling. None if it does not say."""
    clock: float | None = None
    """Seconds that its clock is ahead of the server's; None if it does not say."""
    executors: list[ExecutorPlace] | None = None
    """Processes and machines that run tasks for it, as of `last_seen_at`; None if it uses no executor."""
    load: Load | None = None
    """Memory and processor time of its process, as of `last_seen_at`; None if it does not say."""
    locked_since: datetime | None
    """When its oldest lock was taken or renewed; without a scan, when its oldest running job started."""

    @property
    def is_registered(self) -> bool:
        """Whether it is a Python pool that registered, so that it is known whether it is alive."""
        return self.is_alive is not None

    @property
    def is_dead(self) -> bool:
        """Whether it is certainly dead; before that, it may come back."""
        return self.is_alive is False and not self.dead_in

    def can_run(self, task_identifier: str) -> bool:
        """Whether it is alive and has the task."""
        return bool(self.is_alive) and task_identifier in (self.tasks or ())


class WorkerList(list[WorkerSummary]):
    """Worker pools, our own first."""

    def __init__(self, workers: Sequence[WorkerSummary], *, is_complete: bool) -> None:
        super().__init__(workers)
        self.is_complete = is_complete
        """Whether the jobs table was scanned, so that pools of other runtimes are included."""


@dataclass(frozen=True, slots=True)
class UnreachablePool:
    """A pool that missed its heartbeats, and whether this sweep noticed first."""

    id: str
    dead_in: float
    """Seconds until it is declared dead; not positive if it is dead."""
    is_new: bool
    grace: float = 0.0
    """How long it may be unreachable before it is declared dead."""
    is_silent: bool = False
    """Only its heartbeats are missing: nothing shows that its connection is lost."""


async def add_worker_tasks(
    connection: Connection, schema: SchemaName, pool_id: str, identifiers: Sequence[str]
) -> None:
    """Note that the pool has further tasks, if it is registered."""
    await connection.execute(sql("recovery/add_worker_tasks", schema), pool_id, list(identifiers))


async def send_heartbeat(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    liveness: Liveness,
    backend_pid: int | None,
    report: tuple[int, list[int], list[float]] | None,
    load: Load | None,
    timeout: float,
) -> tuple[int, float] | None:
    """Return the session's process id and the server's time, or None if the pool was declared dead.

    `report`: the number of jobs that it has, ids of running jobs, and the seconds since each was started;
    None if it is the same as in the last heartbeat. `load`: None if the table has no column for it, nor for
    the report.
    """
    values: tuple[Any, ...] = (pool_id, liveness, backend_pid)
    statement = sql("recovery/heartbeat", schema)
    if load is not None:
        teach_arrays(connection)
        values = (*values, msgspec.json.encode(load).decode(), *(report or ()))
        statement = sql(f"recovery/heartbeat_with_{'load' if report is None else 'jobs'}", schema)
    row = await connection.fetchrow(statement, *values, timeout=timeout)
    return None if row is None else (row["pid"], row["server_time"])


# -- the lock ----------------------------------------------------------------------------------------------


async def begin_heartbeats(
    connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float
) -> bool | None:
    """Take the pool's lock for this session, which is tuned for it; return whether the lock was free.

    None if the session is not the server's own, so that it cannot keep a lock: behind a pooler.
    """
    row = await connection.fetchrow(
        sql("recovery/begin_heartbeats", schema),
        *(schema.name, pool_id, connection.get_server_pid()),
        timeout=timeout,
    )
    return None if row is None else row["is_locked"]


async def lock_worker(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> bool:
    """Take the pool's lock for this session; return whether it was free."""
    statement = sql("recovery/lock_worker", schema)
    return bool(await connection.fetchval(statement, schema.name, pool_id, timeout=timeout))


async def unlock_worker(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> None:
    await connection.fetchval(sql("recovery/unlock_worker", schema), schema.name, pool_id, timeout=timeout)


async def end_old_session(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> int:
    """Terminate the session that holds the lock although its connection is lost; return how many."""
    statement = sql("recovery/end_old_worker_session", schema)
    count: int = await connection.fetchval(statement, schema.name, pool_id, timeout=timeout)
    return count


async def end_held_batches(connection: Connection, schema: SchemaName, pool_id: str) -> int:
    """Terminate the sessions in which a dead pool holds jobs; return how many there were."""
    count: int = await connection.fetchval(sql("recovery/end_held_batches", schema), schema.name, pool_id)
    return count


# -- queries -----------------------------------------------------------------------------------------------


async def mark_unreachable_workers(
    connection: Connection, schema: SchemaName, own_id: str | None
) -> list[UnreachablePool]:
    """Find unreachable pools and record since when they are. Call it inside a transaction."""
    rows = await connection.fetch(sql("recovery/mark_unreachable_workers", schema), schema.name, own_id)
    return [
        UnreachablePool(row["id"], row["remaining"], row["newly"], row["grace"], row["is_silent"])
        for row in rows
    ]


async def list_workers(
    connection: Connection, schema: SchemaName, *, scan: bool = False, heartbeats: bool = True
) -> WorkerList:
    """Registered worker pools, with the jobs that each reported.

    A small jobs table is scanned for locked jobs, which finds pools of other runtimes and exact job ids;
    `scan` does that whatever its size. `heartbeats`: also those in the Rust port's table of workers.
    """
    teach_arrays(connection)
    statement = sql("recovery/list_workers", schema)
    rows = await connection.fetch(statement, schema.name, scan, SCANNED_PAGES)
    is_complete = bool(rows and rows[0]["is_scanned"])
    summaries = {row["id"]: _summary(row, is_complete) for row in rows if row["id"] is not None}
    if heartbeats and rows and rows[0]["has_rust_register"]:
        for row in await connection.fetch(sql("recovery/rust_workers", schema), LISTED_FOREIGN):
            summaries[row["id"]] = _foreign(row, summaries.get(row["id"]), is_complete)
    return WorkerList(list(summaries.values()), is_complete=is_complete)


def _summary(row: Row, is_scanned: bool) -> WorkerSummary:
    remaining = row["remaining"]
    running = _running(row["running"])
    state = decode_state(row["state"])
    jobs_held, job_ids, locked_since = row["jobs_held"], row["job_ids"], optional_instant(row["locked_since"])
    if is_scanned:
        job_ids = sorted([*job_ids, *row["held_ids"]])
        jobs_held = len(job_ids)
    elif running:
        job_ids, locked_since = sorted(job.id for job in running), running[0].started_at
    return WorkerSummary(
        id=row["id"],
        runtime="Python" if row["is_alive"] is not None else runtime_of(row["id"]),
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        tasks=row["tasks"],
        concurrency=row["concurrency"],
        liveness=row["liveness"],
        started_at=optional_instant(row["started_at"]),
        last_seen_at=optional_instant(row["last_seen_at"]),
        is_alive=row["is_alive"],
        dead_in=None if remaining is None else max(0.0, remaining),
        silent_for=row["silent_for"],
        stalled_for=None if state.stalled_since is None else max(0.0, row["now"] - state.stalled_since),
        blocked=decode_blockage(row["blocked"], row["now"]),
        app_version=row["app_version"],
        lanes=decode_list(row["lanes"], LaneDescription),
        flag_rules=decode_reported(row["flag_rules"], FlagDescription),
        is_listening=state.is_listening,
        clock=state.clock,
        executors=state.executors,
        load=state.load,
        jobs_held=jobs_held,
        running=running,
        job_ids=job_ids,
        locked_since=locked_since,
    )


def _foreign(row: Row, locks: WorkerSummary | None, is_scanned: bool) -> WorkerSummary:
    """A worker of the Rust port's table, with the jobs that the scan found."""
    silent_for = max(0.0, row["silent_for"])
    return WorkerSummary(
        id=row["id"],
        runtime="Python" if row["id"].startswith(POOL_PREFIXES) else runtime_of(row["id"]),
        host=None,
        pid=_pid(row["metadata"]),
        version=None,
        tasks=None,
        concurrency=None,
        liveness=None,
        started_at=optional_instant(row["started_at"]),
        last_seen_at=optional_instant(row["last_seen_at"]),
        is_alive=None,
        dead_in=None,
        silent_for=silent_for if silent_for > FOREIGN_SILENCE else None,
        jobs_held=len(locks.job_ids) if locks is not None else 0 if is_scanned else None,
        running=None,
        job_ids=[] if locks is None else locks.job_ids,
        locked_since=None if locks is None else locks.locked_since,
    )


async def check_recoverable(
    connection: Connection, schema: SchemaName, worker_id: str, *, force: bool = False
) -> None:
    """Refuse to recover the jobs of a worker of this package, or of one that may be alive."""
    workers = await list_workers(connection, schema)
    worker = next((each for each in workers if each.id == worker_id), None)
    if worker is None:
        return
    if worker.is_registered:
        raise InvalidArgumentError("worker_id", f"{worker_id} is a worker of this package; sweep recovers it")
    if worker.last_seen_at is not None and worker.silent_for is None and not force:
        raise InvalidArgumentError(
            "worker_id",
            f"{worker_id} sends heartbeats, so it is alive; if its jobs were recovered, they would run twice",
        )


def runtime_of(pool_id: str) -> Runtime:
    """The runtime of a pool that is in neither table of workers, by the form of its id."""
    if pool_id.startswith(RUST_PREFIX):
        return "Rust"
    return "Node" if pool_id.startswith(POOL_PREFIXES) else "unknown"


def _pid(metadata: str | None) -> int | None:
    found = None if metadata is None else msgspec.json.decode(metadata)
    pid = found.get("pid") if isinstance(found, dict) else None
    return pid if isinstance(pid, int) and not isinstance(pid, bool) else None


def _running(reported: str | None) -> list[RunningJob] | None:
    pairs = decode_list(reported, tuple[JobId, float])
    return None if pairs is None else [RunningJob(job_id, instant(started)) for job_id, started in pairs]


# -- the Rust port's table ---------------------------------------------------------------------------------


async def may_use_rust_workers(connection: Connection, schema: SchemaName) -> bool | None:
    """Whether this role may use the Rust port's table of workers; None if there is none."""
    may_use: bool | None = await connection.fetchval(
        sql("recovery/may_use_rust_workers", schema), schema.name
    )
    return may_use


async def has_rust_workers(connection: Connection, schema: SchemaName) -> bool:
    """Whether Rust workers use this schema, as far as the database shows it."""
    if await connection.fetchval(sql("recovery/has_rust_functions", schema), schema.name):
        return True
    if not await may_use_rust_workers(connection, schema):
        return False
    return bool(await connection.fetchval(sql("recovery/has_rust_rows", schema)))


async def send_rust_heartbeat(
    connection: Connection, schema: SchemaName, pool_id: str, pid: int, *, timeout: float
) -> None:
    await connection.execute(sql("recovery/rust_heartbeat", schema), pool_id, pid, timeout=timeout)


async def deregister_rust_workers(
    connection: Connection, schema: SchemaName, pool_ids: Sequence[str]
) -> None:
    """Remove pools that have ended from the Rust port's table."""
    await connection.execute(sql("recovery/deregister_rust_workers", schema), list(pool_ids))


async def delete_old_rust_workers(connection: Connection, schema: SchemaName) -> None:
    """Remove Python pools without a heartbeat for four hours from the Rust port's table, if there is one."""
    if await may_use_rust_workers(connection, schema):
        await connection.execute(sql("recovery/delete_old_rust_workers", schema))


def condition_of(worker: WorkerSummary) -> tuple[Condition, str]:
    """How a pool is, in one word and in several."""
    if worker.is_alive is None:
        return _condition_of_foreign(worker)
    if worker.is_dead:
        return "dead", "dead; its jobs will be recovered"
    if not worker.is_alive:
        return "late", f"missed heartbeats, dead in {duration(worker.dead_in or 0.0)}"
    if worker.blocked is not None:
        return "late", f"blocked for {duration(worker.blocked.seconds)} by {worker.blocked.culprit}"
    if worker.silent_for is not None:
        return "late", f"no heartbeat for {duration(worker.silent_for)}"
    if worker.stalled_for is not None:
        return "late", f"no fetch has succeeded for {duration(worker.stalled_for)}"
    return "alive", "alive"


def _condition_of_foreign(worker: WorkerSummary) -> tuple[Condition, str]:
    if worker.silent_for is not None:
        return "late", f"no heartbeat for {duration(worker.silent_for)}"
    if worker.last_seen_at is not None:
        return "alive", "sends heartbeats"
    return "unknown", "sends no heartbeats"


class RunningTasks(msgspec.Struct, frozen=True):
    """The Python pools that are alive, and their tasks."""

    pools: list[WorkerSummary]
    tasks: frozenset[str]
    has_others: bool
    """Whether workers of other runtimes may be running."""

    @property
    def no_worker(self) -> str:
        """Those that do not have a task which is not in `tasks`, for people."""
        return "no running Python worker" if self.has_others else "no running worker"


async def running_tasks(
    connection: Connection, schema: SchemaName, workers: WorkerList | None = None
) -> RunningTasks:
    """The tasks of running workers; `workers` if they are already listed."""
    if workers is None:
        workers = await list_workers(connection, schema)
    has_others = await has_other_runtimes(connection, schema, workers)
    pools = [worker for worker in workers if worker.is_alive]
    tasks = frozenset(task for pool in pools for task in pool.tasks or ())
    return RunningTasks(pools, tasks, has_others)


async def has_other_runtimes(connection: Connection, schema: SchemaName, workers: WorkerList) -> bool:
    """Whether workers of other runtimes may be running beside these."""
    return (
        not workers.is_complete
        or any(worker.runtime != "Python" for worker in workers)
        or await has_rust_workers(connection, schema)
    )

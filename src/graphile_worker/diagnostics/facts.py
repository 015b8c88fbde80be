"""Facts about the server, the schema and the jobs, for the doctor: read only, and cheap with a million jobs.

Nothing is judged here. Only two statements read the whole jobs table: who holds locks, and which queues are
stuck. No index leads to locked jobs, because every fetch would have to pay for it. The others go through an
index, or look at a part of a large table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from ..db.connection import Connection, Row
from ..schema_name import SchemaName
from ..sql import load

T = TypeVar("T")

COUNTED_PAGES = 2000
SAMPLED_PAGES = 1000
LISTED_FAILURES = 10_000
"""Up to this number, failed jobs are counted through their index; beyond that by a part of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server and the session."""

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
    """Those of search_path that exist, in the order in which names are looked for in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRights:
    """What the connected role may do with one table of the schema."""

    name: str
    owner: str
    may_enter: bool
    may_create: bool
    may_use: bool
    row_security: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFacts:
    """One function of the schema."""

    name: str
    owner: str
    body: str
    may_execute: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """One index of the schema."""

    name: str
    table_name: str
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFacts:
    """How much of an identity column's numbers is used up, from 0 to 1."""

    name: str
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """A worker pool that holds jobs."""

    locked_by: str | None
    jobs: int
    old_jobs: int
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckQueue:
    """A queue that is locked although none of its jobs is."""

    queue_name: str
    locked_by: str | None
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LostQueue:
    """A queue that jobs wait for although it has no row, and the next of these jobs."""

    job_queue_id: int
    job_id: int
    task_identifier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTask:
    """Jobs of one task that failed for good."""

    task_identifier: str
    jobs: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """All of them; in a large table the numbers are scaled up from a part of it."""

    tasks: list[FailedTask]
    is_estimate: bool

    @property
    def jobs(self) -> int:
        return sum(task.jobs for task in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """The job that has been ready for longest."""

    task_identifier: str
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorkers:
    """Worker pools of this package: how many are in reach, and the ids of those that are not."""

    alive: int
    lost: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """Size and upkeep of the jobs table."""

    live: int
    dead: int
    table_bytes: int
    index_bytes: int
    row_bytes: int | None
    changes: int
    vacuumed_ago: float | None
    analysed_ago: float | None
    settings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldTransaction:
    """Something that keeps vacuum from removing dead rows."""

    kind: str
    name: str
    what: str | None
    age: float | None


async def server_facts(connection: Connection) -> ServerFacts:
    """What kind of server this is."""
    (row,) = await connection.fetch(load("diagnose/server"))
    return _made(ServerFacts, row)


async def moment(connection: Connection) -> tuple[float, int]:
    """The server's clock in seconds since 1970, and the process that answers."""
    (row,) = await connection.fetch(load("diagnose/moment"))
    return row["at"], row["pid"]


async def table_rights(connection: Connection, schema: SchemaName) -> list[TableRights]:
    """What the role may do with the tables."""
    rows = await connection.fetch(load("diagnose/rights", schema), schema.name)
    return [_made(TableRights, row) for row in rows]


async def function_facts(connection: Connection, schema: SchemaName) -> list[FunctionFacts]:
    """The functions, with their bodies."""
    rows = await connection.fetch(load("diagnose/functions", schema), schema.name)
    return [_made(FunctionFacts, row) for row in rows]


async def index_facts(connection: Connection, schema: SchemaName) -> list[IndexFacts]:
    """The indexes."""
    rows = await connection.fetch(load("diagnose/indexes", schema), schema.name)
    return [_made(IndexFacts, row) for row in rows]


async def sequence_facts(connection: Connection, schema: SchemaName) -> list[SequenceFacts]:
    """The sequences of identity columns."""
    rows = await connection.fetch(load("diagnose/sequences", schema), schema.name)
    return [_made(SequenceFacts, row) for row in rows]


async def lock_holders(connection: Connection, schema: SchemaName, old: float) -> list[LockHolder]:
    """Who holds jobs; `old` is the age in seconds from which a lock counts as old."""
    rows = await connection.fetch(load("diagnose/locks", schema), old)
    return [_made(LockHolder, row) for row in rows]


async def stuck_queues(connection: Connection, schema: SchemaName) -> list[StuckQueue]:
    """Queues that nobody will free."""
    rows = await connection.fetch(load("diagnose/queues", schema))
    return [_made(StuckQueue, row) for row in rows]


async def lost_queues(connection: Connection, schema: SchemaName) -> list[LostQueue]:
    """Queues without a row that jobs wait for; only where the indexes of named queues exist."""
    rows = await connection.fetch(load("diagnose/lost_queues", schema))
    return [_made(LostQueue, row) for row in rows]


async def failures(
    connection: Connection, schema: SchemaName, pages: int, *, has_index: bool = False
) -> Failures:
    """Jobs that failed permanently; `pages` is the size of the table, `has_index` if one leads to them."""
    if has_index:
        rows = await connection.fetch(load("diagnose/failures", schema), LISTED_FAILURES)
        found = Failures(tasks=[_made(FailedTask, row) for row in rows], is_estimate=False)
        if found.jobs < LISTED_FAILURES:
            return found
    percentage = 100.0 if pages <= COUNTED_PAGES else 100.0 * SAMPLED_PAGES / pages
    rows = await connection.fetch(load("diagnose/failures_in_part", schema), percentage)
    tasks = [
        FailedTask(
            task_identifier=row["task_identifier"],
            jobs=round(row["jobs"] * 100 / percentage),
            last_error=row["last_error"],
        )
        for row in rows
    ]
    return Failures(tasks=tasks, is_estimate=percentage < 100)


async def waiting_job(connection: Connection, schema: SchemaName) -> WaitingJob | None:
    """The job that has been ready for longest."""
    rows = await connection.fetch(load("diagnose/waiting", schema))
    return _made(WaitingJob, rows[0]) if rows else None


async def known_workers(connection: Connection, schema: SchemaName) -> KnownWorkers:
    """Pools of this package; only where the table of workers exists."""
    (row,) = await connection.fetch(load("diagnose/workers", schema), schema.name)
    return _made(KnownWorkers, row)


async def table_facts(connection: Connection, schema: SchemaName) -> TableFacts:
    """Size and upkeep of the jobs table."""
    (row,) = await connection.fetch(load("diagnose/table", schema), f"{schema.quoted}._private_jobs")
    return _made(TableFacts, row)


async def old_transactions(connection: Connection, schema: SchemaName, old: float) -> list[OldTransaction]:
    """What holds vacuum back for longer than `old` seconds."""
    rows = await connection.fetch(load("diagnose/transactions", schema), old)
    return [_made(OldTransaction, row) for row in rows]


def _made(cls: type[T], row: Row) -> T:
    values: dict[str, Any] = dict(row.items())
    return cls(**values)

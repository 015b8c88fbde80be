"""The table of worker pools: writing oneself down, showing signs of life, and seeing who shows none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ..db.array_types import teach_arrays
from ..db.connection import Connection, Row
from ..job import instant
from ..schema_name import SchemaName
from ..sql import load

LivenessKind = Literal["lock", "heartbeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCard:
    """What a worker pool tells about itself."""

    id: str
    host: str
    pid: int
    version: str
    tasks: Sequence[str]
    concurrency: int
    heartbeat_interval: float
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """A worker pool as others see it; what is None is not known, because it is of another runtime."""

    id: str
    """What stands in `locked_by` of its jobs."""
    host: str | None
    pid: int | None
    version: str | None
    tasks: list[str] | None
    concurrency: int | None
    liveness: LivenessKind | None
    """How its life shows: by a lock that it holds, or, behind a pooler, by heartbeats."""
    started_at: datetime | None
    last_seen_at: datetime | None
    is_alive: bool | None
    dead_in: float | None
    """Seconds until a pool that is out of reach counts as dead; 0 if it does, None if it is in reach."""
    job_ids: list[int]
    """The jobs that it has locked: those that run and those locked ahead."""
    locked_since: datetime | None
    """When the oldest of these locks was taken or renewed."""


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A pool that is out of reach: for how many seconds more that may be, and whether it is so only now."""

    id: str
    remaining: float
    newly: bool


async def register_worker(
    connection: Connection,
    schema: SchemaName,
    card: WorkerCard,
    *,
    liveness: LivenessKind,
    backend_pid: int | None = None,
    started_at: datetime | None = None,
    timeout: float | None = None,
) -> datetime:
    """Write the pool down; since when it runs by the server's clock."""
    found: datetime = await connection.fetchval(
        load("recovery/register_worker", schema),
        card.id,
        card.host,
        card.pid,
        card.version,
        list(card.tasks),
        card.concurrency,
        started_at,
        liveness,
        backend_pid,
        timedelta(seconds=card.heartbeat_interval),
        timedelta(seconds=card.grace),
        timeout=timeout,
    )
    return found


async def beat_worker(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    liveness: LivenessKind,
    backend_pid: int | None,
    timeout: float,
) -> int | None:
    """Show that the pool lives; the session's process id, or None if the pool was taken for dead."""
    statement = load("recovery/beat_worker", schema)
    pid: int | None = await connection.fetchval(statement, pool_id, liveness, backend_pid, timeout=timeout)
    return pid


async def deregister_worker(
    connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float | None = None
) -> None:
    """The pool has ended."""
    await connection.execute(load("recovery/deregister_worker", schema), pool_id, timeout=timeout)


# -- the lock ----------------------------------------------------------------------------------------------


async def is_direct(connection: Connection, schema: SchemaName, *, timeout: float) -> bool:
    """Whether the session is the server's own, so that a lock lasts as long as it does; not with a pooler."""
    pid = await connection.fetchval(load("session/backend_pid", schema), timeout=timeout)
    return bool(pid == connection.get_server_pid())


async def lock_worker(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> bool:
    """Take the pool's lock for this session; whether it was free."""
    statement = load("recovery/lock_worker", schema)
    return bool(await connection.fetchval(statement, schema.name, pool_id, timeout=timeout))


async def unlock_worker(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> None:
    """Let go of it."""
    await connection.fetchval(load("recovery/unlock_worker", schema), schema.name, pool_id, timeout=timeout)


async def tune_liveness(connection: Connection, schema: SchemaName, *, timeout: float) -> None:
    """Let the server notice soon when this machine is gone."""
    await connection.fetchrow(load("recovery/tune_liveness", schema), timeout=timeout)


async def end_old_session(connection: Connection, schema: SchemaName, pool_id: str, *, timeout: float) -> int:
    """End the session that holds the lock although its connection is lost; how many there were."""
    statement = load("recovery/end_old_worker_session", schema)
    count: int = await connection.fetchval(statement, schema.name, pool_id, timeout=timeout)
    return count


# -- looking -----------------------------------------------------------------------------------------------


async def judge_workers(connection: Connection, schema: SchemaName, own_id: str | None) -> list[LostWorker]:
    """The pools that are out of reach; since when is noted. Call it inside a transaction."""
    rows = await connection.fetch(load("recovery/judge_workers", schema), schema.name, own_id)
    return [LostWorker(row["id"], row["remaining"], row["newly"]) for row in rows]


async def list_workers(connection: Connection, schema: SchemaName) -> list[WorkerSummary]:
    """Everybody who is at work or has jobs locked."""
    teach_arrays(connection)
    rows = await connection.fetch(load("recovery/list_workers", schema), schema.name)
    return [_summary(row) for row in rows]


def _summary(row: Row) -> WorkerSummary:
    remaining = row["remaining"]
    return WorkerSummary(
        id=row["id"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        tasks=row["tasks"],
        concurrency=row["concurrency"],
        liveness=row["liveness"],
        started_at=_instant(row["started_at"]),
        last_seen_at=_instant(row["last_seen_at"]),
        is_alive=row["is_alive"],
        dead_in=None if remaining is None else max(0.0, remaining),
        job_ids=row["job_ids"],
        locked_since=_instant(row["locked_since"]),
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else instant(seconds)


# -- beside the Rust port ----------------------------------------------------------------------------------


async def has_rust_workers(connection: Connection, schema: SchemaName) -> bool:
    """Whether the Rust port's table of workers is here."""
    return bool(await connection.fetchval(load("recovery/has_rust_workers", schema), schema.name))


async def beat_beside_rust(connection: Connection, schema: SchemaName, pool_id: str, pid: int) -> None:
    """Show there that the pool lives."""
    await connection.execute(load("recovery/beat_beside_rust", schema), pool_id, pid)


async def leave_rust_workers(connection: Connection, schema: SchemaName, pool_ids: Sequence[str]) -> None:
    """These pools have ended."""
    await connection.execute(load("recovery/leave_rust_workers", schema), list(pool_ids))

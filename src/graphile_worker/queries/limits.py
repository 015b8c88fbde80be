"""Limits: the fetch through them, and how they are written and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ..db.connection import Connection
from ..job import Job
from ..limit import Limit, Rate, seconds_of
from ..schema_name import SchemaName
from ..sql import load
from .fetch import Ranges, flag_list, plain_jobs, task_ids


class LimitState(msgspec.Struct, frozen=True):
    """What a fetch found about the limits of its tasks."""

    room: int = 0
    """How many jobs it could lock at most."""
    wait: float | None = None
    """Seconds until a job may start again; None if no rate is used up."""
    is_full: bool = False
    """Whether as many jobs run as may run at once."""
    is_counted: bool = False
    """Whether the number of running jobs is limited."""
    may_prefetch: bool = False
    """Whether jobs may be locked some time before they start."""
    is_busy: bool = False
    """Whether another fetch used one of the limits at that moment. Nothing was done."""
    is_missing: bool = False
    """Whether a limit has no row. Nothing was done."""


class LimitSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it is in force."""

    name: str
    concurrency: int | None
    """How many jobs may run at once."""
    rate: tuple[int, timedelta] | None
    """How many may start in a period."""
    burst: int | None
    """How many may start at once after a rest."""
    tasks: tuple[str, ...]
    """Identifiers of the tasks that have this limit."""
    overridden: tuple[str, ...]
    """Which of `concurrency`, `rate` and `burst` are set by hand, in place of the code."""
    set_at: datetime | None
    """When they were set."""
    running: int | None
    """How many jobs use it now, running or prefetched; None if their number is not limited."""
    may_start: int | None
    """How many jobs may start now by the rate; None if it has none."""


class LimitedReadyTask(msgspec.Struct, frozen=True):
    """Ready jobs of a task with one priority, in named queues or in none; not locked."""

    task_id: int
    priority: int
    raw_run_at: float
    """The last of them, in seconds since 1970."""
    job_queue_id: int | None
    """None if they are in no queue; no id of a queue otherwise."""
    jobs: int
    """How many."""


_state = msgspec.json.Decoder(LimitState)


async def get_limited_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    limits: Sequence[str],
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    ranges: Ranges | None = None,
    is_wide: bool = False,
) -> tuple[Sequence[Job], LimitState]:
    """Lock up to `limit` jobs by priority and run_at, as many as the limits leave room for.

    Of a named queue at most one, or with `is_wide` as many as its width allows.
    """
    rows = await connection.fetch(
        load("limits/get_limited_jobs", schema),
        *(pool_id, task_ids(tasks), limit, flag_list(forbidden_flags), now),
        *(ranges or (None, None, None)),
        limits,
        is_wide,
    )
    return plain_jobs(rows[:-1], pool_id, tasks), _state.decode(rows[-1][1])


async def ready_tasks(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Mapping[int, str],
    limit: int,
    now: datetime | None = None,
    ranges: Ranges | None = None,
) -> list[LimitedReadyTask]:
    """Which of these tasks have ready jobs; reads up to `limit` jobs in no queue and as many in queues.

    Jobs in queues count whether or not their queue is free. With `ranges`, other jobs are read only there.
    """
    rows = await connection.fetch(
        load("limits/ready_tasks" if ranges is None else "limits/ready_tasks_above_watermarks", schema),
        *(task_ids(tasks), limit, now, *(ranges or ())),
    )
    return [
        LimitedReadyTask(task_id, priority, run_at, 0 if is_queued else None, jobs)
        for task_id, priority, run_at, is_queued, jobs in rows
    ]


async def register_limits(
    connection: Connection,
    schema: SchemaName,
    limits: Mapping[Limit, Sequence[str]],
    *,
    only_missing: bool = False,
) -> None:
    """Write limits and the identifiers of their tasks; existing rows too, unless `only_missing`."""
    await connection.execute(
        load("limits/add_missing_limits" if only_missing else "limits/register_limits", schema),
        [limit.name for limit in limits],
        [limit.concurrency for limit in limits],
        [None if limit.rate is None else float(limit.rate[0]) for limit in limits],
        [None if limit.rate is None else seconds_of(limit.rate) for limit in limits],
        [None if limit.burst is None else float(limit.burst) for limit in limits],
        ["{" + ",".join(map(_quoted, tasks)) + "}" for tasks in limits.values()],
    )


def _quoted(text: str) -> str:
    """An element of an array literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


async def set_limit(
    connection: Connection,
    schema: SchemaName,
    name: str,
    *,
    concurrency: int | None,
    rate: Rate | None,
    burst: int | None,
) -> bool:
    """Set bounds by hand; whether there is such a limit."""
    found = await connection.fetchval(
        load("limits/set_limit", schema),
        name,
        concurrency,
        None if rate is None else float(rate[0]),
        None if rate is None else seconds_of(rate),
        None if burst is None else float(burst),
    )
    return found is not None


async def reset_limit(connection: Connection, schema: SchemaName, name: str) -> bool:
    """Remove what was set by hand; whether there is such a limit."""
    return await connection.fetchval(load("limits/reset_limit", schema), name) is not None


async def list_limits(connection: Connection, schema: SchemaName) -> list[LimitSummary]:
    """Every limit, by name."""
    return [
        LimitSummary(
            name=row["name"],
            concurrency=row["concurrency"],
            rate=None if row["starts"] is None else (row["starts"], timedelta(seconds=row["period"])),
            burst=row["burst"],
            tasks=tuple(row["tasks"]),
            overridden=tuple(row["overridden"]),
            set_at=row["set_at"],
            running=row["running"],
            may_start=row["may_start"],
        )
        for row in await connection.fetch(load("limits/list_limits", schema))
    ]

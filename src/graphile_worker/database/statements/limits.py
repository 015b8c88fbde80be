"""How many jobs may run at once: limits and wide queues.

`get_limited_jobs` fetches through the limits; the rest writes them, shows them, and changes them at run time,
with errors that say what is wrong.

A wide queue is one with a concurrency above one. It owns further rows of the shared table of queues, its
tracks; see `own_objects/tracks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from ...errors import InvalidArgumentError
from ...values.concurrency import Limit, Rate, check_bounds, check_limit_name, seconds_of
from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.schema_name import SchemaName
from ...values.spec import check_queue_concurrency, check_queue_name
from ...values.text import closest
from ..connections.connection import Connection
from ..connections.encoding import array_text, teach_arrays
from ..connections.errors import refusals
from ..sql import load
from .fetch import Ranges, flag_terms, load_routed, plain_jobs, task_ids
from .manage_jobs import yielding_locks


class LimitState(msgspec.Struct, frozen=True):
    """What a fetch found about the limits of its tasks."""

    room: int = 0
    """How many jobs it could lock at most."""
    bound: int | None = 0
    """How many the limits allow while nothing runs; None if there is no such number, 0 if it is unknown."""
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
    """How many may start at once after an idle period."""
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
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
    ranges: Ranges | None = None,
    is_wide: bool = False,
) -> tuple[Sequence[Job], LimitState]:
    """Lock up to `limit` jobs by priority and run_at, as many as the limits leave room for.

    Of a named queue at most one, or with `is_wide` as many as its concurrency allows.
    """
    rows = await connection.fetch(
        load_routed("limits/get_limited_jobs", schema, flags),
        *(pool_id, task_ids(tasks), limit, flag_terms(flags), now),
        *(ranges or (None, None, None)),
        limits,
        is_wide,
    )
    return plain_jobs(rows[:-1], pool_id, tasks), _state.decode(rows[-1][1])


async def admit_held_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    number: int,
    job_ids: Sequence[int],
    limits: Sequence[str],
) -> LimitState:
    """Let all these jobs use their limits, or none: then there is less room than jobs.

    `number`: that of the open transaction that has locked them; they count until it ends.
    """
    return _state.decode(
        await connection.fetchval(load("limits/admit_held_jobs", schema), pool_id, number, job_ids, limits)
    )


async def count_again(
    connection: Connection, schema: SchemaName, *, pool_id: str, job_ids: Sequence[int], limits: Sequence[str]
) -> None:
    """Note that jobs of a lost batch use their limits, as far as this pool locks them."""
    await connection.execute(load("limits/count_again", schema), pool_id, job_ids, limits)


async def count_no_more(connection: Connection, schema: SchemaName, limits: Sequence[str]) -> None:
    """At the end of a held batch that no job outlasts: its jobs use no limit."""
    await connection.execute(load("limits/count_no_more", schema), limits)


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
        [array_text(tasks) for tasks in limits.values()],
    )


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


MAX_NAME_LENGTH = 120  # leaves room for the number of a track


async def set_queue_concurrency(
    connection: Connection, schema: SchemaName, queue_name: str, concurrency: int | None
) -> None:
    """Set the concurrency of a queue by hand; None leaves it to the tasks again."""
    check_queue_name(queue_name)
    if concurrency is not None:
        check_queue_concurrency("concurrency", concurrency)
    if len(queue_name) > MAX_NAME_LENGTH:
        raise InvalidArgumentError(
            "queue_name",
            f"has {len(queue_name)} characters; with a concurrency it may have {MAX_NAME_LENGTH}",
        )

    async def change() -> None:
        queue_id = await connection.fetchval(
            load("queue_concurrency/set_queue_concurrency", schema), queue_name, concurrency
        )
        await set_tracks(connection, schema, {queue_id: 1 if concurrency is None else concurrency})

    with refusals(
        "the tables for the concurrency of queues are missing; to create them",
        "set the concurrency of queues",
    ):
        await yielding_locks(connection, schema, change)


async def set_tracks(
    connection: Connection, schema: SchemaName, concurrency: Mapping[int, int | None]
) -> int:
    """Give queues the tracks for their concurrency; None leaves one as it is. Returns how many changed."""
    teach_arrays(connection)
    changed: int = await connection.fetchval(
        load("queue_concurrency/set_tracks", schema), list(concurrency), list(concurrency.values())
    )
    return changed


async def track_names(connection: Connection, schema: SchemaName, queue_name: str) -> list[str]:
    """The names of the tracks of a queue; empty if it is not wide, or without the tables."""
    rows = await connection.fetch(load("queue_concurrency/list_tracks", schema), queue_name)
    return [row[0] for row in rows]


async def change_limit(
    connection: Connection,
    schema: SchemaName,
    name: str,
    *,
    concurrency: int | None,
    rate: Rate | None,
    burst: int | None,
) -> LimitSummary:
    """Set bounds of a limit by hand; the limit as it is then. Raises InvalidArgumentError."""
    check_limit_name(name)
    check_bounds(concurrency, rate, burst)
    if concurrency is None and rate is None and burst is None:
        raise InvalidArgumentError("limit", "nothing to set; give a concurrency, a rate or a burst")
    if burst is not None and rate is None and (await _find(connection, schema, name)).rate is None:
        raise InvalidArgumentError("burst", f"the limit {name!r} has no rate to exceed")
    await connection.execute(
        load("limits/set_limit", schema),
        name,
        concurrency,
        None if rate is None else float(rate[0]),
        None if rate is None else seconds_of(rate),
        None if burst is None else float(burst),
    )
    return await _find(connection, schema, name)


async def restore_limit(connection: Connection, schema: SchemaName, name: str) -> LimitSummary:
    """Remove what was set by hand; the limit as it is then. Raises InvalidArgumentError."""
    check_limit_name(name)
    await connection.execute(load("limits/reset_limit", schema), name)
    return await _find(connection, schema, name)


async def _find(connection: Connection, schema: SchemaName, name: str) -> LimitSummary:
    known = {limit.name: limit for limit in await list_limits(connection, schema)}
    if name in known:
        return known[name]
    near = closest(name, known)
    hint = f"did you mean {near!r}?" if near else "workers write their limits when they start"
    raise InvalidArgumentError("limit", f"there is no limit {name!r}; {hint}")

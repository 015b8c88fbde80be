"""The list of jobs: pages by the index that serves the filter, or by a walk of bounded time; cursors, counts.

A walk reads the table in steps of 20,000 jobs, for about a second, and says how far it came.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.inspection import jobs_table_pages
from ...database.statements.job_filter import (
    BEGINNING,
    FIRST_ID,
    JobFilter,
    RunPosition,
    ids_to_walk,
    index_variant,
)
from ...database.statements.limits import track_names
from ...database.statements.manage_jobs import attempts_made
from ...recovery.registry.workers import list_workers
from ...values.job import instant
from ...values.schema_name import SchemaName
from ..answers import Count, Problem, as_raw
from ..database import Database
from ..security.redact import Redactor
from . import JobPage, JobRow, ListOrder, Searched
from .filters import FinishedFilter

PAGE = 50
MAX_PAGE = 200
STEP = 20_000
"""Jobs that one statement reads at most."""
BUDGET = 1.0
"""Seconds that a search may take before it answers with what it has."""
OF_PRIORITY = 200
"""Jobs of each priority that are read for a page in run order, at least."""
MAX_PAYLOAD = 64 * 1024
"""Bytes of a payload in a list."""
NOTHING_KEPT = (
    "No finished job is kept. Jobs are deleted when they complete, unless their task says "
    "@task(keep=True), or the job add_job(..., keep=True)."
)
NO_HISTORY = (
    "This schema has no history, or the dashboard may not read it. `graphile-worker migrate` makes its "
    "tables; then Python workers keep jobs whose task says @task(keep=True)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListQuery:
    """Which page of which jobs is wanted, and for whose eyes."""

    filter: JobFilter | FinishedFilter
    redactor: Redactor
    order: ListOrder | None = None
    """None for the usual one: that of workers for jobs that wait, else the newest first."""
    after: str | None = None
    before: str | None = None
    limit: int = PAGE
    with_payload: bool = False
    search_running: bool = False
    """Running jobs: look through the table, in place of what workers report."""

    def __post_init__(self) -> None:
        if self.after is not None and self.before is not None:
            raise Problem(400, "Give after or before, not both")

    @property
    def payload(self) -> int:
        """The longest payload to return, in bytes."""
        return MAX_PAYLOAD if self.with_payload else 0

    @property
    def is_first(self) -> bool:
        return self.after is None and self.before is None


async def list_jobs(database: Database, query: JobListQuery) -> JobPage:
    """One page of the jobs that match."""
    async with database.read() as connection:
        if isinstance(query.filter, FinishedFilter):
            return await _finished(connection, database.schema, query, query.filter)
        await connection.fetchrow(load("manage/read_by_indexes", database.schema))
        known = await estimates(connection, database.schema)
        return await _List(connection, database.schema, query, query.filter, known).page()


@dataclass(frozen=True, slots=True)
class _List:
    """A page of jobs in the queue while it is read."""

    connection: Connection
    schema: SchemaName
    query: JobListQuery
    filter: JobFilter
    known: Estimates

    async def page(self) -> JobPage:
        order, state = self.order, self.filter.required_state
        if order == "run_order":
            if state not in (None, "ready", "scheduled"):
                raise Problem(
                    400, "Only waiting jobs have a run order",
                    "Choose another order, or the state ready or scheduled.",
                )  # fmt: skip
            return await self.in_run_order()
        if state == "running" and self.query.is_first and not self.query.search_running:
            reported = await _reported(self.connection, self.schema, self.filter, self.query)
            if reported is not None:
                return reported
        return await self.by_id(order)

    @property
    def order(self) -> ListOrder:
        """The order that was asked for, else one that an index serves."""
        if self.query.order is not None:
            return self.query.order
        filter = self.filter
        by_queue = filter.queue_name is not None and filter.job_key is None and self.known.has_failed_index
        waits = filter.state in ("ready", "scheduled", "retrying") or (
            filter.required_state is None and by_queue
        )
        return "run_order" if waits else "newest"

    async def by_id(self, order: ListOrder) -> JobPage:
        """A page, or the one before a cursor: then it is read backwards."""
        query, before, direction = self.query, self.query.before, order
        cursor = query.after
        if before is not None:
            direction, cursor = ("oldest" if order == "newest" else "newest"), before
        found = await find_by_id(
            self.connection, self.schema, self.filter, direction,
            after=None if cursor is None else checked_id(decode_cursor(cursor, order, tuple[int])[0]),
            limit=query.limit + 1, payload=query.payload, has_failed_index=self.known.has_failed_index,
        )  # fmt: skip
        rows, following = found.page(query.limit)
        ends = [(row["id"],) for row in rows]
        first = ends[0] if ends and query.after is not None else None
        if before is not None:
            rows.reverse()
            first, following = following, ends[0] if ends else None
        return await self._page(
            found, rows, order,
            next=None if following is None else encode_cursor(order, *following),
            previous=None if first is None else encode_cursor(order, *first),
        )  # fmt: skip

    async def in_run_order(self) -> JobPage:
        query = self.query
        found = await find_in_run_order(
            self.connection, self.schema, self.filter,
            after=None if query.after is None else _run_position(query.after), limit=query.limit + 1,
            payload=query.payload, has_queue_index=self.known.has_failed_index,
        )  # fmt: skip
        rows, following = found.page(query.limit)
        next = None if following is None else _run_cursor(*following)
        return await self._page(found, rows, "run_order", next=next)

    async def _page(
        self,
        found: FoundJobs,
        rows: list[Row],
        order: ListOrder,
        *,
        next: str | None,
        previous: str | None = None,
    ) -> JobPage:
        is_walk = not is_served(self.filter, order, has_failed_index=self.known.has_failed_index)
        return JobPage(
            items=await rows_from(self.connection, self.schema, rows, self.query.redactor),
            next=next,
            previous=previous,
            count=self._count(found, rows),
            searched=_searched(found, self.known.all) if is_walk else None,
            order=order,
        )

    def _count(self, found: FoundJobs, rows: list[Row]) -> Count | None:
        if self.query.is_first and found.position is None and len(found.rows) <= len(rows):
            return Count(len(rows))
        counted = count_of(self.filter, self.known)
        if counted is not None and (counted.kind != "estimate" or counted.value >= len(rows)):
            return counted
        return Count(len(rows), "at_least") if self.query.is_first else None


async def _finished(
    connection: Connection, schema: SchemaName, query: JobListQuery, filter: FinishedFilter
) -> JobPage:
    """A page of the history, the last to end first."""
    if query.order not in (None, "newest") or query.before is not None:
        raise Problem(400, "Finished jobs have one order", "The latest come first; follow `next`.")
    kept = await if_readable(connection, lambda: count_finished(connection, schema))
    if kept is None or not kept.value:
        return JobPage(items=[], count=Count(0), problem=NO_HISTORY if kept is None else NOTHING_KEPT)
    found = await find_finished(
        connection, schema, filter, after=None if query.after is None else _end_position(query.after),
        limit=query.limit + 1, payload=query.payload,
    )  # fmt: skip
    rows, following = found.page(query.limit)
    count: Count | None = kept if filter == FinishedFilter(redactor=filter.redactor) else None
    if query.is_first and following is None:
        count = Count(len(rows))
    elif count is None and query.is_first:
        count = Count(len(rows), "at_least")
    return JobPage(
        items=[finished_row(row, query.redactor) for row in rows],
        next=None if following is None else encode_cursor("finished", following[0].isoformat(), following[1]),
        count=count,
        searched=_searched(found, kept) if filter.has_unserved else None,
    )


async def _reported(
    connection: Connection, schema: SchemaName, filter: JobFilter, query: JobListQuery
) -> JobPage | None:
    """Running jobs as Python workers have reported them; None if there are no such reports."""
    if replace(filter, state=None, locked_by=None, task_identifier=None, queue_name=None).has_conditions:
        return None
    workers = await if_readable(connection, lambda: list_workers(connection, schema))
    if workers is None or workers.is_complete or not workers:  # a small table is searched at once
        return None
    ids = [job_id for worker in workers for job_id in worker.job_ids]
    found = await find_these(connection, schema, ids, payload=query.payload)
    rows = await rows_from(connection, schema, found, query.redactor)
    items = [
        row
        for row in rows
        if row.state == "running"
        and filter.locked_by in (None, row.locked_by)
        and filter.task_identifier in (None, row.task_identifier)
        and filter.queue_name in (None, row.queue_name)
    ]
    return JobPage(items=items, count=Count(len(items), "at_least"), is_reported=True)


def _searched(found: FoundJobs, everything: Count) -> Searched:
    is_complete = found.position is None
    read = everything.value if is_complete and everything.kind == "exact" else found.read
    return Searched(read, everything, is_complete)


# -- searches -----------------------------------------------------------------------------------------------

Position = tuple[Any, ...]
"""Where a search goes on: the id, the place in run order, or the end and the id."""


class FoundJobs(msgspec.Struct):
    """What a search has found."""

    key: tuple[str, ...]
    """The columns of a position."""
    rows: list[Row] = []
    read: int = 0
    """Jobs that were read, as far as that is known."""
    position: Position | None = None
    """Where to go on; None if the end was reached."""

    def page(self, limit: int) -> tuple[list[Row], Position | None]:
        """The rows of one page, and where the next one begins; None on the last."""
        rows = self.rows[:limit]
        if len(self.rows) > limit:
            return rows, tuple(rows[-1][name] for name in self.key)
        return rows, self.position


async def _walk(
    key: tuple[str, ...],
    position: Position,
    read: Callable[[int, Position, int], Awaitable[Sequence[Row]]],
    *,
    limit: int,
    step: int,
    is_end: Callable[[Position], bool] = lambda _: False,
    shows: Callable[[Row], bool] = lambda _: True,
) -> FoundJobs:
    """Read in steps until there are enough jobs, nothing is left, or the time is over.

    `read` gets how many jobs are wanted, where to begin, and how many to look at. Its first row says in the
    columns `last_...` where the next step begins: nulls at the end of the table.
    """
    found, deadline = FoundJobs(key), time.monotonic() + BUDGET
    while True:
        wanted = limit - len(found.rows)
        rows = await read(wanted, position, step)
        new = [row for row in rows if row["id"] is not None]
        found.rows += [row for row in new if shows(row)]
        position = tuple(rows[0][f"last_{name}"] for name in key)
        is_last = position[-1] is None
        found.read += len(new) if is_last or len(new) >= wanted else step
        if is_last or is_end(position):
            return found
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = position
            return found
        step = min(STEP, 4 * step)


def is_served(filter: JobFilter, order: ListOrder, *, has_failed_index: bool) -> bool:
    """Whether an index leads to the jobs, so that a page reads little more than it shows."""
    plain = replace(filter, state=None, id_from=None, id_to=None)
    if filter.job_key is not None:
        return True
    if order == "run_order" and has_failed_index:
        plain = replace(plain, queue_name=None)
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        return True
    if plain.has_conditions:
        return False
    if filter.state == "failed":
        return has_failed_index
    return filter.state != "retrying" and (filter.state is None or order == "run_order")


async def find_by_id(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    order: ListOrder,
    *,
    after: int | None,
    limit: int,
    has_failed_index: bool,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` jobs by id, downwards or upwards."""
    is_down = order == "newest"
    start, end = ids_to_walk(filter, is_down=is_down)
    if after is not None:
        start = min(after, start) if is_down else max(after, start)
    name = "admin/find_by_id" if is_down else "admin/find_by_id@upwards"
    statement = load(name + index_variant(filter, has_failed_index=has_failed_index), schema)
    conditions = (*filter.values, filter.required_state)
    return await _walk(
        ("id",), (start,),
        lambda wanted, position, step: connection.fetch(
            statement, wanted, *conditions, *position, step, payload
        ),
        limit=limit, step=STEP,
        is_end=lambda position: position[0] <= end if is_down else position[0] >= end,
    )  # fmt: skip


async def find_in_run_order(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    *,
    after: RunPosition | None,
    limit: int,
    has_queue_index: bool,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` waiting jobs, in the order in which workers take them."""
    state = filter.required_state
    more: tuple[object, ...] = ()
    is_read = replace(filter, state=None).has_conditions or filter.state == "retrying"
    name = f"admin/find_in_run_order@{state}" if state else "admin/find_in_run_order"
    if filter.queue_name is not None and has_queue_index:
        ids = await queue_ids(connection, schema, filter.queue_name)
        filter, more, name = replace(filter, queue_name=None), (ids,), "admin/find_in_run_order@queued"
        is_read = replace(filter, state=None).has_conditions
    statement, conditions = load(name, schema), (*filter.values, state)
    return await _walk(
        ("priority", "run_at", "id"), BEGINNING if after is None else after,
        lambda wanted, position, step: connection.fetch(
            statement, wanted, *conditions, *position, step, payload, *more
        ),
        limit=limit, step=STEP if is_read else max(limit, OF_PRIORITY),
    )  # fmt: skip


async def queue_ids(connection: Connection, schema: SchemaName, name: str) -> list[int]:
    """The rows of a queue: its own, and its tracks."""
    tracks = await if_readable(connection, lambda: track_names(connection, schema, name))
    rows = await connection.fetch(load("names/queue_ids", schema), [name, *(tracks or ())])
    return [row["id"] for row in rows]


async def find_finished(
    connection: Connection,
    schema: SchemaName,
    filter: FinishedFilter,
    *,
    after: tuple[datetime, int] | None,
    limit: int,
    payload: int = 0,
) -> FoundJobs:
    """Up to `limit` finished jobs, the last to end first."""
    variant = "@task" if filter.task_identifier is not None else ""
    variant += "@outcome" if filter.outcome not in (None, "completed") else ""
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        variant = "@ids"
    has_ids = filter.id_from is not None or filter.id_to is not None
    is_walk = filter.has_unserved or filter.outcome == "completed" or has_ids
    statement = load(f"admin/find_finished{variant}", schema)
    conditions = (
        filter.outcome, filter.id_from, filter.id_to, filter.task_identifier, filter.queue_name,
        filter.job_key, filter.key_prefix, filter.locked_by, filter.duration_from, filter.duration_to,
        filter.error, filter.text,
    )  # fmt: skip
    await connection.fetchrow(load("history/read_in_order", schema))
    return await _walk(
        ("finished_at", "id"), (None, FIRST_ID) if after is None else after,
        lambda wanted, position, step: connection.fetch(
            statement, wanted, filter.finished_since, filter.finished_until, step, *position, *conditions,
            payload,
        ),
        limit=limit, step=STEP if is_walk else limit, shows=lambda row: _shows(row, filter),
    )  # fmt: skip


def _shows(row: Row, filter: FinishedFilter) -> bool:
    """Whether a job that matches also matches without its secrets."""
    if filter.redactor is None or (filter.error is None and filter.text is None):
        return True
    error = filter.redactor.text(row["last_error"] or "").lower()
    if filter.error is not None and filter.error.lower() not in error:
        return False
    texts = (row["task_identifier"].lower(), (row["key"] or "").lower(), error)
    return filter.text is None or any(filter.text.lower() in text for text in texts)


async def find_these(
    connection: Connection, schema: SchemaName, ids: Sequence[int], *, payload: int = 0
) -> list[Row]:
    """Jobs by their ids, the newest first."""
    return list(await connection.fetch(load("admin/find_these", schema), list(ids), payload))


async def rows_from(
    connection: Connection, schema: SchemaName, rows: Sequence[Row], redactor: Redactor
) -> list[JobRow]:
    """Jobs of a list, redacted; permanently failed ones know how many attempts they had."""
    failed = [row["id"] for row in rows if row["state"] == "failed"]
    made = await attempts_made(connection, schema, failed)
    return [_row(row, redactor, made.get(row["id"])) for row in rows]


def _row(row: Row, redactor: Redactor, made: int | None) -> JobRow:
    times = ("run_at", "created_at", "updated_at", "locked_at", "failed_at")
    columns = ("revision", "locked_by", "queue_locked_by")
    return _job_row(
        row, redactor, row["task"], row["queue"],
        attempts_made=made,
        **{name: row[name] for name in columns},
        **{name: None if row[name] is None else instant(row[name]) for name in times},
    )  # fmt: skip


def finished_row(row: Row, redactor: Redactor) -> JobRow:
    """A finished job of a list, redacted."""
    columns = ("run_at", "created_at", "started_at", "finished_at", "duration", "pool_id")
    failed = {"failed_at": row["finished_at"], "attempts_made": row["attempts"]}
    return _job_row(
        row, redactor, row["task_identifier"], row["queue_name"],
        **{name: row[name] for name in columns},
        **(failed if row["state"] == "failed" else {}),
    )  # fmt: skip


def _job_row(row: Row, redactor: Redactor, task: str, queue: str | None, **more: Any) -> JobRow:
    """What jobs in the queue and finished ones have in common, and `more`."""
    flags, payload = row["flags"], row["payload"]
    return JobRow(
        id=row["id"],
        task_identifier=task,
        state=row["state"],
        queue_name=queue,
        priority=row["priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        last_error=redactor.optional_text(row["last_error"]),
        key=row["key"],
        flags=[] if flags is None else sorted(msgspec.json.decode(flags)),
        payload=None if payload is None else as_raw(redactor.payload(payload, task)),
        **more,
    )


# -- counts -------------------------------------------------------------------------------------------------

BOUND = 1_000
"""Up to this many jobs are counted."""
READ = 50
"""Of so many scheduled jobs the attempts are read to count those that are retrying, in a large table."""
SMALL = 150
"""Pages of a table that is read as a whole instead."""


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """What the server knows about the jobs table without reading it."""

    all: Count
    ready: Count
    scheduled: Count
    failed: Count | None
    """None without the index of failed jobs: only a walk could tell."""
    has_failed_index: bool


async def estimates(connection: Connection, schema: SchemaName) -> Estimates:
    """Counts of a few states, for a few pages of reading."""
    row: Any = await connection.fetchrow(load("admin/job_estimates", schema), schema.name, BOUND)
    ready = _bounded(row["ready_counted"])
    waiting = round(row["waiting"])
    everything = _bounded(row["counted"], row["rows"])
    if everything.kind == "exact":
        waiting = min(waiting, everything.value)
    failed = None if row["failed_counted"] is None else _bounded(row["failed_counted"], row["failed"])
    return Estimates(
        all=everything,
        ready=ready,
        scheduled=Count(max(0, waiting - ready.value), "estimate"),
        failed=failed,
        has_failed_index=row["has_failed_index"],
    )


async def count_finished(connection: Connection, schema: SchemaName) -> Count:
    """How many jobs the history has."""
    row: Any = await connection.fetchrow(load("admin/count_finished", schema), schema.name, BOUND + 1)
    return _bounded(row["counted"], row["rows"])


async def count_later(connection: Connection, schema: SchemaName, otherwise: Count) -> tuple[Count, Count]:
    """Scheduled jobs, and those of them that wait for another attempt; `otherwise` if there are many."""
    row: Any = await connection.fetchrow(load("admin/count_scheduled", schema), BOUND + 1, READ + 1)
    scheduled = Count(row["scheduled"]) if row["scheduled"] <= BOUND else otherwise
    if row["scheduled"] <= READ:
        return scheduled, Count(row["retrying"])
    if await jobs_table_pages(connection, schema) <= SMALL:
        return scheduled, Count(await connection.fetchval(load("admin/count_retrying", schema)))
    return scheduled, Count(row["retrying"], "at_least")


async def count_states(database: Database, scheduled: Count) -> dict[str, Count]:
    """Jobs in the states that samples do not count, or not exactly."""
    async with database.read() as connection:
        await connection.fetchrow(load("manage/read_by_indexes", database.schema))
        scheduled, retrying = await count_later(connection, database.schema, scheduled)
        finished = await if_readable(connection, lambda: count_finished(connection, database.schema))
    found = {"scheduled": scheduled, "retrying": retrying, "finished": finished}
    return {state: count for state, count in found.items() if count is not None}


def _bounded(counted: int, estimate: float | None = None) -> Count:
    if counted <= BOUND:
        return Count(counted)
    if estimate is None or estimate <= BOUND:
        return Count(BOUND, "at_least")
    return Count(round(estimate), "estimate")


def count_of(filter: JobFilter, found: Estimates) -> Count | None:
    """The number of jobs that match, if it is known without a search."""
    if not filter.has_conditions:
        return found.all
    known = {"ready": found.ready, "scheduled": found.scheduled, "failed": found.failed}
    if filter == JobFilter(state=filter.state, order=filter.order) and filter.state in known:
        return known[filter.state]
    return None


# -- cursors ------------------------------------------------------------------------------------------------

LONGEST_CURSOR = 500


def encode_cursor(kind: str, *values: Any) -> str:
    """A cursor for a list of this kind, such as its order."""
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, *values])).decode().rstrip("=")


def decode_cursor(cursor: str, kind: str, types: Any) -> Any:
    """The values of a cursor; refused if it was made for another list, or by hand.

    `types` is the type of the values, such as `tuple[int]`.
    """
    try:
        if len(cursor) > LONGEST_CURSOR:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(found, list) or not found:
            raise ValueError
        if found[0] != kind:
            raise Problem(400, "The cursor is for another list", f"It was not made for the order {kind}.")
        return msgspec.convert(found[1:], types)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise bad_cursor() from None


def bad_cursor() -> Problem:
    return Problem(400, "The cursor is not valid", "Start again without it.")


def checked_id(value: int) -> int:
    """A value that a bigint holds."""
    if not -(2**63) <= value < 2**63:
        raise bad_cursor()
    return value


def checked_priority(value: int) -> int:
    if not -(2**15) <= value < 2**15:
        raise bad_cursor()
    return value


def _run_cursor(priority: int, run_at: float, job_id: int) -> str:
    return encode_cursor("run_order", priority, repr(run_at), job_id)  # JSON has no infinite numbers


def _run_position(cursor: str) -> RunPosition:
    priority, run_at, job_id = decode_cursor(cursor, "run_order", tuple[int, str, int])
    try:
        return checked_priority(priority), float(run_at), checked_id(job_id)
    except ValueError:
        raise bad_cursor() from None


def _end_position(cursor: str) -> tuple[datetime, int]:
    at, job_id = decode_cursor(cursor, "finished", tuple[datetime, int])
    if at.tzinfo is None:
        raise bad_cursor()
    return at, checked_id(job_id)

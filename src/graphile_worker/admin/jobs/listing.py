"""The list of jobs: its pages, cursors and counts; `searching` finds the jobs."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.inspection import jobs_table_pages
from ...database.statements.job_filter import JobFilter, RunPosition
from ...recovery.registry.workers import list_workers
from ...values.schema_name import SchemaName
from ..answers import Count, Problem
from ..database import Database
from ..security.redact import Redactor
from .filters import FinishedFilter
from .searching import (
    FoundJobs,
    JobRow,
    ListOrder,
    find_by_id,
    find_finished,
    find_in_run_order,
    find_these,
    finished_row,
    is_served,
    rows_from,
)


class Searched(msgspec.Struct, frozen=True):
    """How far a search that no index serves has come."""

    jobs: int
    """Jobs that were read for this page."""
    of: Count
    """Jobs that there are."""
    is_complete: bool


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    items: list[JobRow]
    next: str | None = None
    """The cursor of the next page (`after=`); None on the last."""
    previous: str | None = None
    """The cursor of the previous page; None on the first, and in run order."""
    count: Count | None = None
    searched: Searched | None = None
    """Only if no index serves the filter."""
    order: ListOrder = "newest"
    is_reported: bool = False
    """Whether these are the running jobs that workers reported, and not the result of a search."""
    problem: str | None = None
    """Why there are no finished jobs: nothing is kept here, and what to do."""


PAGE = 50
MAX_PAGE = 200
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

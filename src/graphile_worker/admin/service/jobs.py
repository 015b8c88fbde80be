"""The list of jobs: pages, cursors and counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...database.connections import sqlstates
from ...database.connections.connection import Connection, Row
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...database.statements.job_filter import JobFilter, RunPosition
from ...recovery.registry.workers import list_workers
from ...values.schema_name import SchemaName
from ..answers import Problem
from ..cursors import bad_cursor, checked_id, checked_priority, decode_cursor, encode_cursor
from ..database import Database
from ..models.common import Count
from ..models.jobs import JobPage, ListOrder, Searched
from ..redact import Redactor
from .counts import Estimates, count_of, estimates
from .exact_count import count_in_steps
from .search import (
    MAX_PAYLOAD,
    FoundJobs,
    find_by_id,
    find_in_run_order,
    find_these,
    is_served,
    rows_from,
)

PAGE = 50
MAX_PAGE = 200
MISSING = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)


def usual_order(filter: JobFilter) -> ListOrder:
    """The order of a list if none is asked for: that of workers for jobs that wait, else the newest first."""
    return "run_order" if filter.state in ("ready", "scheduled") else "newest"


async def list_jobs(
    database: Database,
    filter: JobFilter,
    redactor: Redactor,
    *,
    order: ListOrder | None = None,
    after: str | None = None,
    before: str | None = None,
    limit: int = PAGE,
    with_payload: bool = False,
    search_running: bool = False,
) -> JobPage:
    """One page of the jobs that match.

    Running jobs are those that workers have reported, unless `search_running` asks to look through the table.
    """
    order = usual_order(filter) if order is None else order
    if order == "run_order" and filter.required_state not in (None, "ready", "scheduled"):
        raise Problem(
            400,
            "Only waiting jobs have a run order",
            "Choose another order, or the state ready or scheduled.",
        )
    payload = MAX_PAYLOAD if with_payload else 0
    async with database.read() as connection:
        schema = database.schema
        await connection.fetchrow(load("manage/read_by_indexes", schema))
        known = await estimates(connection, schema)
        if order == "run_order":
            return await _in_run_order(connection, schema, filter, redactor, known, after, limit, payload)
        if filter.state == "running" and after is None and before is None and not search_running:
            reported = await _reported(connection, schema, filter, redactor, payload)
            if reported is not None:
                return reported
        return await _by_id(connection, schema, filter, redactor, known, order, after, before, limit, payload)


async def _by_id(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    redactor: Redactor,
    known: Estimates,
    order: ListOrder,
    after: str | None,
    before: str | None,
    limit: int,
    payload: int,
) -> JobPage:
    position = _id_cursor(before if before is not None else after, order)
    direction: ListOrder = order
    if before is not None:
        direction = "oldest" if order == "newest" else "newest"
    found = await find_by_id(
        connection, schema, filter, direction, after=position, limit=limit + 1, payload=payload,
        has_failed_index=known.has_failed_index,
    )  # fmt: skip
    rows, has_more = found.rows[:limit], len(found.rows) > limit or found.position is not None
    following: int | None = None
    if has_more:
        following = rows[-1]["id"] if len(found.rows) > limit else _id(found.position)
    if before is not None:
        rows.reverse()
        first = following  # where the pages before this one begin
        following = rows[-1]["id"] if rows else None
    else:
        first = rows[0]["id"] if rows and after is not None else None
    is_walk = not is_served(filter, order, has_failed_index=known.has_failed_index)
    return JobPage(
        items=await rows_from(connection, schema, rows, redactor),
        next=None if following is None else encode_cursor(order, following),
        previous=None if first is None else encode_cursor(order, first),
        count=_count(filter, known, found, rows, is_first=after is None and before is None),
        searched=_searched(found, known) if is_walk else None,
        order=order,
    )


async def _in_run_order(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    redactor: Redactor,
    known: Estimates,
    after: str | None,
    limit: int,
    payload: int,
) -> JobPage:
    position: RunPosition | None = None
    if after is not None:
        position = _run_position(after)
    found = await find_in_run_order(
        connection, schema, filter, after=position, limit=limit + 1, payload=payload
    )
    rows = found.rows[:limit]
    following: Any = found.position
    if len(found.rows) > limit:
        last = rows[-1]
        following = (last["priority"], last["run_at"], last["id"])
    is_walk = not is_served(filter, "run_order", has_failed_index=known.has_failed_index)
    return JobPage(
        items=await rows_from(connection, schema, rows, redactor),
        next=None if following is None else _run_cursor(following),
        count=_count(filter, known, found, rows, is_first=after is None),
        searched=_searched(found, known) if is_walk else None,
        order="run_order",
    )


async def _reported(
    connection: Connection, schema: SchemaName, filter: JobFilter, redactor: Redactor, payload: int
) -> JobPage | None:
    """Running jobs as Python workers have reported them; None if there are no such reports."""
    if replace(filter, state=None, locked_by=None, task_identifier=None, queue_name=None).has_conditions:
        return None
    try:
        async with connection.transaction():
            workers = await list_workers(connection, schema)
    except Exception as error:
        if sqlstate_of(error) not in MISSING:
            raise
        return None
    if workers.is_complete or not workers:  # a small table is searched at once
        return None
    ids = [job_id for worker in workers for job_id in worker.job_ids]
    found = await find_these(connection, schema, ids, payload=payload)
    rows = await rows_from(connection, schema, found, redactor)
    items = [
        row
        for row in rows
        if row.state == "running"
        and filter.locked_by in (None, row.locked_by)
        and filter.task_identifier in (None, row.task)
        and filter.queue_name in (None, row.queue)
    ]
    return JobPage(items=items, count=Count(len(items), "at_least"), is_reported=True)


def _count(
    filter: JobFilter, known: Estimates, found: FoundJobs, rows: list[Row], *, is_first: bool
) -> Count | None:
    if is_first and found.position is None and len(found.rows) <= len(rows):
        return Count(len(rows))
    counted = count_of(filter, known)
    if counted is not None:
        return counted
    return Count(len(rows), "at_least") if is_first else None


def _searched(found: FoundJobs, known: Estimates) -> Searched:
    is_complete = found.position is None
    read = known.all.value if is_complete and known.all.kind == "exact" else found.read
    return Searched(read, known.all, is_complete)


def _run_cursor(position: RunPosition) -> str:
    priority, run_at, job_id = position
    return encode_cursor("run_order", priority, repr(run_at), job_id)  # JSON has no infinite numbers


def _run_position(cursor: str) -> RunPosition:
    priority, run_at, job_id = decode_cursor(cursor, "run_order", tuple[int, str, int])
    try:
        return checked_priority(priority), float(run_at), checked_id(job_id)
    except ValueError:
        raise bad_cursor() from None


def _id_cursor(cursor: str | None, order: ListOrder) -> int | None:
    return None if cursor is None else checked_id(decode_cursor(cursor, order, tuple[int])[0])


def _id(position: int | RunPosition | None) -> int | None:
    return position if isinstance(position, int) else None


async def count_exactly(database: Database, filter: JobFilter) -> Count:
    """The number of jobs that match, counted in steps for up to ten seconds; else the number found so far."""
    report = await count_in_steps(database, filter)
    found = report.changed + report.skipped
    return Count(found, "exact" if report.is_complete else "at_least")

"""The list of jobs: pages, cursors and counts."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import time
from codecs import BOM_UTF8
from dataclasses import replace
from typing import Any, Literal

import msgspec

from ...database.connections import sqlstates
from ...database.connections.connection import Connection, Row
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...database.statements.bulk_changes import COMPLETE, BulkReport, BulkWalk
from ...database.statements.job_filter import JobFilter, RunPosition
from ...recovery.registry.workers import list_workers
from ...values.schema_name import SchemaName
from ..answers import Count, Problem
from ..database import Database
from ..security.redact import Redactor
from ..web.show import csv_cell
from . import JobPage, JobRow, ListOrder, Searched
from .search import MAX_PAYLOAD, FoundJobs, find_by_id, find_in_run_order, find_these, is_served, rows_from

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


# -- counts -------------------------------------------------------------------------------------------------

BOUND = 1_000
"""Up to this many jobs are counted."""


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


# -- exact counts -------------------------------------------------------------------------------------------

COUNTS_FOR = 10.0  # seconds


async def count_in_steps(database: Database, filter: JobFilter, *, longest: float = COUNTS_FOR) -> BulkReport:
    """A dry run of a bulk change: the same walk, so the same jobs."""
    walk = BulkWalk(
        database.schema, replace(filter, order="oldest", after=None, limit=None), COMPLETE,
        {"all": True, "dry_run": True},
    )  # fmt: skip
    async with database.read() as connection:
        await walk.begin(connection)
    deadline = time.monotonic() + longest
    while not walk.report.is_complete and time.monotonic() < deadline:
        async with database.read() as connection:
            await connection.fetchrow(load("manage/read_by_indexes", database.schema))
            await walk.step(connection)
    return walk.report


# -- files --------------------------------------------------------------------------------------------------

MAX_JOBS = 10_000
AT_ONCE = 200
"""Jobs that are read and redacted before other requests get a turn."""
MAX_BYTES = 64 * 1024 * 1024
"""A file stops growing here; the cursor goes on."""
ExportFormat = Literal["jsonl", "csv"]
COLUMNS = (
    "id", "task", "state", "queue", "priority", "run_at", "attempts", "max_attempts", "created_at", "key",
    "flags", "revision", "locked_by", "locked_at", "failed_at", "last_error", "payload",
)  # fmt: skip


class Export(msgspec.Struct, frozen=True):
    """A file, and where the next one begins."""

    content: bytes
    next: str | None
    jobs: int


async def export_jobs(
    database: Database,
    filter: JobFilter,
    redactor: Redactor,
    format: ExportFormat,
    *,
    order: ListOrder | None = None,
    after: str | None = None,
    limit: int = MAX_JOBS,
) -> Export:
    """The jobs that match, redacted as everywhere."""
    parts = [_header(format)]
    size, jobs, cursor = len(parts[0]), 0, after
    while True:
        page = await list_jobs(
            database, filter, redactor, order=order, after=cursor, limit=min(AT_ONCE, limit - jobs),
            with_payload=True, search_running=True,
        )  # fmt: skip
        parts += [_line(format, row) for row in page.items]
        size += sum(len(part) for part in parts[-len(page.items) :]) if page.items else 0
        jobs, cursor = jobs + len(page.items), page.next
        is_stuck = page.searched is not None and not page.searched.is_complete
        if cursor is None or jobs >= limit or size > MAX_BYTES or is_stuck:
            return Export(b"".join(parts), cursor, jobs)


def _header(format: ExportFormat) -> bytes:
    return b"" if format == "jsonl" else BOM_UTF8 + _csv(list(COLUMNS))  # else spreadsheets guess


def _line(format: ExportFormat, row: JobRow) -> bytes:
    if format == "jsonl":
        return msgspec.json.encode(row) + b"\n"
    return _csv([_cell(getattr(row, name)) for name in COLUMNS])


def _cell(value: object) -> str:
    if isinstance(value, msgspec.Raw):
        return csv_cell(bytes(value).decode())
    if isinstance(value, list):
        return csv_cell(" ".join(value))
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else csv_cell(value)


def _csv(values: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode("utf-8", "replace")

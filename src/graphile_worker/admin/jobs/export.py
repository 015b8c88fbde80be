"""All jobs that match a filter: counted one by one, and as files of JSON Lines or CSV."""

from __future__ import annotations

import csv
import io
import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

import msgspec

from ...database.connections import sqlstates
from ...database.connections.errors import sqlstate_of
from ...database.sql import load
from ...database.statements.bulk_changes import COMPLETE, BulkReport, BulkWalk
from ...database.statements.job_filter import LAST_ID, JobFilter
from ..answers import Count
from ..database import Database
from ..web.show import csv_cell
from .listing import JobListQuery, list_jobs
from .searching import JobRow

COUNTS_FOR = 10.0  # seconds
MAX_JOBS = 10_000
AT_ONCE = 200
"""Jobs that are read and redacted before other requests get a turn."""
MAX_BYTES = 64 * 1024 * 1024
"""A file stops growing here; the cursor goes on."""
ExportFormat = Literal["jsonl", "csv"]
COLUMNS = (
    "id", "task_identifier", "state", "queue_name", "priority", "run_at", "attempts", "max_attempts",
    "created_at", "updated_at", "key", "flags", "revision", "locked_by", "locked_at", "failed_at",
    "started_at", "finished_at", "duration", "pool_id", "last_error", "payload",
)  # fmt: skip


async def count_exactly(database: Database, filter: JobFilter) -> Count:
    """The number of jobs that match, counted at once, or in steps for up to ten seconds: then at least."""
    try:
        async with database.read() as connection:
            statement = load("admin/count_matching", database.schema)
            conditions = (*filter.values, filter.required_state)
            found: int = await connection.fetchval(statement, LAST_ID, *conditions)
            return Count(found)
    except Exception as error:
        if sqlstate_of(error) != sqlstates.QUERY_CANCELED:
            raise
    report = await count_in_steps(database, filter)
    return Count(report.changed + report.skipped, "exact" if report.is_complete else "at_least")


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


class Export(msgspec.Struct, frozen=True):
    """A file, and where the next one begins."""

    content: bytes
    next: str | None
    jobs: int


async def export_jobs(database: Database, query: JobListQuery, format: ExportFormat) -> Export:
    """Up to `query.limit` jobs that match, redacted as everywhere."""
    parts = [_header(format)]
    size, jobs, cursor = len(parts[0]), 0, query.after
    while True:
        wanted = replace(query, after=cursor, limit=min(AT_ONCE, query.limit - jobs), with_payload=True)
        page = await list_jobs(database, wanted)
        parts.append(_lines(format, page.items))
        size += len(parts[-1])
        jobs, cursor = jobs + len(page.items), page.next
        is_stuck = page.searched is not None and not page.searched.is_complete
        if cursor is None or jobs >= query.limit or size > MAX_BYTES or is_stuck:
            return Export(b"".join(parts), cursor, jobs)


def _header(format: ExportFormat) -> bytes:
    return b"" if format == "jsonl" else BOM_UTF8 + _csv([COLUMNS])  # else spreadsheets guess


def _lines(format: ExportFormat, rows: Sequence[JobRow]) -> bytes:
    if format == "jsonl":
        return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return _csv([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)


def _cell(value: object) -> str:
    if value is None or isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, msgspec.Raw):
        return csv_cell(bytes(value).decode())
    return csv_cell(" ".join(value) if isinstance(value, list) else value)


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")

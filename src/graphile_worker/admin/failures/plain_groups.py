"""Error groups where our tables are missing, as in a schema of Node: by the last errors of failed jobs."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.bulk_changes import FAILED_INDEX
from ...history.error_groups import fingerprint, place_in
from ...values.job import instant
from ...values.schema_name import SchemaName
from ..answers import Count, in_order, not_found
from ..database import Database
from ..security.redact import Redactor
from .queries import (
    LOOK_UP,
    SHOWN_JOBS,
    VALUES,
    FailureDetails,
    FailureGroup,
    FailureList,
    FailuresQuery,
    group_job,
    shared_of,
)

MOST_JOBS = 5_000
_TYPE = re.compile(
    r"^([A-Za-z_][\w.]{0,99}(?:Error|Exception|Warning|Exit|Interrupt|Fault)?): (.*)", re.DOTALL
)


class PlainGroups(msgspec.Struct, frozen=True):
    """Groups, with the ids of the jobs of each."""

    groups: list[FailureGroup]
    job_ids: dict[str, list[int]]
    errors: dict[str, str]
    """The latest error of each group."""
    note: str


async def plain_groups(connection: Connection, schema: SchemaName, redactor: Redactor) -> PlainGroups:
    """Groups of permanently failed jobs, 5,000 at most, the one with the latest job first."""
    await connection.fetchrow(load("manage/read_by_indexes", schema))
    bounds: Any = await connection.fetchrow(
        load("manage/bulk_bounds", schema), f"{schema.quoted}.{FAILED_INDEX}"
    )
    variant = "" if bounds["has_failed_index"] else "@newest"
    rows = await connection.fetch(load(f"admin/failed_errors{variant}", schema), MOST_JOBS)
    by_group: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[_fingerprint(row)].append(row)
    is_cut = len(rows) >= MOST_JOBS
    what = "permanently failed jobs" if bounds["has_failed_index"] else "jobs"
    note = (
        "This schema has no history of errors, so these are groups of the last errors of permanently failed "
        f"jobs. At most the newest {MOST_JOBS:,} {what} are read."
    )
    return PlainGroups(
        [_group(key, found, redactor, is_cut) for key, found in by_group.items()],
        {key: [row["id"] for row in found] for key, found in by_group.items()},
        {key: redactor.text(found[0]["last_error"] or "") for key, found in by_group.items()},
        note,
    )


def _fingerprint(row: Row) -> str:
    kind, message = split_error(row["last_error"] or "")
    return fingerprint(row["task_identifier"], kind, message, row["last_error"] or "")


def split_error(text: str) -> tuple[str, str]:
    """`KeyError: 'sku'` as its type and its message."""
    found = _TYPE.match(text.strip())
    return (found[1], found[2]) if found else ("", text.strip())


def _group(key: str, rows: list[Row], redactor: Redactor, is_cut: bool) -> FailureGroup:
    kind, message = split_error(redactor.text(rows[0]["last_error"] or ""))
    times = [_time(row["failed_at"]) for row in rows]
    known = [time for time in times if time is not None]
    return FailureGroup(
        fingerprint=key,
        task_identifier=rows[0]["task_identifier"],
        error_type=kind,
        message=message.partition("\n")[0][:500],
        place=place_in(rows[0]["last_error"] or ""),
        first_at=min(known, default=None),
        last_at=max(known, default=None),
        errors=len(rows),
        attempts=Count(len(rows), "at_least"),
        failed=Count(len(rows), "at_least" if is_cut else "exact"),
        retrying=Count(0, "at_least"),
        bars=[],
        last_job_id=rows[0]["id"],
    )


def _time(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    try:
        return instant(seconds)
    except (OverflowError, ValueError):
        return datetime.max.replace(tzinfo=UTC)


async def list_failures(database: Database, query: FailuresQuery, redactor: Redactor) -> FailureList:
    """The groups, sorted."""
    async with database.read() as connection:
        found = await plain_groups(connection, database.schema, redactor)
    groups = [group for group in found.groups if query.task in ("", group.task_identifier)]
    items = in_order(groups, query.order, VALUES)[: query.limit]
    return FailureList(items=items, period=query.period, note=found.note, has_tables=False)


async def get_failure(database: Database, fingerprint: str, redactor: Redactor) -> FailureDetails:
    """One group, with its jobs."""
    async with database.read() as connection:
        return await _details(connection, database, fingerprint, redactor)


async def _details(
    connection: Connection, database: Database, fingerprint: str, redactor: Redactor
) -> FailureDetails:
    found = await plain_groups(connection, database.schema, redactor)
    groups = {group.fingerprint: group for group in found.groups}
    if fingerprint not in groups:
        raise not_found("such error group")
    ids = found.job_ids[fingerprint][:LOOK_UP]
    rows = await connection.fetch(load("admin/current_states", database.schema), ids)
    group = groups[fingerprint]
    return FailureDetails(
        group=group,
        error=found.errors[fingerprint],
        error_job_id=group.last_job_id,
        shared=await shared_of(connection, database.schema, ids, group, redactor),
        jobs=[group_job(row, None, None) for row in rows[:SHOWN_JOBS]],
        has_tables=False,
    )

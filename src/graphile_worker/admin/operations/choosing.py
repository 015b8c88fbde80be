"""Which jobs an operation is about: by filter, by error group, or those of an action to undo.

Each step chooses and locks the next jobs; the same transaction then changes them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.bulk_changes import BulkChange, BulkOptions, BulkWalk
from ...database.statements.job_filter import JobFilter
from ...values.schema_name import SchemaName
from ..jobs import ActionName
from ..jobs.filters import Filter
from ..security.redact import Redactor
from . import Chosen

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
ERRORS_PER_STEP = 5_000


class Position(msgspec.Struct, frozen=True):
    """How far an operation has come."""

    last_id: int
    up_to: int
    last_at: datetime | None = None
    until: datetime | None = None
    """When the operation began: later failures are left out."""


class Choice(msgspec.Struct, frozen=True):
    """The jobs of one step."""

    ids: list[int]
    skipped: int
    """Jobs that match, but are running or locked by another transaction."""
    position: Position
    is_last: bool


async def choose(
    connection: Connection,
    schema: SchemaName,
    chosen: Chosen,
    action: ActionName,
    position: Position,
    size: int,
    *,
    errors: int = ERRORS_PER_STEP,
) -> Choice:
    """Lock the next jobs, `size` at most; of an error group, look at no more than `errors` errors."""
    await connection.fetchrow(load("manage/read_by_indexes", schema))
    if chosen.fingerprint is not None:
        return await _choose_of_group(connection, schema, chosen.fingerprint, position, size, errors)
    return await _choose_by_filter(connection, schema, chosen, action, position, size)


async def _choose_by_filter(
    connection: Connection,
    schema: SchemaName,
    chosen: Chosen,
    action: ActionName,
    position: Position,
    size: int,
) -> Choice:
    change = BulkChange("bulk_choose", (action in ("cancel", "add_again"),))
    walk = walk_for(schema, chosen, change, position, size)
    await walk.begin(connection)
    ids: list[int] = []
    if not walk.report.is_complete:
        ids = await walk.step(connection)
    report = walk.report
    at = msgspec.structs.replace(position, last_id=report.last_id)
    return Choice(ids, report.skipped, at, report.is_complete)


async def _choose_of_group(
    connection: Connection, schema: SchemaName, fingerprint: str, position: Position, size: int, errors: int
) -> Choice:
    row: Any = await connection.fetchrow(
        load("admin/choose_of_group", schema),
        fingerprint,
        position.last_at or LONG_AGO,
        position.last_id,
        position.until or datetime.now(UTC),
        errors,
        size,
    )
    ids: list[int] = list(row["ids"])
    last_at, last_id = row["last_at"] or position.last_at, row["last_id"]
    is_last = row["seen"] < errors and len(ids) < size
    if len(ids) >= size:
        last_at, last_id = row["times"][-1], ids[-1]
    at = msgspec.structs.replace(
        position, last_at=last_at, last_id=position.last_id if last_id is None else last_id
    )
    return Choice(list(dict.fromkeys(ids)), 0, at, is_last)


def walk_for(
    schema: SchemaName,
    chosen: Chosen,
    change: BulkChange,
    position: Position,
    size: int,
) -> BulkWalk:
    """The client's walk over the jobs that match, from this position on."""
    found = filter_from(chosen, position.until)
    options = BulkOptions(up_to=position.up_to, step_size=size, all=True)
    wanted = JobFilter(**{**_fields(found), "after": position.last_id or None})
    return BulkWalk(schema, wanted, change, options)


def filter_from(chosen: Chosen, now: datetime | None) -> JobFilter:
    """The filter that the words name; periods in it count from `now`, when the operation began."""
    redactor = Redactor() if chosen.hides_secrets else None
    return Filter.parse(chosen.filter or "").job_filter(now=now, redactor=redactor)


def _fields(filter: JobFilter) -> dict[str, Any]:
    return {name: getattr(filter, name) for name in JobFilter.__dataclass_fields__ if name != "after"}

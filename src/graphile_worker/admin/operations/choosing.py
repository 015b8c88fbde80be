"""Which jobs an operation is about, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.bulk_changes import READ, BulkChange, BulkOptions, BulkWalk
from ...database.statements.job_filter import JobFilter
from ...history.error_groups import ErrorMatcher, list_error_groups
from ...values.schema_name import SchemaName
from ..jobs.changing import ACTIONS, ActionName
from ..jobs.filters import Filter
from ..security.redact import Redactor

CANDIDATES = 200
"""Jobs of a task whose errors are compared in one step, at least."""
GROUPS, TEXTS = 500, 200
"""How many groups of a task are distinguished, and how many errors of a group serve as examples."""
TAUGHT_FOR = timedelta(days=365)


class Chosen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs an operation is about: one of these."""

    filter: str | None = None
    """A filter as in the search box of the page Jobs."""
    shown: str | None = None
    """The filter without secrets, if it has any: all who may read jobs see it."""
    hides_secrets: bool = False
    """Whether the filter is searched as for a person who may not see secrets."""
    only_running: bool = False
    """Whether jobs that do not run are left: cancelling would delete them, which the person may not."""
    fingerprint: str | None = None
    """The jobs of an error group."""
    audit_id: int | None = None
    """The jobs of an action that is undone."""


class Position(msgspec.Struct, frozen=True):
    """How far an operation has come."""

    last_id: int
    up_to: int
    began_at: datetime | None = None
    """Periods in a filter count from here."""


class Choice(msgspec.Struct, frozen=True):
    """The jobs of one step."""

    ids: list[int]
    position: Position
    is_last: bool
    running: list[int] = []
    """Jobs that match, but are running."""
    locked: list[int] = []
    """Jobs that match, but another transaction has locked their rows."""


async def choose(
    connection: Connection,
    schema: SchemaName,
    chosen: Chosen,
    action: ActionName,
    position: Position,
    size: int,
    *,
    read: int = READ,
) -> Choice:
    """The next jobs, `size` at most; of an error group, read no more than `read` jobs."""
    await connection.fetchrow(load("manage/read_by_indexes", schema))
    if chosen.fingerprint is not None:
        return await _choose_of_group(connection, schema, chosen.fingerprint, position, size, read)
    change = BulkChange("bulk_choose", (ACTIONS[action].takes_running,))
    walk = walk_for(schema, chosen, change, position, size)
    await walk.begin(connection)
    ids: list[int] = []
    if not walk.report.is_complete:
        ids = await walk.step(connection)
    report = walk.report
    at = msgspec.structs.replace(position, last_id=report.last_id)
    if not report.skipped:
        return Choice(ids, at, report.is_complete)
    again = msgspec.structs.replace(position, up_to=report.last_id)
    look = walk_for(schema, chosen, BulkChange("bulk_look"), again, READ)
    await look.begin(connection)
    left = sorted(set(await look.step(connection)) - set(ids))
    states = await connection.fetch(load("admin/current_states", schema), left)
    return Choice(
        ids,
        at,
        report.is_complete,
        running=[row["id"] for row in states if row["state"] == "running"],
        locked=[row["id"] for row in states if row["state"] != "running"],
    )


async def _choose_of_group(
    connection: Connection, schema: SchemaName, fingerprint: str, position: Position, size: int, read: int
) -> Choice:
    """By the last errors of jobs: workers keep only some errors of a kind. Where these tell nothing, because
    those of two groups look alike, by the errors that were kept."""
    groups = await list_error_groups(connection, schema, fingerprint=fingerprint, limit=1)
    if not groups:
        return Choice([], position, is_last=True)
    task = groups[0].task_identifier
    others = await list_error_groups(connection, schema, task_identifier=task, limit=GROUPS)
    since = datetime.now(UTC) - TAUGHT_FOR
    kept = await connection.fetch(load("admin/recent_errors_of_group", schema), since, TEXTS, fingerprint)
    matcher = ErrorMatcher([*groups, *others], [(task, fingerprint, row["error"] or "") for row in kept])
    rows = await connection.fetch(
        load("admin/next_with_error", schema),
        task, position.last_id, position.up_to, max(size, CANDIDATES), read,
    )  # fmt: skip
    found = [(row, matcher.groups_of(task, row["error"] or "")) for row in rows if row["id"] is not None]
    unclear = [row["id"] for row, marks in found if len(marks) > 1 and fingerprint in marks]
    latest = await _latest_errors(connection, schema, unclear)
    mine = [row for row, marks in found if latest.get(row["id"], *_only(marks)) == fingerprint]
    taken = mine[:size]
    is_cut = len(mine) > size
    last_id = taken[-1]["id"] if is_cut else rows[0]["last_id"]
    return Choice(
        [row["id"] for row in taken if not row["is_running"]],
        msgspec.structs.replace(position, last_id=position.last_id if last_id is None else last_id),
        is_last=not is_cut and last_id is None,
        running=[row["id"] for row in taken if row["is_running"]],
    )


def _only(marks: frozenset[str]) -> tuple[str | None]:
    return (next(iter(marks)) if len(marks) == 1 else None,)


async def _latest_errors(
    connection: Connection, schema: SchemaName, job_ids: Sequence[int]
) -> dict[int, str]:
    if not job_ids:
        return {}
    rows = await connection.fetch(load("admin/latest_errors_of_jobs", schema), list(job_ids))
    return {row["id"]: row["fingerprint"] for row in rows}


def walk_for(
    schema: SchemaName, chosen: Chosen, change: BulkChange, position: Position, size: int
) -> BulkWalk:
    """The client's walk over the jobs that match, from this position on."""
    redactor = Redactor() if chosen.hides_secrets else None
    found = Filter.parse(chosen.filter or "").job_filter(now=position.began_at, redactor=redactor)
    fields = {name: getattr(found, name) for name in JobFilter.__dataclass_fields__}
    wanted = JobFilter(**{**fields, "after": position.last_id or None})
    return BulkWalk(schema, wanted, change, BulkOptions(up_to=position.up_to, step_size=size, all=True))

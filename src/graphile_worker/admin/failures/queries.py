"""Failures: error groups with what is known of them, bounded however many errors there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.manage_jobs import attempts_made
from ...history.audit import MAX_KEPT, Actor, audit_tables, record
from ...history.error_groups import ErrorGroup, list_error_groups
from ...history.records import list_errors
from ...values.schema_name import SchemaName
from ...values.text import count
from ..answers import Count, Problem, in_order, not_found, shared_with
from ..database import ERRORS, WORKERS, Database, own_tables
from ..jobs.changing import ActionValues, check_values
from ..live.hub import Hub
from ..operations import CAREFUL_RATE, Chosen, DryRun, Example, Operation, queries
from ..security.redact import Redactor
from . import (
    PERIODS,
    FailureDetails,
    FailureGroup,
    FailureList,
    FailuresQuery,
    GroupJob,
    GroupRequest,
    Muted,
    Period,
    SharedMember,
)
from .counts import GROUPS, GroupCount, count_errors
from .plain_groups import plain_groups, shared_members

READ_ERRORS = 1_000
"""Errors of a list that are looked at, the latest ones."""
READ_OF_GROUP = 200
READ_JOBS = 2_000
"""Jobs that are read for examples."""
LOOK_UP = 100
"""Jobs of a group whose states are looked up, for examples."""
BARS = 24
MAX_PAYLOAD = 20_000
"""Bytes of a payload that is compared."""
SHOWN_JOBS = 20
NEW_FOR = timedelta(days=1)
MUTED_FOR = timedelta(days=1)
"""How long a group is muted if the application has no version."""
NOT_ALL = f"Only the {GROUPS} groups that occurred last are sorted."
VALUES: dict[str, Callable[[FailureGroup], Any]] = {
    "name": lambda group: group.title.casefold(),
    "failed": lambda group: group.failed.value,
    "retrying": lambda group: group.retrying.value,
    "attempts": lambda group: group.attempts.value,
    "first": lambda group: group.first_at,
}


class _Sample(msgspec.Struct):
    """The latest errors, by group."""

    errors: dict[str, list[Row]]
    is_cut: bool
    hosts: dict[str, str]
    """Pools to hosts."""


async def list_failures(hub: Hub, query: FailuresQuery, redactor: Redactor) -> FailureList:
    """One page of error groups."""
    database = hub.database
    async with database.read() as connection:
        if not (await own_tables(connection, database.schema)) >= ERRORS:
            found = await plain_groups(connection, database.schema, redactor)
            groups = [group for group in found.groups if query.task in ("", group.task_identifier)]
            return FailureList(
                items=in_order(groups, query.order, VALUES)[: query.limit],
                period=query.period, note=found.note, has_tables=False,
            )  # fmt: skip
        return await _list_failures(connection, hub, query, redactor)


async def _list_failures(
    connection: Connection, hub: Hub, query: FailuresQuery, redactor: Redactor
) -> FailureList:
    schema, now = hub.database.schema, datetime.now(UTC)
    since = now - timedelta(seconds=PERIODS[query.period])
    is_sorted = query.order != "last"
    limit = GROUPS if is_sorted else query.limit
    first, before = (_place(query.after), None) if is_sorted else (0, _cursor(query.after))
    groups = await list_error_groups(
        connection, schema, since=since, task_identifier=query.task or None, limit=limit + 1, before=before
    )
    page = groups[:limit]
    rows = await connection.fetch(load("admin/recent_errors", schema), since, READ_ERRORS)
    sample = await _sample(connection, schema, rows, READ_ERRORS)
    muted = await _muted(connection, schema)
    newest = _newest_version(page)
    counts = await count_errors(hub, connection)
    if is_sorted:  # the jobs of other groups are expensive to count
        page = [group for group in page if group.fingerprint in counts.known]
    items = [
        _group(group, counts.of(group), sample, muted, newest, query.period, now, redactor) for group in page
    ]
    following = page[-1].last_at.isoformat() if len(groups) > limit else None
    if is_sorted:
        end = first + query.limit
        following = str(end) if len(items) > end else None
        items = in_order(items, query.order, VALUES)[first:end]
    return FailureList(
        items=[group for group in items if group.muted_by is None],
        muted=[group for group in items if group.muted_by is not None],
        next=following,
        period=query.period,
        note=NOT_ALL if is_sorted and len(page) < len(groups) else "",
    )


NO_CURSOR = Problem(400, "A value is not valid", "after: not a cursor of this list")


def _place(text: str) -> int:
    """How many groups of a sorted list were on the pages before."""
    if text and not (text.isdecimal() and int(text) <= GROUPS):
        raise NO_CURSOR
    return int(text or 0)


def _cursor(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NO_CURSOR from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def _sample(connection: Connection, schema: SchemaName, rows: Sequence[Row], most: int) -> _Sample:
    errors: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        errors[row["fingerprint"]].append(row)
    hosts: dict[str, str] = {}
    if WORKERS in await own_tables(connection, schema):
        pools = await connection.fetch(load("admin/hosts_of_pools", schema))
        hosts = {row["id"]: row["host"] for row in pools}
    return _Sample(dict(errors), len(rows) >= most, hosts)


def _group(
    group: ErrorGroup,
    jobs: GroupCount,
    sample: _Sample,
    muted: Mapping[str, Row],
    newest: str | None,
    period: Period,
    now: datetime,
    redactor: Redactor,
) -> FailureGroup:
    errors = sample.errors.get(group.fingerprint, [])
    hosts = sorted({sample.hosts[row["pool_id"]] for row in errors if row["pool_id"] in sample.hosts})
    versions = sorted({row["version"] for row in errors if row["version"]})
    muting = muted.get(group.fingerprint)
    new_since = group.first_version if newest is not None and group.first_version == newest else None
    return shared_with(
        group, FailureGroup,
        message=redactor.text(group.message),
        attempts=_attempts(group, len(errors), sample, now - timedelta(seconds=PERIODS[period])),
        failed=jobs.failed,
        retrying=jobs.retrying,
        bars=_bars(errors, period, now),
        is_new=new_since is not None or group.first_at >= now - NEW_FOR,
        new_since=new_since,
        versions=versions,
        hosts=hosts,
        only_on=_only_on(errors, hosts, versions, sample),
        muted_by=muting["who"] if muting is not None and _is_muted(muting, group, now) else None,
    )  # fmt: skip


def _attempts(group: ErrorGroup, kept: int, sample: _Sample, since: datetime) -> Count:
    """Failed attempts since a time. Not every error is kept, but the group counts all of them."""
    if group.first_at >= since:
        return Count(max(group.errors, kept), "exact")
    return Count(kept, "at_least" if sample.is_cut else "exact")


def _newest_version(groups: Iterable[ErrorGroup]) -> str | None:
    """The version of the latest error, if others were seen before it."""
    versions = [group.last_version for group in groups if group.last_version]
    earlier = {group.first_version for group in groups if group.first_version}
    return versions[0] if versions and earlier - {versions[0]} else None


def _only_on(
    errors: Sequence[Row], hosts: Sequence[str], versions: Sequence[str], sample: _Sample
) -> str | None:
    """A host or a version that all errors of a group share, although there are others."""
    if len(errors) < 3:
        return None
    is_known = all(row["pool_id"] in sample.hosts for row in errors)
    if is_known and len(hosts) == 1 and len(set(sample.hosts.values())) > 1:
        return f"only on host {hosts[0]}"
    others = {row["version"] for found in sample.errors.values() for row in found if row["version"]}
    if len(versions) == 1 and len(others) > 1 and all(row["version"] for row in errors):
        return f"only in version {versions[0]}"
    return None


def _bars(errors: Sequence[Row], period: Period, now: datetime) -> list[int]:
    bars, step = [0] * BARS, PERIODS[period] / BARS
    for row in errors:
        age = (now - row["failed_at"]).total_seconds()
        place = BARS - 1 - int(max(0.0, age) / step)
        if 0 <= place < BARS:
            bars[place] += 1
    return bars


# -- one group ---------------------------------------------------------------------------------------------


async def get_failure(hub: Hub, fingerprint: str, redactor: Redactor) -> FailureDetails:
    """One group: the latest error, what its jobs share, and the jobs."""
    database = hub.database
    async with database.read() as connection:
        if not (await own_tables(connection, database.schema)) >= ERRORS:
            return await _plain_details(connection, database, fingerprint, redactor)
        return await _details(connection, hub, fingerprint, redactor)


async def _details(connection: Connection, hub: Hub, fingerprint: str, redactor: Redactor) -> FailureDetails:
    schema, now = hub.database.schema, datetime.now(UTC)
    group = await _error_group(connection, schema, fingerprint)
    since = now - timedelta(seconds=PERIODS["7d"])
    rows = await connection.fetch(
        load("admin/recent_errors_of_group", schema), since, READ_OF_GROUP, fingerprint
    )
    sample = await _sample(connection, schema, rows, READ_OF_GROUP)
    muted = await _muted(connection, schema)
    counts = await count_errors(hub, connection)
    found = _group(group, counts.of(group), sample, muted, None, "7d", now, redactor)
    latest = await list_errors(connection, schema, fingerprint=fingerprint, limit=1)
    error = latest[0] if latest else None
    jobs, times = await _jobs(connection, schema, rows, group)
    shown = jobs[:SHOWN_JOBS]
    made = await attempts_made(connection, schema, [row["id"] for row in shown if row["state"] == "failed"])
    return FailureDetails(
        group=found,
        error=redactor.text(error.traceback or error.message) if error else redactor.text(group.message),
        error_job_id=error.job_id if error else None,
        shared=await _shared(connection, schema, [row["id"] for row in jobs], group, redactor),
        jobs=[_job(row, times.get(row["id"]), made.get(row["id"])) for row in shown],
        operation_id=await _active_operation(connection, schema, fingerprint),
    )


async def _jobs(
    connection: Connection, schema: SchemaName, errors: Sequence[Row], group: ErrorGroup
) -> tuple[list[Row], dict[int, datetime]]:
    """Jobs of the group that have failed or wait: those of the latest errors, else the next ones by id."""
    times = {row["job_id"]: row["failed_at"] for row in reversed(errors)}
    latest = sorted(times, key=times.__getitem__, reverse=True)[:LOOK_UP]
    states = await connection.fetch(load("admin/current_states", schema), sorted(latest))
    jobs = [row for row in states if row["state"] in ("failed", "retrying")]
    if not jobs:
        start = queries.Position(0, 2**63 - 1)
        chosen = Chosen(fingerprint=group.fingerprint)
        found = await queries.choose(connection, schema, chosen, "retry", start, LOOK_UP, read=READ_JOBS)
        jobs = list(await connection.fetch(load("admin/current_states", schema), found.ids))
    jobs.sort(key=lambda row: (row["id"] in times, times.get(row["id"], row["run_at"])), reverse=True)
    return jobs, times


async def _error_group(connection: Connection, schema: SchemaName, fingerprint: str) -> ErrorGroup:
    found = await list_error_groups(connection, schema, fingerprint=fingerprint, limit=1)
    if not found:
        raise not_found("such error group")
    return found[0]


def _job(row: Row, failed_at: datetime | None, made: int | None) -> GroupJob:
    return GroupJob(
        row["id"], row["state"], row["attempts"], row["max_attempts"], row["run_at"], failed_at, made
    )


async def _shared(
    connection: Connection,
    schema: SchemaName,
    ids: Sequence[int],
    group: ErrorGroup | FailureGroup,
    redactor: Redactor,
) -> list[SharedMember]:
    rows = await connection.fetch(load("admin/payloads_of_jobs", schema), list(ids), MAX_PAYLOAD)
    return shared_members([redactor.payload(row["payload"], group.task_identifier) for row in rows])


async def _active_operation(connection: Connection, schema: SchemaName, fingerprint: str) -> int | None:
    if not (await audit_tables(connection, schema)).may_read:
        return None
    for row in await connection.fetch(load("admin/active_operations", schema)):
        if msgspec.json.decode(row["chosen"], type=Chosen).fingerprint == fingerprint:
            found: int = row["id"]
            return found
    return None


async def _plain_details(
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
        shared=await _shared(connection, database.schema, ids, group, redactor),
        jobs=[_job(row, None, None) for row in rows[:SHOWN_JOBS]],
        has_tables=False,
    )


# -- actions on a group ------------------------------------------------------------------------------------


async def dry_run(hub: Hub, fingerprint: str, request: GroupRequest, environment: str) -> DryRun:
    """How many jobs an action on the group would change: as many as its page says."""
    database, start = hub.database, queries.Position(0, 2**63 - 1)
    async with database.read() as connection:
        if not (await own_tables(connection, database.schema)) >= ERRORS:
            raise queries.MISSING
        group = await _error_group(connection, database.schema, fingerprint)
        jobs = (await count_errors(hub, connection, max_age=0)).of(group)
        chosen = Chosen(fingerprint=fingerprint)
        choice = await queries.choose(
            connection, database.schema, chosen, request.change, start, queries.EXAMPLES, read=READ_JOBS
        )
        rows = await connection.fetch(load("admin/current_states", database.schema), choice.ids)
    return DryRun(
        action=request.change,
        target=target_of(group),
        count=jobs.all,
        examples=[Example(row["id"], group.task_identifier, row["state"]) for row in rows],
        seconds=queries.seconds_for(jobs.all.value, request.rate),
        needs_confirmation=queries.needs_confirmation(jobs.all, environment),
        can_undo=jobs.all.value <= MAX_KEPT,
        note=_note(jobs),
    )


def _note(jobs: GroupCount) -> str:
    """What the count is made of, and what cannot be found."""
    sentences = []
    if jobs.failed.value and jobs.retrying.value:
        sentences.append(f"{jobs.failed} have failed permanently, {jobs.retrying} wait for another attempt.")
    if jobs.all.kind != "exact":
        sentences.append("The number is an estimate; all jobs of the group are found.")
    if jobs.unclear:
        sentences.append(
            f"{count(jobs.unclear, 'more job')} may be of this group, and cannot be told apart from those of "
            "another one: their errors look alike after redaction, and were not kept. They stay as they are."
        )
    return " ".join(sentences)


def target_of(group: ErrorGroup) -> str:
    kind = group.error_type or Redactor().text(group.message)[:60]
    return f"jobs of {group.task_identifier} with {kind} ({group.fingerprint})"


async def change_group(
    hub: Hub, actor: Actor, fingerprint: str, request: GroupRequest, environment: str
) -> Operation:
    """An action on all jobs of the group.

    A careful one retries some of them first; when they have succeeded, the others, until one fails.
    """
    database = hub.database
    check_values(request.change, request)
    await queries.require_tables(database)
    found = await dry_run(hub, fingerprint, request, environment)
    queries.check_confirmation(found, request.number)
    if not request.is_careful:
        return await queries.begin(
            database, actor, Chosen(fingerprint=fingerprint), found, request, rate=request.rate
        )
    async with database.read() as connection:
        active = await _active_operation(connection, database.schema, fingerprint)
    if active is not None:
        raise Problem(409, "An operation on this group is under way", f"It is operation {active}.")
    return await queries.begin(
        database, actor, Chosen(fingerprint=fingerprint), found, ActionValues(),
        rate=request.rate or CAREFUL_RATE, stage="canary", more={"canary": request.canary},
    )  # fmt: skip


# -- muting ------------------------------------------------------------------------------------------------


async def mute(database: Database, actor: Actor, fingerprint: str, reason: str) -> Muted:
    """Hide the group until it occurs in another version of the application; without versions, for a day."""
    await queries.require_tables(database)
    async with database.write() as connection:
        group = await _error_group(connection, database.schema, fingerprint)
        until = None if group.last_version else datetime.now(UTC) + MUTED_FOR
        await connection.execute(
            load("admin/mute_error", database.schema),
            fingerprint, group.last_version, until, actor.name, reason,
        )  # fmt: skip
        await record(
            connection, database.schema, actor, "mute_error", target=target_of(group),
            details={"reason": reason, "version": group.last_version},
        )  # fmt: skip
    return Muted(fingerprint=fingerprint, is_muted=True, version=group.last_version, until=until)


async def unmute(database: Database, actor: Actor, fingerprint: str) -> Muted:
    """Show the group again."""
    await queries.require_tables(database)
    async with database.write() as connection:
        group = await _error_group(connection, database.schema, fingerprint)
        await connection.fetchval(load("admin/unmute_error", database.schema), fingerprint)
        await record(connection, database.schema, actor, "unmute_error", target=target_of(group))
    return Muted(fingerprint=fingerprint, is_muted=False)


async def _muted(connection: Connection, schema: SchemaName) -> dict[str, Row]:
    if not (await audit_tables(connection, schema)).may_read:
        return {}
    rows = await connection.fetch(load("admin/muted_errors", schema))
    return {row["fingerprint"]: row for row in rows}


def _is_muted(muting: Row, group: ErrorGroup, now: datetime) -> bool:
    if muting["until"] is not None:
        return bool(muting["until"] > now)
    return bool(muting["version"] == group.last_version)

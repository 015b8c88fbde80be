"""Failures: error groups with what is known of them, bounded however many errors there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.manage_jobs import attempts_made
from ...history.audit import audit_tables
from ...history.error_groups import ErrorGroup, list_error_groups
from ...history.records import list_errors
from ...values.payload import without_trace
from ...values.schema_name import SchemaName
from ...values.text import how_it_failed
from ..answers import Count, Problem, in_order, not_found, shared_with
from ..database import WORKERS, own_tables
from ..live.hub import Hub
from ..operations.choosing import Chosen, Position, choose
from ..security.redact import HIDDEN, Redactor
from .counts import GROUPS, GroupCount, count_errors

Period = Literal["1h", "24h", "7d"]
PERIODS: dict[Period, float] = {"1h": 3600.0, "24h": 86_400.0, "7d": 604_800.0}


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of one kind from one place."""

    fingerprint: str
    task_identifier: str
    error_type: str
    message: str
    """Of the latest error."""
    place: str
    first_at: datetime | None
    last_at: datetime | None
    errors: int
    """Failed attempts in all."""
    attempts: Count
    """Failed attempts in the period."""
    failed: Count
    """Jobs that are permanently failed now."""
    retrying: Count
    """Jobs that wait for their next attempt."""
    bars: list[int]
    """Failed attempts over the period."""
    last_job_id: int
    is_new: bool = False
    new_since: str | None = None
    """The version of the application with which it began, if earlier ones did not have it."""
    first_version: str | None = None
    last_version: str | None = None
    versions: list[str] = []
    hosts: list[str] = []
    only_on: str | None = None
    """What all of its errors share and others do not: a host, or a version."""
    muted_by: str | None = None

    @property
    def title(self) -> str:
        return f"{self.error_type}: {self.message}" if self.error_type else self.message


class FailureList(msgspec.Struct, frozen=True, kw_only=True):
    """Error groups."""

    items: list[FailureGroup]
    muted: list[FailureGroup] = []
    next: str | None = None
    period: Period = "24h"
    note: str = ""
    """Where the list comes from, if it is not complete."""
    has_tables: bool = True


class SharedMember(msgspec.Struct, frozen=True):
    """A member of the payload that most of the failed jobs share."""

    path: str
    value: str
    jobs: int
    of: int


class GroupJob(msgspec.Struct, frozen=True):
    """A job whose latest error is of the group."""

    id: int
    state: str
    attempts: int
    max_attempts: int
    run_at: datetime
    failed_at: datetime | None = None
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""

    @property
    def tried(self) -> str:
        """How many attempts there were."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        return f"{self.attempts} of {self.max_attempts}"


class FailureDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One error group."""

    group: FailureGroup
    error: str
    """The latest error, with its traceback if there is one; redacted."""
    error_job_id: int | None
    shared: list[SharedMember]
    jobs: list[GroupJob]
    operation_id: int | None = None
    """A careful retry that is under way."""
    has_tables: bool = True


FailureOrder = Literal["last", "first", "name", "failed", "retrying", "attempts"]


class FailuresQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which error groups to list."""

    period: Period = "24h"
    task: Annotated[str, msgspec.Meta(max_length=200)] = ""
    order: FailureOrder = "last"
    """The largest number first, or the latest time."""
    after: Annotated[str, msgspec.Meta(max_length=60)] = ""
    """`next` of the page before, which had the same order."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 25


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
    async with hub.database.read() as connection:
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
    async with hub.database.read() as connection:
        return await _details(connection, hub, fingerprint, redactor)


async def _details(connection: Connection, hub: Hub, fingerprint: str, redactor: Redactor) -> FailureDetails:
    schema, now = hub.database.schema, datetime.now(UTC)
    group = await find_group(connection, schema, fingerprint)
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
        shared=await shared_of(connection, schema, [row["id"] for row in jobs], group, redactor),
        jobs=[group_job(row, times.get(row["id"]), made.get(row["id"])) for row in shown],
        operation_id=await active_operation(connection, schema, fingerprint),
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
        start = Position(0, 2**63 - 1)
        chosen = Chosen(fingerprint=group.fingerprint)
        found = await choose(connection, schema, chosen, "retry", start, LOOK_UP, read=READ_JOBS)
        jobs = list(await connection.fetch(load("admin/current_states", schema), found.ids))
    jobs.sort(key=lambda row: (row["id"] in times, times.get(row["id"], row["run_at"])), reverse=True)
    return jobs, times


async def find_group(connection: Connection, schema: SchemaName, fingerprint: str) -> ErrorGroup:
    found = await list_error_groups(connection, schema, fingerprint=fingerprint, limit=1)
    if not found:
        raise not_found("such error group")
    return found[0]


def group_job(row: Row, failed_at: datetime | None, made: int | None) -> GroupJob:
    return GroupJob(
        row["id"], row["state"], row["attempts"], row["max_attempts"], row["run_at"], failed_at, made
    )


async def shared_of(
    connection: Connection,
    schema: SchemaName,
    ids: Sequence[int],
    group: ErrorGroup | FailureGroup,
    redactor: Redactor,
) -> list[SharedMember]:
    rows = await connection.fetch(load("admin/payloads_of_jobs", schema), list(ids), MAX_PAYLOAD)
    return shared_members([redactor.payload(row["payload"], group.task_identifier) for row in rows])


async def active_operation(connection: Connection, schema: SchemaName, fingerprint: str) -> int | None:
    if not (await audit_tables(connection, schema)).may_read:
        return None
    for row in await connection.fetch(load("admin/active_operations", schema)):
        if msgspec.json.decode(row["chosen"], type=Chosen).fingerprint == fingerprint:
            found: int = row["id"]
            return found
    return None


# -- muted groups -------------------------------------------------------------------------------------------


async def _muted(connection: Connection, schema: SchemaName) -> dict[str, Row]:
    if not (await audit_tables(connection, schema)).may_read:
        return {}
    rows = await connection.fetch(load("admin/muted_errors", schema))
    return {row["fingerprint"]: row for row in rows}


def _is_muted(muting: Row, group: ErrorGroup, now: datetime) -> bool:
    if muting["until"] is not None:
        return bool(muting["until"] > now)
    return bool(muting["version"] == group.last_version)


# -- shared members -----------------------------------------------------------------------------------------

LEAST_JOBS = 3
LEAST_SHARE = 0.8
DEEPEST = 4
MOST_MEMBERS = 200
MOST_SHOWN = 8
LONGEST = 80


def shared_members(payloads: Sequence[str]) -> list[SharedMember]:
    """Members with the same value in at least four of five payloads, which have been redacted before."""
    decoded = [value for value in map(_decoded, payloads) if value is not None]
    if len(decoded) < LEAST_JOBS:
        return []
    found: Counter[tuple[str, str]] = Counter()
    for value in decoded:
        found.update(dict.fromkeys(_members(value), 1))
    common = [
        SharedMember(path, text, number, len(decoded))
        for (path, text), number in found.most_common(MOST_MEMBERS)
        if number >= LEAST_SHARE * len(decoded)
    ]
    return common[:MOST_SHOWN]


def _decoded(raw: str) -> Any:
    try:
        return msgspec.json.decode(without_trace(raw))
    except (msgspec.DecodeError, RecursionError):
        return None


def _members(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Paths and plain values, as JSON texts; redacted ones are left out."""
    if isinstance(value, dict) and depth < DEEPEST:
        for name, each in list(value.items())[:MOST_MEMBERS]:
            yield from _members(each, f"{path}.{name}" if path else str(name), depth + 1)
    elif path and not isinstance(value, dict | list) and not (isinstance(value, str) and HIDDEN in value):
        text = msgspec.json.encode(value).decode()
        if len(text) <= LONGEST and len(path) <= LONGEST:
            yield path, text

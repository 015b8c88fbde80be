"""How many jobs of each error group are failed or wait for another attempt: one way for all pages.

Up to `EXACT` failed jobs, and as many waiting ones, are read along their indexes, and each counts for the
group of its `last_error`. Beyond that a part of the table's pages is read, and the numbers are estimates.
What is read has a bound, so the cost does not depend on the number of jobs. Those who ask at once share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.bulk_changes import FAILED_INDEX
from ...database.statements.inspection import jobs_table_pages
from ...history.error_groups import ErrorGroup, ErrorMatcher, list_error_groups
from ...values.schema_name import SchemaName
from ..answers import Count
from ..live.hub import Hub

EXACT = 20_000
"""Jobs of a state that are counted one by one."""
PAGES = 150
"""Of the jobs table, in a sample; a table that is not larger is read as a whole."""
GROUPS = 500
"""Error groups that are told apart, the latest ones."""
TEXTS = 500
"""Errors that teach what the errors of a group look like, the latest ones."""
KEPT = 5_000
"""Errors of a group whose jobs are looked up, if its errors look like those of another group."""
TAUGHT_FOR = timedelta(days=7)
SHARED_FOR = 2.0
"""Seconds for which pages show the same count."""


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The jobs of an error group that are not running."""

    failed: Count
    """Permanently failed."""
    retrying: Count
    """Waiting for their next attempt."""
    unclear: int = 0
    """Jobs that may be of the group: their errors look like those of another one, and were not kept."""

    @property
    def all(self) -> Count:
        """All jobs that an action on the group changes."""
        return _sum(self.failed, self.retrying)


@dataclass(slots=True)
class ErrorCounts:
    """What failed jobs failed with, and the groups that this belongs to."""

    matcher: ErrorMatcher
    known: frozenset[str]
    rows: Sequence[Row]
    factor: dict[str, float]
    """How many jobs one that was read stands for, by state."""
    jobs: dict[tuple[str, str], int] = field(default_factory=dict)
    """By fingerprint and state."""
    unclear: Counter[str] = field(default_factory=Counter)

    def of(self, group: ErrorGroup) -> GroupCount:
        """The jobs of a group."""
        if group.fingerprint in self.known:
            jobs, unclear = self.jobs, self.unclear
        else:
            jobs, unclear = _by_group(ErrorMatcher([group]), self.rows)
        return GroupCount(
            self._count(group.fingerprint, "failed", jobs, group.permanent),
            self._count(group.fingerprint, "retrying", jobs, group.errors),
            unclear[group.fingerprint],
        )

    def _count(self, fingerprint: str, state: str, jobs: dict[tuple[str, str], int], most: int) -> Count:
        """Of an estimate, not more than the errors that workers have counted; a sample may miss a few."""
        found, factor = jobs.get((fingerprint, state), 0), self.factor[state]
        if factor == 1:
            return Count(found)
        return estimate(min(found * factor, most)) if found else Count(0, "at_least")


async def count_errors(hub: Hub, connection: Connection, *, max_age: float = SHARED_FOR) -> ErrorCounts:
    """The counts of all groups, at most `max_age` seconds old."""
    return await hub.shared(
        "error counts",
        lambda: read_counts(connection, hub.database.schema),
        max_age=max_age,
        topic="failures",
    )


async def read_counts(connection: Connection, schema: SchemaName) -> ErrorCounts:
    """The counts of all groups, now."""
    since = datetime.now(UTC) - TAUGHT_FOR
    groups = await list_error_groups(connection, schema, limit=GROUPS)
    kept = await connection.fetch(load("admin/recent_errors", schema), since, TEXTS)
    tasks = {group.fingerprint: group.task_identifier for group in groups}
    texts = [
        (tasks[row["fingerprint"]], row["fingerprint"], row["error"] or "")
        for row in kept
        if row["fingerprint"] in tasks
    ]
    matcher = ErrorMatcher(groups, texts)
    rows, factor = await _read_jobs(connection, schema)
    found = ErrorCounts(matcher, frozenset(group.fingerprint for group in groups), rows, factor)
    found.jobs, found.unclear = _by_group(matcher, rows)
    for fingerprint in [*found.unclear]:
        await _add_kept(connection, schema, found, fingerprint)
    return found


async def _read_jobs(connection: Connection, schema: SchemaName) -> tuple[list[Row], dict[str, float]]:
    pages = await jobs_table_pages(connection, schema)
    if pages <= PAGES:
        return await _sampled(connection, schema, 1.0), {"failed": 1.0, "retrying": 1.0}
    await connection.fetchrow(load("manage/read_by_indexes", schema))
    index = f"{schema.quoted}.{FAILED_INDEX}"
    bounds: Any = await connection.fetchrow(load("manage/bulk_bounds", schema), index)
    known: Any = await connection.fetchrow(load("admin/job_estimates", schema), schema.name, 0)
    variant = "" if bounds["has_failed_index"] else "@newest"
    rows: list[Row] = []
    factor = {"failed": 0.0, "retrying": 0.0}
    for state, statement, estimated in (
        ("failed", f"errors_of_failed{variant}", (known["failed"] or 0) / 2),  # it may be old, and is cheap
        ("retrying", "errors_of_waiting", known["waiting"]),
    ):
        if estimated > EXACT:
            continue
        found = await connection.fetch(load(f"admin/{statement}", schema), EXACT + 1)
        if found[0]["seen"] <= EXACT:
            rows += [row for row in found if row["state"]]
            factor[state] = 1.0
    if not all(factor.values()):
        share = PAGES / pages
        rows += [row for row in await _sampled(connection, schema, share) if not factor[row["state"]]]
        factor = {state: known or 1 / share for state, known in factor.items()}
    return rows, factor


async def _sampled(connection: Connection, schema: SchemaName, share: float) -> list[Row]:
    rows = await connection.fetch(load("admin/errors_in_sample", schema), share * 100)
    return [row for row in rows if row["state"]]


def _by_group(matcher: ErrorMatcher, rows: Sequence[Row]) -> tuple[dict[tuple[str, str], int], Counter[str]]:
    jobs: Counter[tuple[str, str]] = Counter()
    unclear: Counter[str] = Counter()
    for row in rows:
        found = matcher.groups_of(row["task_identifier"], row["error"] or "")
        if len(found) == 1:
            jobs[next(iter(found)), row["state"]] += row["jobs"]
        for fingerprint in found if len(found) > 1 else ():
            unclear[fingerprint] += row["jobs"]
    return dict(jobs), unclear


async def _add_kept(
    connection: Connection, schema: SchemaName, counts: ErrorCounts, fingerprint: str
) -> None:
    """Count the jobs whose errors look like those of another group, but were kept."""
    kept = await connection.fetch(load("admin/jobs_of_kept_errors", schema), fingerprint, KEPT)
    group = await list_error_groups(connection, schema, fingerprint=fingerprint, limit=1)
    task = group[0].task_identifier if group else ""
    for row in kept:
        alike = counts.matcher.groups_of(task, row["error"] or "")
        if len(alike) > 1:
            counts.jobs[fingerprint, row["state"]] = counts.jobs.get((fingerprint, row["state"]), 0) + 1
            counts.unclear.subtract(dict.fromkeys(alike, 1))


def estimate(value: float) -> Count:
    """A number that is about right, with two digits that say something."""
    unit = 10 ** max(0, len(str(round(value))) - 2)
    return Count(round(value / unit) * unit, "estimate")


def _sum(first: Count, second: Count) -> Count:
    if first.kind == second.kind == "exact":
        return Count(first.value + second.value)
    return estimate(first.value + second.value)

"""How many jobs there are: exact below a bound, else an estimate that says so."""

from __future__ import annotations

from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.job_filter import JobFilter
from ...values.schema_name import SchemaName
from ..models.common import Count

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

"""The doctor's findings, as the command gives them, and the maintenance that they advise."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Literal

import msgspec

from ...database.connections.errors import explained
from ...database.migrations.own_objects import Change, applied_numbers, missing_changes
from ...database.migrations.state import SUPPORTED_REVISION, read_state
from ...database.sql import load
from ...diagnostics.examine import examine_on
from ...diagnostics.facts import Depth
from ...diagnostics.finding import SEVERITIES, Finding
from ...history.audit import Actor, record
from ...metrics.catalogue import EXPORTER_UP, INFO, LAST_SUCCESS
from ...metrics.database_reader import pool_gauges, read_table_gauges, ready_gauges
from ...metrics.families import Family, gauges_as_text, labelled, single
from ...values import __version__
from ...values.options import WorkerOptions
from ...values.text import count, duration
from ..database import CONNECTION_WITHIN, STEP_WITHIN, Database
from ..live.hub import Hub
from ..live.sampler import Sample
from ..security.identity import Identity
from ..security.redact import Redactor

Remedy = Literal["sweep", "cleanup", "migrate"]


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    check: str
    severity: Literal["error", "warning", "info", "ok"]
    summary: str
    meaning: str = ""
    advice: str = ""
    remedy: Remedy | None = None
    """What of `/maintenance` may help."""
    path: str | None = None
    """A page of the dashboard that shows more."""


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, worst first."""

    findings: list[FindingView]
    errors: int
    warnings: int
    examined_at: datetime


class MaintenanceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Maintenance; a dry run only says what would be done."""

    dry_run: bool = False


class MaintenanceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    what: Remedy
    is_dry_run: bool
    changed: bool
    """Whether anything was done, or would be."""
    lines: list[str]
    """In words."""


class OwnTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the schema."""

    name: str
    bytes: int | None
    """With indexes. This and `rows` are of the last vacuum or analyze; None if there has been none."""
    rows: int | None


class OwnObject(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the Python-only objects in the schema."""

    number: int
    name: str
    is_applied: bool


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the dashboard runs on, and what its user may do."""

    version: str
    python: str
    server: str
    database: str
    schema: str
    role: str
    revision: int | None
    supported_revision: int
    objects: list[OwnObject]
    tables: list[OwnTable]
    settings: dict[str, str]
    user: str
    permissions: list[str]
    is_read_only: bool


DEPTH = Depth(listed_failures=100, counted_pages=200, sampled_pages=60, waiting_queues=40, ready_jobs=50)
"""What the page may read of a large table; the command reads more."""
_REMEDIES: dict[str, Remedy] = {
    "schema": "migrate",
    "indexes": "migrate",
    "workers": "sweep",
    "locks": "sweep",
}
_PAGES = {
    "failures": "/failures", "workers": "/workers", "locks": "/workers", "queues": "/queues",
    "waiting": "/jobs", "limits": "/tasks",
}  # fmt: skip
"""Where to look further. Pauses are on top of every page."""


async def examine_database(database: Database, redactor: Redactor) -> DoctorReport:
    """Run every check; nothing is changed. Findings quote errors of jobs."""
    await database.open()
    pool = database.utils.pool
    async with (
        AsyncExitStack() as counting,
        pool.acquire(timeout=CONNECTION_WITHIN) as connection,
        pool.acquire(timeout=CONNECTION_WITHIN) as other,
    ):
        counting.enter_context(database.meter.counting(connection))
        counting.enter_context(database.meter.counting(other))
        options = WorkerOptions(schema=database.schema.name)
        found = await examine_on(options, connection, other, clock=database.clock, depth=DEPTH)
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return DoctorReport(
        findings=[_view(finding, redactor) for finding in found],
        errors=sum(finding.severity == "error" for finding in found),
        warnings=sum(finding.severity == "warning" for finding in found),
        examined_at=database.clock.now(),
    )


def _view(finding: Finding, redactor: Redactor) -> FindingView:
    is_bad = finding.severity in ("error", "warning", "info")
    return FindingView(
        check=finding.check,
        severity=finding.severity,
        summary=redactor.text(finding.summary),
        meaning=redactor.text(finding.meaning),
        advice=redactor.text(finding.advice),
        remedy=_REMEDIES.get(finding.check) if is_bad else None,
        path=_PAGES.get(finding.check) if is_bad else None,
    )


async def sweep(database: Database, actor: Actor, *, dry_run: bool) -> MaintenanceAnswer:
    """Recover the jobs of dead workers now."""
    await database.open()
    report = await database.utils.sweep_stale_workers(dry_run=dry_run)
    lines = []
    for worker in report.recovered:
        returned = f"{count(len(worker.returned), 'job')} {'would be ' if dry_run else ''}returned"
        failed = f", {count(len(worker.failed), 'job')} failed" if worker.failed else ""
        lines.append(f"{worker.id} is dead: {returned}{failed}.")
    lines += [
        f"{pool_id} will be declared dead in {duration(seconds)}." for pool_id, seconds in report.lost.items()
    ]
    if report.is_busy:
        lines.append("Another sweep is in progress.")
    if not dry_run:
        await _record(database, actor, "sweep", len(report.recovered))
    return MaintenanceAnswer(
        what="sweep", is_dry_run=dry_run, changed=bool(report.recovered), lines=lines or ["No dead workers."]
    )


async def cleanup(database: Database, actor: Actor, *, dry_run: bool) -> MaintenanceAnswer:
    """Delete unused queues."""
    if dry_run:
        async with database.read() as connection:
            has_some = bool(await connection.fetchval(load("maintain/has_unused_queues", database.schema)))
        lines = ["Queues without jobs would be deleted." if has_some else "There is nothing to delete."]
        return MaintenanceAnswer(what="cleanup", is_dry_run=True, changed=has_some, lines=lines)
    await database.open()
    report = await database.utils.cleanup(["GC_JOB_QUEUES"])
    await _record(database, actor, "cleanup", report.job_queues)
    return MaintenanceAnswer(
        what="cleanup", is_dry_run=False, changed=report.job_queues > 0,
        lines=[f"Deleted {count(report.job_queues, 'unused queue')}."],
    )  # fmt: skip


async def migrate(database: Database, actor: Actor, *, dry_run: bool) -> MaintenanceAnswer:
    """Upgrade the schema to what this package supports."""
    if dry_run:
        return await _missing(database)
    await database.open()
    report = await database.utils.migrate()
    await _record(database, actor, "migrate", len(report.applied_revisions) + len(report.applied_own_objects))
    lines = [f"Applied revision {number}." for number in report.applied_revisions]
    lines += [f"Applied Python-only objects {number}." for number in report.applied_own_objects]
    lines += [f"Still missing: {name}." for name in sorted(report.missing_own_objects)]
    return MaintenanceAnswer(
        what="migrate", is_dry_run=False, changed=report.changed, lines=lines or ["The schema is up to date."]
    )


async def _missing(database: Database) -> MaintenanceAnswer:
    async with database.read() as connection:
        state = await read_state(connection, database.schema)
        applied = await applied_numbers(connection, database.schema) if state.has_own_ledger else set()
    lines = []
    if (state.revision or 0) < SUPPORTED_REVISION:
        lines.append(
            f"The shared schema would go from revision {state.revision or 0} to {SUPPORTED_REVISION}."
        )
    lines += [
        f"Python-only objects {change.value} ({change.label}) would be created."
        for change in missing_changes(applied)
    ]
    return MaintenanceAnswer(
        what="migrate", is_dry_run=True, changed=bool(lines), lines=lines or ["The schema is up to date."]
    )


async def _record(database: Database, actor: Actor, action: str, number: int) -> None:
    async with database.write(within=STEP_WITHIN) as connection:
        await record(connection, database.schema, actor, action, details={"changed": number})


# -- about --------------------------------------------------------------------------------------------------


async def about(database: Database, identity: Identity, settings: Mapping[str, str]) -> About:
    """Everything about this dashboard; `settings` in words."""
    async with database.read() as connection:
        state = await read_state(connection, database.schema)
        applied = await applied_numbers(connection, database.schema) if state.has_own_ledger else set()
        server = await connection.fetchrow(load("admin/server"))
        rows = await connection.fetch(load("admin/table_sizes", database.schema), database.schema.name)
    return About(
        version=__version__,
        python=platform.python_version(),
        server="" if server is None else server["version"],
        database="" if server is None else server["database"],
        schema=database.schema.name,
        role="" if server is None else server["role"],
        revision=state.revision,
        supported_revision=state.known_revision,
        objects=[
            OwnObject(number=change, name=change.label, is_applied=change in applied) for change in Change
        ],
        tables=[OwnTable(name=row["name"], bytes=row["bytes"], rows=row["rows"]) for row in rows],
        settings=dict(settings),
        user=identity.name,
        permissions=sorted(identity.permissions),
        is_read_only=database.is_read_only,
    )


# -- gauges for Prometheus ----------------------------------------------------------------------------------

logger = logging.getLogger("graphile_worker.admin")

TABLE_EVERY = 60.0
"""Seconds between two counts of jobs by task and by queue."""
MAX_AGE = 15.0
"""Seconds. Scrapes that are closer together share a sample."""
WITHDRAWN_AFTER = 45.0
"""Seconds after which values of a database that does not answer are withdrawn."""


async def read_metrics(hubs: Sequence[Hub], queues: Sequence[str] = ()) -> str:
    """The text that Prometheus reads; with several databases, a label tells them apart.

    `queues`: names of queues with a label of their own; without names, all queues if they are few.
    """
    is_one = len(hubs) == 1
    parts = [
        labelled(await _of(hub, queues), {} if is_one else {"database": hub.database.name}) for hub in hubs
    ]
    return gauges_as_text(each for part in parts for each in part)


async def _of(hub: Hub, queues: Sequence[str]) -> list[Family]:
    found: list[Family] = []
    last, is_up = 0.0, False
    try:
        sample = await hub.current(max_age=MAX_AGE)
        last, is_up = sample.at.timestamp(), hub.down_since is None
        if is_up or time.time() - last < WITHDRAWN_AFTER:
            found += _of_sample(sample)
            found += await hub.shared("metrics", lambda: _of_table(hub, queues), max_age=TABLE_EVERY)
    except Exception as error:
        is_up = False
        logger.debug("no metrics: %s", explained(error))
    return [
        *found,
        single(INFO, 1, __version__, hub.database.schema.name),
        single(EXPORTER_UP, float(is_up)),
        single(LAST_SUCCESS, last),
    ]


def _of_sample(sample: Sample) -> list[Family]:
    found = ready_gauges(sample.ready.value, sample.oldest_wait)
    if sample.workers is not None:
        found += pool_gauges(sample.workers, sample.unreachable)
    return found


async def _of_table(hub: Hub, queues: Sequence[str]) -> list[Family]:
    async with hub.database.read() as connection:
        return await read_table_gauges(connection, hub.database.schema, queues=queues)

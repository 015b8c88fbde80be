"""The doctor's findings, as the command gives them, and the maintenance that they advise."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ...database.migrations.own_objects import applied_numbers, missing_changes
from ...database.migrations.state import SUPPORTED_REVISION, read_state
from ...database.sql import load
from ...diagnostics.examine import examine_on
from ...diagnostics.facts import Depth
from ...diagnostics.finding import SEVERITIES, Finding
from ...history.audit import Actor, record
from ...values.options import WorkerOptions
from ...values.text import count, duration
from ..database import CONNECTION_WITHIN, STEP_WITHIN, Database
from ..models.doctor import DoctorReport, FindingView, MaintenanceAnswer, Remedy
from ..redact import Redactor

DEPTH = Depth(listed_failures=100, counted_pages=200, sampled_pages=60, waiting_queues=40, ready_jobs=50)
"""What the page may read of a large table; the command reads more."""
_REMEDIES: dict[str, Remedy] = {
    "schema": "migrate",
    "indexes": "migrate",
    "workers": "sweep",
    "locks": "sweep",
}
_PAGES = {
    "failures": "/failures", "pauses": "/tasks", "workers": "/workers", "locks": "/workers",
    "queues": "/queues", "waiting": "/jobs", "limits": "/tasks",
}  # fmt: skip


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

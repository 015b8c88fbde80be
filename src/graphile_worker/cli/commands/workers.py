"""`graphile-worker workers` and `sweep`: who is alive, and recovering the jobs of dead workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from ...config import Settings
from ...json_shapes import sweep_as_json, worker_as_json
from ...queries.pauses import pauses_if_readable
from ...text import count, duration
from ..support.client import run_async, utils_for
from ..support.command import Output, client_command, command
from ..support.output import print_table
from .pause import paused_notes

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...recovery.sweep import SweepReport
    from ...recovery.worker_rows import WorkerSummary

SHOWN_JOBS = 5
NOT_SCANNED = (
    "The jobs table is large and was not scanned: workers of other runtimes are missing, and job ids are "
    "those of running jobs. Use --all to scan it."
)
RETRY_AFTER = 0.2  # seconds to leave another sweep to finish


@client_command("workers")
@click.option("--all", "scan", is_flag=True, help="Find workers of other runtimes in a large jobs table too.")
async def workers_command(utils: WorkerUtils, scan: bool) -> Output:
    """Show workers, whether they are alive, the jobs they have, and what is paused.

    Workers of other runtimes are listed while they have jobs; their state is unknown.

    \b
    graphile-worker workers
    graphile-worker workers --all
    """
    found = await utils.list_workers(all=scan)
    async with utils.with_pg_client() as connection:
        pauses = await pauses_if_readable(connection, utils.schema)
    return Output(
        lambda: [worker_as_json(worker) for worker in found],
        lambda: _print_workers(found),
        notes=[*([] if found.is_complete else [NOT_SCANNED]), *paused_notes(pauses)],
    )


@command("sweep", database=True)
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option("--wait", is_flag=True, help="Wait until workers that missed heartbeats are back or dead.")
def sweep_command(settings: Settings, dry_run: bool, wait: bool) -> Output:
    """Recover the jobs of dead workers now.

    Running workers do this every few seconds; use it when none is running. A worker that misses heartbeats
    counts as dead after its recovery_grace.

    \b
    graphile-worker sweep --dry-run
    graphile-worker sweep --wait
    """
    if dry_run and wait:
        raise click.UsageError("--wait and --dry-run cannot be combined.")
    report = run_async(_sweep(settings, dry_run=dry_run, wait=wait))
    return Output(lambda: sweep_as_json(report), lambda: _print_report(report))


async def _sweep(settings: Settings, *, dry_run: bool, wait: bool) -> SweepReport:
    from ...recovery.sweep import SweepReport

    options = settings.worker
    recovered = []
    async with utils_for(settings) as utils:
        while True:
            report = await utils.sweep_stale_workers(
                dry_run=dry_run,
                recovery_delay=options.recovery_delay,
                max_recoveries=options.max_recoveries,
            )
            recovered += report.recovered
            if not wait or not (report.lost or report.is_busy):
                return SweepReport(
                    recovered=recovered, lost=report.lost, is_busy=report.is_busy, is_dry_run=dry_run
                )
            await asyncio.sleep(min([1.0, *report.lost.values()]) + RETRY_AFTER)


def _print_workers(found: list[WorkerSummary]) -> None:
    columns = ("worker pool", "state", "host", "pid", "slots", "jobs", "job ids", "started", "last seen")
    rows: list[tuple[Any, ...]] = [
        (
            worker.id,
            _state(worker),
            worker.host,
            worker.pid,
            worker.concurrency,
            worker.jobs_held,
            _ids(worker.job_ids),
            worker.started_at,
            worker.last_seen_at,
        )
        for worker in found
    ]
    print_table(columns, rows, empty="No worker is running.")
    places = [(worker.id, each) for worker in found for each in worker.executors or ()]
    if places:
        click.echo()
        print_table(
            ("worker pool", "executor", "where", "job", "memory"),
            [
                (pool, each.executor, each.place, each.job_id, _megabytes(each.memory))
                for pool, each in places
            ],
        )


def _megabytes(memory: int | None) -> str | None:
    return None if memory is None else f"{memory / 1e6:.0f} MB"


def _state(worker: WorkerSummary) -> str:
    if worker.is_alive is None:
        return "unknown"
    if worker.is_alive:
        if worker.blocked is not None:
            return f"blocked for {duration(worker.blocked.seconds)} by {worker.blocked.culprit}"
        if worker.silent_for is not None:
            return f"no heartbeat for {duration(worker.silent_for)}"
        if worker.stalled_for is not None:
            return f"no fetch has succeeded for {duration(worker.stalled_for)}"
        return "alive"
    return f"missed heartbeats, dead in {duration(worker.dead_in)}" if worker.dead_in else "dead"


def _ids(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:SHOWN_JOBS]))
    return f"{shown}, …" if len(ids) > SHOWN_JOBS else shown


def _print_report(report: SweepReport) -> None:
    would = "would be " if report.is_dry_run else ""
    for worker in report.recovered:
        parts = [f"{count(len(worker.returned), 'job')} {would}returned to the queue"]
        if worker.failed:
            parts.append(f"{count(len(worker.failed), 'job')} {would}failed")
        if worker.cancelled:
            parts.append(f"{count(len(worker.cancelled), 'cancelled job')} {would}deleted")
        if worker.left:
            parts.append(f"{count(len(worker.left), 'job')} left locked")
        click.echo(f"{worker.id} is dead: {', '.join(parts)}.")
    for pool_id, seconds in report.lost.items():
        click.echo(f"{pool_id} missed heartbeats and counts as dead in {duration(seconds)}.")
    if report.is_busy:
        click.echo("Another sweep is in progress.")
    elif not report.recovered and not report.lost:
        click.echo("No dead workers.")

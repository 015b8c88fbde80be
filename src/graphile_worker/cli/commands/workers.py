"""`graphile-worker workers` and `sweep`: who is at work, and what becomes of the jobs of those who died."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from ...json_shapes import sweep_as_json, worker_as_json
from ..support.client import load_settings, open_utils, run_async, start_logging, utils_for
from ..support.output import count, print_json, print_table
from ..support.parameters import command_options

if TYPE_CHECKING:
    from ...config import Settings
    from ...recovery.sweep import SweepReport
    from ...recovery.worker_rows import WorkerList, WorkerSummary

SHOWN_JOBS = 5
NOT_SCANNED = (
    "The jobs table is large and was not scanned: workers of other runtimes are missing, and job ids are "
    "those of running jobs. Use --all to scan it."
)
SWEEPING = 0.2  # seconds to wait for somebody else who sweeps


@click.command("workers")
@command_options
@click.option("--all", "scan", is_flag=True, help="Find workers of other runtimes in a large jobs table too.")
@click.pass_context
def workers_command(ctx: click.Context, /, as_json: bool, scan: bool, **_: Any) -> None:
    """Show which workers there are, whether they are alive, and what they run.

    Workers of other runtimes are shown while they have jobs locked; whether they are alive is not known.

    \b
    graphile-worker workers
    graphile-worker workers --all
    """
    found = run_async(_workers(ctx, scan=scan))
    if not found.is_complete:
        click.echo(NOT_SCANNED, err=True)
    if as_json:
        print_json([worker_as_json(worker) for worker in found])
        return
    columns = ("worker pool", "state", "host", "pid", "slots", "jobs", "job ids", "started", "last seen")
    rows = [
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


@click.command("sweep")
@command_options
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--wait", is_flag=True, help="Wait for workers out of reach until they are back or dead.")
@click.pass_context
def sweep_command(ctx: click.Context, /, as_json: bool, dry_run: bool, wait: bool, **_: Any) -> None:
    """Give the jobs of dead workers to others, now.

    Every worker does this by itself every few seconds; this is for when none is running. A worker that was in
    reach until now counts as dead only after its grace.

    \b
    graphile-worker sweep --dry-run
    graphile-worker sweep --wait
    """
    if dry_run and wait:
        raise click.UsageError("--wait has no meaning with --dry-run.", ctx)
    settings = load_settings(ctx, {})
    start_logging(settings, quiet=True)
    report = run_async(_sweep(settings, dry_run=dry_run, wait=wait))
    if as_json:
        print_json(sweep_as_json(report))
    else:
        _describe(report)


async def _workers(ctx: click.Context, *, scan: bool) -> WorkerList:
    async with open_utils(ctx) as utils:
        return await utils.list_workers(all=scan)


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
            await asyncio.sleep(min([1.0, *report.lost.values()]) + SWEEPING)


def _state(worker: WorkerSummary) -> str:
    if worker.is_alive is None:
        return "unknown"
    if worker.is_alive:
        return "alive"
    return f"unreachable, dead in {worker.dead_in:.0f} s" if worker.dead_in else "dead"


def _ids(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:SHOWN_JOBS]))
    return f"{shown}, …" if len(ids) > SHOWN_JOBS else shown


def _describe(report: SweepReport) -> None:
    would = "would be " if report.is_dry_run else ""
    for worker in report.recovered:
        parts = [f"{count(len(worker.returned), 'job')} {would}given to others"]
        if worker.failed:
            parts.append(f"{count(len(worker.failed), 'job')} failed")
        if worker.left:
            parts.append(f"{count(len(worker.left), 'job')} left locked")
        click.echo(f"{worker.id} is dead: {', '.join(parts)}.")
    for pool_id, seconds in report.lost.items():
        click.echo(f"{pool_id} is out of reach; it counts as dead in {seconds:.0f} s.")
    if report.is_busy:
        click.echo("Somebody else is sweeping at this moment.")
    elif not report.recovered and not report.lost:
        click.echo("Every worker that can be judged is alive.")

"""`graphile-worker workers`, `sweep`, `stack` and `stop`.

They show who is alive, change how many jobs a worker runs at once, recover the jobs of dead workers, show
where a job is, and end a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...config import Settings
from ...database.statements.pauses import pauses_if_readable
from ...diagnostics.json_shapes import concurrency_as_json, stack_as_json, sweep_as_json, worker_as_json
from ...values.concurrency import MAIN, MOST_ASKED_SLOTS
from ...values.text import count, duration
from ..support.client import run_async, utils_for
from ..support.command import Output, client_command, command
from ..support.output import cell, print_objects, print_table
from .pause import paused_notes

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...client.job_status import ConcurrencyChange, JobStack
    from ...recovery.registry.workers import WorkerSummary
    from ...recovery.sweep import SweepReport

SHOWN_JOBS = 5
NOT_SCANNED = (
    "The jobs table is large and was not scanned: workers of other runtimes are missing, and job ids are "
    "those of running jobs. Use --all to scan it."
)
RETRY_AFTER = 0.2  # seconds to leave another sweep to finish


def _check_workers(
    action: str, worker_id: str | None, concurrency: int | None, lane: str | None, scan: bool
) -> None:
    if action == "list":
        if worker_id is not None:
            raise click.UsageError("`workers list` takes no WORKER_ID.")
        if concurrency is not None or lane is not None:
            raise click.UsageError("--concurrency and --lane are for `workers set WORKER_ID`.")
        return
    if worker_id is None:
        raise click.UsageError("`workers set` needs the WORKER_ID; `graphile-worker workers` lists them.")
    if concurrency is None:
        raise click.UsageError("Give --concurrency.")
    if scan:
        raise click.UsageError("--all is for `workers list`.")


@client_command("workers", check=_check_workers, audit={"set": "set_worker_concurrency"})
@click.argument("action", type=click.Choice(("list", "set")), default="list", metavar="[list|set]")
@click.argument("worker_id", required=False, metavar="[WORKER_ID]")
@click.option(
    "--concurrency", type=click.IntRange(1, MOST_ASKED_SLOTS), metavar="N", help="Jobs that it runs at once."
)
@click.option("--lane", metavar="NAME", help="The lane to change, if not the main one.")
@click.option("--all", "scan", is_flag=True, help="Find workers of other runtimes in a large jobs table too.")
async def workers_command(
    utils: WorkerUtils,
    action: str,
    worker_id: str | None,
    concurrency: int | None,
    lane: str | None,
    scan: bool,
) -> Output:
    """Show workers and what is paused, or set how many jobs one runs at once.

    Rust workers with recovery send heartbeats; Node workers and other Rust workers are listed while they have
    jobs. Only workers of this package can be changed. Running jobs finish, and the number lasts until the
    worker restarts.

    \b
    graphile-worker workers
    graphile-worker workers --all
    graphile-worker workers set pool-0123456789abcdef --concurrency 20
    graphile-worker workers set pool-0123456789abcdef --lane video --concurrency 1
    """
    if action == "set" and worker_id is not None and concurrency is not None:
        change = await utils.workers.set_concurrency(worker_id, concurrency, lane=lane or MAIN)
        return Output(lambda: concurrency_as_json(change), lambda: _print_change(change))
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
@click.option(
    "--worker", metavar="WORKER_ID", help="Recover only the jobs of this worker of another runtime."
)
@click.option("--force", is_flag=True, help="With --worker: even if it sends heartbeats.")
def sweep_command(settings: Settings, dry_run: bool, wait: bool, worker: str | None, force: bool) -> Output:
    """Recover the jobs of dead workers now.

    Running workers do this every few seconds; use it when none is running. A worker that misses heartbeats
    is declared dead after its recovery_grace.

    Nothing shows whether a Node worker is alive, or a Rust worker without recovery. Make sure that it is
    dead, then recover its jobs with --worker: they return to the queue without losing an attempt.

    \b
    graphile-worker sweep --dry-run
    graphile-worker sweep --wait
    graphile-worker sweep --worker graphile_worker_0123456789abcdef --dry-run
    """
    if dry_run and wait:
        raise click.UsageError("--wait and --dry-run cannot be combined.")
    if worker is None and force:
        raise click.UsageError("--force needs --worker.")
    if worker is not None and wait:
        raise click.UsageError("--wait and --worker cannot be combined.")
    work = (
        _sweep(settings, dry_run=dry_run, wait=wait)
        if worker is None
        else _recover(settings, worker, dry_run=dry_run, force=force)
    )
    report = run_async(work)
    return Output(lambda: sweep_as_json(report), lambda: _print_report(report))


async def _recover(settings: Settings, worker_id: str, *, dry_run: bool, force: bool) -> SweepReport:
    async with utils_for(settings) as utils:
        return await utils.workers.recover(
            worker_id, force=force, dry_run=dry_run, recovery_delay=settings.worker.recovery.delay
        )


async def _sweep(settings: Settings, *, dry_run: bool, wait: bool) -> SweepReport:
    from ...recovery.sweep import SweepReport

    options = settings.worker
    recovered = []
    async with utils_for(settings) as utils:
        while True:
            report = await utils.sweep_stale_workers(
                dry_run=dry_run,
                recovery_delay=options.recovery.delay,
                max_recoveries=options.recovery.max_recoveries,
            )
            recovered += report.recovered
            if not wait or not (report.lost or report.is_busy):
                return SweepReport(
                    recovered=recovered, lost=report.lost, is_busy=report.is_busy, is_dry_run=dry_run
                )
            await asyncio.sleep(min([1.0, *report.lost.values()]) + RETRY_AFTER)


def _print_workers(found: list[WorkerSummary]) -> None:
    from ...recovery.registry.workers import condition_of

    print_objects(
        found,
        "worker pool=id, runtime, state, host, pid, slots=concurrency, jobs=jobs_held, memory, cpu, job ids, "
        "started=started_at, last seen=last_seen_at",
        state=lambda worker: condition_of(worker)[1],
        memory=lambda worker: worker.load and _megabytes(worker.load.memory),
        cpu=_cpu,
        job_ids=lambda worker: _ids(worker.job_ids),
        empty="No Python worker is running; others are listed while they have jobs.",
    )
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


def _print_change(change: ConcurrencyChange) -> None:
    lane = "" if change.lane == MAIN else f" of the lane {cell(change.lane)}"
    click.echo(
        f"Worker {cell(change.worker_id)} runs up to {count(change.concurrency, 'job')}{lane} at once "
        f"(before: {change.before}), until it restarts."
    )


def _cpu(worker: WorkerSummary) -> str | None:
    return None if worker.load is None or worker.load.cpu is None else f"{worker.load.cpu:.0%}"


def _megabytes(memory: int | None) -> str | None:
    return None if memory is None else f"{memory / 1e6:.0f} MB"


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
        click.echo(f"{pool_id} missed heartbeats and will be declared dead in {duration(seconds)}.")
    if report.is_busy:
        click.echo("Another sweep is in progress.")
    elif not report.recovered and not report.lost:
        click.echo("No dead workers.")


@client_command("stack", connections=2)
@click.argument("job_id", type=int)
@click.option(
    "--timeout", type=float, default=6.0, show_default=True, metavar="SECONDS", help="How long to wait."
)
async def stack_command(utils: WorkerUtils, job_id: int, timeout: float) -> Output:
    """Show where a running job is now: its call stack, as its worker sees it.

    The job must run in a worker of this package.

    \b
    graphile-worker stack 1234
    """
    found = await utils.jobs.get_stack(job_id, timeout=timeout)
    return Output(lambda: stack_as_json(found), lambda: _print(found))


def _print(found: JobStack) -> None:
    where = "waits at the last line" if found.kind == "coroutine" else "runs the last line"
    if found.place is not None:
        where += f" in {cell(found.place)}"
    elif found.kind == "thread":
        where += " in a thread"
    since = "" if found.running_for is None else f", running for {duration(found.running_for)}"
    click.echo(
        f"Job {found.job_id} of {cell(found.task_identifier)} {where}{since}. Worker: {cell(found.worker_id)}"
    )
    click.echo(found.stack)


@client_command("stop", audit="stop_worker")
@click.argument("worker_ids", nargs=-1, required=True, metavar="WORKER_ID...")
@click.option("--reason", metavar="TEXT", help="Why; the worker logs it.")
async def stop_command(utils: WorkerUtils, worker_ids: Sequence[str], reason: str | None) -> Output:
    """Ask workers of this package to shut down gracefully, as SIGTERM does.

    Each finishes its running jobs and exits. Whether it starts again is up to whatever runs the process.
    `graphile-worker workers` lists the ids.

    \b
    graphile-worker stop pool-0123456789abcdef
    """
    for worker_id in worker_ids:
        await utils.workers.stop(worker_id, reason=reason)
    return Output(
        lambda: [{"worker_id": worker_id} for worker_id in worker_ids],
        lambda: click.echo("\n".join(f"Asked worker {cell(each)} to stop." for each in worker_ids)),
    )

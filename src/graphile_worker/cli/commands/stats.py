"""`graphile-worker stats` and `queues`: cheap even with millions of jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...db.errors import sqlstate_of
from ...json_shapes import queue_as_json, statistics_as_json
from ...text import count
from ..support.command import Output, client_command
from ..support.output import cell, print_table
from ..support.parameters import Since, limit_option
from .pause import paused_notes

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...queries.inspection import JobCounts, QueueSummary, Statistics

ESTIMATE = "The table is large, so the numbers are estimates; --exact counts every job."
HELD = "By their last reports, workers have {}. Short jobs may run without being locked; they count as ready."
EXACT_OPTION = click.option("--exact", is_flag=True, help="Count every job, however long it takes.")


def _check(exact: bool, since: datetime | timedelta | None, task: str | None) -> None:
    if since is None and task is not None:
        raise click.UsageError("--task needs --since")
    if since is not None and exact:
        raise click.UsageError("--exact counts the jobs of now; it cannot be used with --since")


@client_command("stats", check=_check)
@EXACT_OPTION
@click.option(
    "--since",
    type=Since(),
    metavar="PERIOD",
    help="Show what workers did since then: 15m, 1h, 7d, or a time.",
)
@click.option("--task", metavar="TASK", help="With --since: only this task.")
async def stats_command(
    utils: WorkerUtils, exact: bool, since: datetime | timedelta | None, task: str | None
) -> Output:
    """Count jobs by state and task, or show what workers did.

    In a large table the numbers are estimates, and are labelled as such. With --since: completed and failed
    jobs, run times and wait times by task, as workers of this package recorded them.

    \b
    graphile-worker stats
    graphile-worker stats --since 1h
    graphile-worker stats --since 7d --task send_email --json
    """
    if since is not None:
        from ..support.statistics_report import read_report

        report = await read_report(utils, since, task)
        return Output(report.as_json, report.print)
    found = await utils.statistics(exact=exact)
    held = await _reported_jobs(utils)
    notes = [HELD.format(count(held, "job"))] if held > found.jobs.locked else []
    return Output(lambda: statistics_as_json(found), lambda: _print_statistics(found), notes=notes)


async def _reported_jobs(utils: WorkerUtils) -> int:
    """How many jobs workers have by their last reports; 0 if these cannot be read."""
    from ...queries.pauses import UNAVAILABLE

    try:
        return sum(worker.jobs_held or 0 for worker in await utils.list_workers())
    except Exception as error:
        if sqlstate_of(error) not in UNAVAILABLE:
            raise
        return 0


@client_command("queues")
@limit_option("queues", default=100)
@EXACT_OPTION
async def queues_command(utils: WorkerUtils, limit: int, exact: bool) -> Output:
    """Show named queues, longest first, the worker pools that have locked them, and which are paused.

    \b
    graphile-worker queues --limit 10
    """
    found = await utils.list_queues(limit=limit, exact=exact)
    return Output(lambda: [queue_as_json(queue) for queue in found], lambda: _print_queues(found))


def _print_statistics(found: Statistics) -> None:
    rows = [_row(task, counts) for task, counts in sorted(found.tasks.items())]
    print_table(
        ("task", "ready", "scheduled", "locked", "failed", "total"),
        [*rows, _row("(all)", found.jobs)] if len(rows) != 1 else rows,
    )
    click.echo()
    if found.queues:
        click.echo(f"{count(found.queues, 'named queue')}, {found.locked_queues:,} locked.")
    for note in paused_notes(found.pauses):
        click.echo(note)
    if found.oldest_ready_at is not None:
        click.echo(f"The oldest ready job has been waiting since {cell(found.oldest_ready_at)}.")
    elif not found.jobs.total:
        click.echo("No jobs.")
    if found.is_estimate:
        click.echo(ESTIMATE)


def _print_queues(found: list[QueueSummary]) -> None:
    shown: dict[str, list[Any]] = {
        "queue": [queue.queue_name for queue in found],
        "width": [queue.width if queue.width > 1 else None for queue in found],
        "jobs": [queue.jobs for queue in found],
        "ready": [queue.ready for queue in found],
        "locked by": [queue.locked_by for queue in found],
        "locked at": [queue.locked_at for queue in found],
        "state": [None if queue.pause is None else f"paused{queue.pause.terms}" for queue in found],
    }
    for name in ("width", "state"):
        if not any(shown[name]):
            del shown[name]
    print_table(tuple(shown), list(zip(*shown.values(), strict=True)), empty="No named queues.")
    if any(queue.is_estimate for queue in found):
        click.echo(ESTIMATE)


def _row(name: str, counts: JobCounts) -> list[Any]:
    return [name, counts.ready, counts.scheduled, counts.locked, counts.failed, counts.total]

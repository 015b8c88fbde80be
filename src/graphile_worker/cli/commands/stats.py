"""`graphile-worker stats` and `queues`: cheap also when there are millions of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...json_shapes import queue_as_json, statistics_as_json
from ..support.client import open_utils, run_async
from ..support.output import cell, count, print_json, print_table
from ..support.parameters import command_options

if TYPE_CHECKING:
    from ...queries.inspection import JobCounts, QueueSummary, Statistics

ESTIMATE = "There are many jobs; the numbers are estimates from a part of them."


@click.command("stats")
@command_options
@click.option("--exact", is_flag=True, help="Count every job, however long it takes.")
@click.pass_context
def stats_command(ctx: click.Context, /, as_json: bool, exact: bool, **_: Any) -> None:
    """Show how many jobs there are, by state and by task.

    Large tables are not counted in full: the numbers are then estimates, and said to be.

    \b
    graphile-worker stats
    graphile-worker stats --json
    """
    found = run_async(_statistics(ctx, exact))
    if as_json:
        print_json(statistics_as_json(found))
        return
    rows = [_row(task, counts) for task, counts in sorted(found.tasks.items())]
    print_table(
        ("task", "ready", "scheduled", "locked", "failed", "total"),
        [*rows, _row("(all)", found.jobs)] if len(rows) != 1 else rows,
    )
    click.echo()
    if found.queues:
        click.echo(f"{count(found.queues, 'named queue')}, of which {found.locked_queues:,} locked.")
    if found.oldest_ready_at is not None:
        click.echo(f"The job that is ready for longest could run since {cell(found.oldest_ready_at)}.")
    elif not found.jobs.total:
        click.echo("There are no jobs.")
    if found.is_estimate:
        click.echo(ESTIMATE)


@click.command("queues")
@command_options
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, metavar="N", help="At most."
)
@click.option("--exact", is_flag=True, help="Count every job, however long it takes.")
@click.pass_context
def queues_command(ctx: click.Context, /, as_json: bool, limit: int, exact: bool, **_: Any) -> None:
    """Show named queues, the fullest first, and who holds them.

    \b
    graphile-worker queues --limit 10
    """
    found = run_async(_queues(ctx, limit, exact))
    if as_json:
        print_json([queue_as_json(queue) for queue in found])
        return
    rows = [(queue.queue_name, queue.jobs, queue.ready, queue.locked_by, queue.locked_at) for queue in found]
    print_table(("queue", "jobs", "ready", "locked by", "locked at"), rows, empty="No named queues.")
    if any(queue.is_estimate for queue in found):
        click.echo(ESTIMATE)


async def _statistics(ctx: click.Context, exact: bool) -> Statistics:
    async with open_utils(ctx) as utils:
        return await utils.statistics(exact=exact)


async def _queues(ctx: click.Context, limit: int, exact: bool) -> list[QueueSummary]:
    async with open_utils(ctx) as utils:
        return await utils.list_queues(limit=limit, exact=exact)


def _row(name: str, counts: JobCounts) -> list[Any]:
    return [name, counts.ready, counts.scheduled, counts.locked, counts.failed, counts.total]

"""`graphile-worker queues`: shows named queues, and changes how many of their jobs may run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...diagnostics.json_shapes import queue_as_json
from ...values.spec import MAX_QUEUE_CONCURRENCY
from ...values.text import count
from ..support.command import Output, client_command
from ..support.output import cell, print_table
from .stats import ESTIMATE, EXACT_OPTION

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.inspection import QueueSummary

ACTIONS = ("list", "set", "reset")
MOST_SHOWN = 100


def _check(action: str, name: str | None, concurrency: int | None, limit: int | None, exact: bool) -> None:
    if action == "list" and name is not None:
        raise click.UsageError("`queues list` takes no NAME.")
    if action != "list" and name is None:
        raise click.UsageError(f"`queues {action}` needs the NAME of a queue.")
    if action != "set" and concurrency is not None:
        raise click.UsageError("--concurrency is for `queues set NAME`.")
    if action == "set" and concurrency is None:
        raise click.UsageError("Give --concurrency.")
    if action != "list" and (limit is not None or exact):
        raise click.UsageError("--limit and --exact are for `queues list`.")


def _audited(action: str, **_: Any) -> str:
    return "" if action == "list" else "set_queue_concurrency"


@client_command("queues", check=_check, audit=_audited)
@click.argument("action", type=click.Choice(ACTIONS), default="list", metavar="[list|set|reset]")
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_QUEUE_CONCURRENCY),
    metavar="N",
    help="Jobs that may run at once.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help=f"Maximum number of queues to show; {MOST_SHOWN} if it is not given.",
)
@EXACT_OPTION
async def queues_command(
    utils: WorkerUtils,
    action: str,
    name: str | None,
    concurrency: int | None,
    limit: int | None,
    exact: bool,
) -> Output:
    """Show named queues, longest first, or set how many jobs of one may run at once.

    Workers obey at once. What is set by hand wins over the tasks and stays until it is reset, also when
    workers start again.

    \b
    graphile-worker queues --limit 10
    graphile-worker queues set tenant:7 --concurrency 10
    graphile-worker queues reset tenant:7
    """
    if action == "list" or name is None:
        found = await utils.queues.list(limit=limit or MOST_SHOWN, exact=exact)
        return Output(lambda: [queue_as_json(queue) for queue in found], lambda: _print(found))
    await utils.queues.set_concurrency(name, concurrency)
    text = (
        f"The tasks of {cell(name)} decide again how many of its jobs run at once."
        if concurrency is None
        else f"Up to {count(concurrency, 'job')} of {cell(name)} may run at once."
    )
    return Output(lambda: {"queue_name": name, "concurrency": concurrency}, lambda: click.echo(text))


def _print(found: list[QueueSummary]) -> None:
    shown: dict[str, list[Any]] = {
        "queue": [queue.queue_name for queue in found],
        "concurrency": [queue.concurrency if queue.concurrency > 1 else None for queue in found],
        "jobs": [queue.jobs for queue in found],
        "ready": [queue.ready for queue in found],
        "locked by": [queue.locked_by for queue in found],
        "locked at": [queue.locked_at for queue in found],
        "state": [None if queue.pause is None else f"paused{queue.pause.terms}" for queue in found],
    }
    for name in ("concurrency", "state"):
        if not any(shown[name]):
            del shown[name]
    print_table(tuple(shown), list(zip(*shown.values(), strict=True)), empty="No named queues.")
    if any(queue.is_estimate for queue in found):
        click.echo(ESTIMATE)

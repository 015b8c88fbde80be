"""`graphile-worker width`: how many jobs of a named queue may run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...text import count
from ..support.command import Output, client_command
from ..support.output import cell

if TYPE_CHECKING:
    from ...client import WorkerUtils


def _check(queue: str, width: int | None, reset: bool) -> None:
    if (width is None) is not reset:
        raise click.UsageError("Give the WIDTH, or --reset.")


@client_command("width", check=_check, audit="set_queue_width")
@click.argument("queue")
@click.argument("width", type=int, required=False)
@click.option("--reset", is_flag=True, help="Forget the width that was set; that of the task counts again.")
async def width_command(utils: WorkerUtils, queue: str, width: int | None, reset: bool) -> Output:
    """Let up to WIDTH jobs of the named queue QUEUE run at once.

    \b
    graphile-worker width tenant:7 10
    graphile-worker width tenant:7 --reset

    It takes effect at once and survives restarts. Jobs that run when a queue gets narrower go on.
    """
    await utils.set_queue_width(queue, width)
    text = (
        f"The width of {cell(queue)} is that of its tasks again."
        if width is None
        else f"Up to {count(width, 'job')} of {cell(queue)} may run at once."
    )
    return Output(lambda: {"queue_name": queue, "width": width}, lambda: click.echo(text))

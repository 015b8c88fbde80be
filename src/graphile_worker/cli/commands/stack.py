"""`graphile-worker stack` and `stop`: where a job is, and ending a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...json_shapes import stack_as_json
from ...text import duration
from ..support.command import Output, client_command
from ..support.output import cell

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...client.job_stacks import JobStack


@client_command("stack", connections=2)
@click.argument("job_id", type=int)
@click.option(
    "--timeout", type=float, default=6.0, show_default=True, metavar="SECONDS", help="How long to wait."
)
async def stack_command(utils: WorkerUtils, job_id: int, timeout: float) -> Output:
    """Show where a running job is now: the calls it is in, as its worker sees them.

    The job must run in a worker of this package.

    \b
    graphile-worker stack 1234
    """
    found = await utils.get_job_stack(job_id, timeout=timeout)
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

    Each finishes the jobs that it runs, and ends. Whether it starts again is up to whatever runs the process.
    `graphile-worker workers` lists the ids.

    \b
    graphile-worker stop pool-0123456789abcdef
    """
    for worker_id in worker_ids:
        await utils.stop_worker(worker_id, reason=reason)
    return Output(
        lambda: [{"worker_id": worker_id} for worker_id in worker_ids],
        lambda: click.echo("\n".join(f"Asked worker {cell(each)} to stop." for each in worker_ids)),
    )

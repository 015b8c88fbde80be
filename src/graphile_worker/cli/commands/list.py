"""`graphile-worker list` and `show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...json_shapes import details_as_json
from ..support.client import open_utils, run_async
from ..support.output import print_fields, print_json, print_table
from ..support.parameters import JobId, command_options

if TYPE_CHECKING:
    from ...queries.inspection import JobDetails

STATES = ("ready", "scheduled", "locked", "failed")
ORDERS = {"oldest": "oldest", "newest": "newest", "run": "run_order"}


@click.command("list")
@command_options
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option("--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("--key", metavar="KEY", help="Only the job with this key.")
@click.option("--locked-by", metavar="POOL_ID", help="Only jobs that this worker pool holds.")
@click.option(
    "--order",
    type=click.Choice(list(ORDERS)),
    default="oldest",
    show_default=True,
    help="By age, or in the order in which workers take them.",
)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, metavar="N", help="At most."
)
@click.option("--payload", is_flag=True, help="Show the payload too.")
@click.pass_context
def list_command(
    ctx: click.Context,
    /,
    as_json: bool,
    state: Any,
    task: str | None,
    queue: str | None,
    key: str | None,
    locked_by: str | None,
    order: str,
    limit: int,
    payload: bool,
    **_: Any,
) -> None:
    """List jobs.

    \b
    States: ready (may run now), scheduled (later), locked (a worker has it),
    failed (for good: no attempts left).

    \b
    graphile-worker list
    graphile-worker list --state failed --task send_email --limit 200
    """
    from ...queries.inspection import JobFilter

    chosen: Any = ORDERS[order]
    wanted = JobFilter(
        state=state,
        task_identifier=task,
        queue_name=queue,
        job_key=key,
        locked_by=locked_by,
        order=chosen,
        limit=limit,
    )
    found = run_async(_list(ctx, wanted))
    if as_json:
        print_json([details_as_json(details) for details in found])
        return
    columns = ["id", "task", "state", "attempts", "priority", "run at", "queue", "key", "last error"]
    rows = [_row(details) + ([details.to_dict()["payload"]] if payload else []) for details in found]
    print_table([*columns, "payload"] if payload else columns, rows, empty="No jobs.")
    if len(found) == limit:
        click.echo(f"Only the first {limit} are shown; see more with --limit.", err=True)


@click.command("show")
@command_options
@click.argument("ids", nargs=-1, required=True, type=JobId(), metavar="ID...")
@click.pass_context
def show_command(ctx: click.Context, /, as_json: bool, ids: tuple[int, ...], **_: Any) -> int:
    """Show everything about jobs; with --json an object for one ID, an array for several.

    \b
    graphile-worker show 12
    graphile-worker show 12 --json | jq .payload
    """
    found = run_async(_get(ctx, ids))
    jobs = [details for details in found if details is not None]
    if as_json:
        values = [details_as_json(details) for details in jobs]
        if len(ids) > 1:
            print_json(values)
        elif values:
            print_json(values[0])
    else:
        for number, details in enumerate(jobs):
            if number:
                click.echo()
            print_fields(_fields(details))
    for job_id, one in zip(ids, found, strict=True):
        if one is None:
            click.echo(f"{job_id}: there is no such job", err=True)
    return 0 if len(jobs) == len(ids) else 1


async def _list(ctx: click.Context, wanted: Any) -> list[JobDetails]:
    async with open_utils(ctx) as utils:
        return await utils.list_jobs(wanted)


async def _get(ctx: click.Context, ids: Sequence[int]) -> list[JobDetails | None]:
    async with open_utils(ctx) as utils:
        return [await utils.get_job(job_id) for job_id in ids]


def _row(job: JobDetails) -> list[Any]:
    attempts = f"{job.attempts}/{job.max_attempts}"
    return [
        job.id, job.task_identifier, job.state, attempts, job.priority, job.run_at, job.queue_name,
        job.key, job.last_error,
    ]  # fmt: skip


def _fields(details: JobDetails) -> dict[str, Any]:
    values = details_as_json(details)
    try:
        payload = msgspec.json.format(details.raw_payload, indent=2)
    except msgspec.DecodeError:  # as with half a surrogate pair, which Node may write
        payload = details.raw_payload
    values["flags"] = ", ".join(values["flags"])
    return {name: value for name, value in values.items() if name != "payload"} | {"payload": payload}

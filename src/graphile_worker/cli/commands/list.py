"""`graphile-worker list` and `show`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...json_shapes import details_as_json
from ..support.command import Output, client_command
from ..support.job_filter import filter_flags, filter_from
from ..support.output import print_fields, print_table
from ..support.parameters import JobId, limit_option

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...queries.inspection import JobDetails

ORDERS = {"oldest": "oldest", "newest": "newest", "run": "run_order"}


@client_command("list")
@click.option("--key", metavar="KEY", help="Only the job with this key.")
@filter_flags
@click.option(
    "--order",
    type=click.Choice(list(ORDERS)),
    default="oldest",
    show_default=True,
    help="By age, or in the order in which workers take them.",
)
@limit_option("jobs", default=50)
@click.option("--payload", is_flag=True, help="Include the payload.")
async def list_command(
    utils: WorkerUtils, key: str | None, order: str, limit: int, payload: bool, **flags: Any
) -> Output:
    """List jobs.

    \b
    States: ready (can run now), scheduled (for later), locked (taken by a worker),
    failed (permanently: no attempts left).

    \b
    graphile-worker list
    graphile-worker list --state failed --task send_email --limit 200
    graphile-worker list --failed-since 2h --error timeout
    """
    chosen: Any = ORDERS[order]
    found = await utils.list_jobs(filter_from(flags, job_key=key, order=chosen, limit=limit))
    return Output(
        lambda: [details_as_json(details) for details in found],
        lambda: _print_jobs(found, limit, with_payload=payload),
    )


@client_command("show")
@click.argument("ids", nargs=-1, required=True, type=JobId(), metavar="ID...")
async def show_command(utils: WorkerUtils, ids: tuple[int, ...]) -> Output:
    """Show all details of jobs. With --json, one ID gives an object and several give an array.

    \b
    graphile-worker show 12
    graphile-worker show 12 --json | jq .payload
    """
    found = {job_id: await utils.get_job(job_id) for job_id in ids}
    jobs = [details for job_id in ids if (details := found[job_id]) is not None]
    missing = [job_id for job_id in ids if found[job_id] is None]

    def as_json() -> Any:
        values = [details_as_json(details) for details in jobs]
        return values if len(ids) > 1 else values[0]

    return Output(
        as_json if jobs or len(ids) > 1 else None,
        lambda: _print_details(jobs),
        notes=[f"{job_id}: no such job" for job_id in missing],
        status=1 if missing else 0,
    )


def _print_jobs(found: list[JobDetails], limit: int, *, with_payload: bool) -> None:
    # When a failed job would run next means nothing.
    are_failed = all(details.state == "failed" for details in found)
    time = "failed at" if are_failed else "run at"
    columns = ["id", "task", "state", "attempts", "priority", time, "queue", "key", "last error"]
    rows = [
        _row(details, details.failed_at if are_failed else details.run_at)
        + ([details.to_dict()["payload"]] if with_payload else [])
        for details in found
    ]
    print_table([*columns, "payload"] if with_payload else columns, rows, empty="No jobs.")
    if len(found) == limit:
        click.echo(f"Only the first {limit} jobs are shown; use --limit for more.", err=True)


def _row(job: JobDetails, time: datetime | None) -> list[Any]:
    attempts = f"{job.attempts}/{job.max_attempts}"
    return [
        job.id, job.task_identifier, job.state, attempts, job.priority, time, job.queue_name, job.key,
        job.last_error,
    ]  # fmt: skip


def _print_details(jobs: list[JobDetails]) -> None:
    for number, details in enumerate(jobs):
        if number:
            click.echo()
        print_fields(_fields(details))


def _fields(details: JobDetails) -> dict[str, Any]:
    values = details_as_json(details)
    try:
        payload = msgspec.json.format(details.raw_payload, indent=2)
    except msgspec.DecodeError:  # such as half a surrogate pair, which Node may write
        payload = details.raw_payload
    values["flags"] = ", ".join(values["flags"])
    return {name: value for name, value in values.items() if name != "payload"} | {"payload": payload}

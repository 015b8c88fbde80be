"""`graphile-worker list`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ...json_shapes import details_as_json
from ..support.command import Output, client_command
from ..support.job_filter import filter_flags, filter_from
from ..support.output import print_table
from ..support.parameters import limit_option

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

    A short job looks ready while it runs in the transaction that fetched it.

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

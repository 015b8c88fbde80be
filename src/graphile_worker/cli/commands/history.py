"""`graphile-worker history` and `errors`: the outcomes of jobs; `show`: all that is known of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ...diagnostics.json_shapes import (
    error_as_json,
    error_group_as_json,
    explanation_as_json,
    finished_job_as_json,
    record_as_json,
)
from ...values.text import count, duration
from ..support.command import Output, client_command
from ..support.job_record import follow, print_record, progress_of, why_unknown
from ..support.output import cell, print_fields, print_objects
from ..support.parameters import JOB_ID, SINCE, limit_option

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...client.job_status import JobRecord
    from ...diagnostics.explanation.values import Explanation
    from ...history.error_groups import ErrorGroup
    from ...history.records import AttemptError, FinishedJob

STATES = ("completed", "failed", "cancelled", "expired")
NOTHING_KEPT = (
    "Nothing is kept. Permanently failed jobs are, by default; to keep completed ones, use @task(keep=True), "
    'add_job(..., keep=True), or the option history = "all".'
)

SINCE_OPTION = click.option(
    "--since", type=SINCE, metavar="WHEN", help="Only since this time, or the last 30m, 12h or 7d."
)


@client_command("history")
@click.option("--state", type=click.Choice(STATES), help="Only jobs that ended like this.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@SINCE_OPTION
@limit_option("jobs", default=50)
async def history_command(
    utils: WorkerUtils, state: Any, task: str | None, since: datetime | timedelta | None, limit: int
) -> Output:
    """List the finished jobs that are in the history, the latest first.

    \b
    graphile-worker history --task send_email --since 1h
    graphile-worker history --state failed --json
    """
    from ...history.records import HistoryFilter

    wanted = HistoryFilter(state=state, task_identifier=task, since=_moment(since), limit=limit)
    found = await utils.history.list_finished(wanted)
    return Output(
        lambda: [finished_job_as_json(finished) for finished in found],
        lambda: _print_finished_jobs(found, limit),
    )


@client_command("errors")
@click.argument("fingerprint", required=False)
@click.option("--task", metavar="NAME", help="Only errors of this task.")
@SINCE_OPTION
@limit_option("errors", default=20)
async def errors_command(
    utils: WorkerUtils,
    fingerprint: str | None,
    task: str | None,
    since: datetime | timedelta | None,
    limit: int,
) -> Output:
    """List error groups, or with a FINGERPRINT the latest errors of one group and a traceback.

    \b
    graphile-worker errors --since 24h
    graphile-worker errors dce3bb6bbc2ec89e
    """
    if fingerprint is None:
        groups = await utils.history.list_error_groups(
            since=_moment(since), task_identifier=task, limit=limit
        )
        return Output(lambda: [error_group_as_json(group) for group in groups], lambda: _print_groups(groups))
    found = await utils.history.list_errors(fingerprint=fingerprint, since=_moment(since), limit=limit)
    return Output(
        lambda: [error_as_json(error) for error in found],
        lambda: _print_errors(found),
        notes=[] if found else [f"no error with the fingerprint {fingerprint} is kept"],
        status=0 if found else 1,
    )


def _moment(since: datetime | timedelta | None) -> datetime | None:
    return datetime.now(UTC) - since if isinstance(since, timedelta) else since


def _print_finished_jobs(found: list[FinishedJob], limit: int) -> None:
    print_objects(
        found,
        "id=job_id, task=task_identifier, state, finished at, took, attempts, queue=queue_name, key, "
        "result or error",
        took=lambda finished: None if finished.duration is None else duration(finished.duration),
        attempts=lambda finished: f"{finished.attempts}/{finished.max_attempts}",
        result_or_error=lambda finished: finished.raw_result if finished.error is None else finished.error,
        empty=NOTHING_KEPT,
    )
    if len(found) == limit:
        click.echo(f"Only the latest {limit} are shown; use --limit for more.", err=True)


def _print_groups(groups: list[ErrorGroup]) -> None:
    print_objects(
        groups,
        "fingerprint, task=task_identifier, error=error_type, attempts=errors, permanent, first at, last at, "
        "last job=last_job_id, message",
        empty="No errors.",
    )


def _print_errors(found: list[AttemptError]) -> None:
    if not found:
        return
    latest = found[0]
    print_fields(
        {
            "task": latest.task_identifier,
            "error": latest.error_type,
            "shown": count(len(found), "error"),
            "message": latest.message,
            "traceback": latest.traceback or "(not kept)",
        }
    )
    click.echo()
    print_objects(found, "job=job_id, attempt, permanent=is_final, failed at, worker=pool_id")


def _require_one(**parameters: Any) -> None:
    if parameters["is_followed"] and len(parameters["ids"]) > 1:
        raise click.UsageError("--follow takes one ID.")


@client_command("show", check=_require_one, connections=2)
@click.argument("ids", nargs=-1, required=True, type=JOB_ID, metavar="ID...")
@click.option("--all", "all_tracebacks", is_flag=True, help="Show the traceback of every attempt.")
@click.option("--follow", "is_followed", is_flag=True, help="Show the progress until the job has ended.")
async def show_command(
    utils: WorkerUtils, ids: tuple[int, ...], all_tracebacks: bool, is_followed: bool
) -> Output:
    """Show everything known about jobs, including finished ones in the history.

    For a job in the queue, the last lines say why it does not run, or where it is running.

    With --json, one ID gives an object and several give an array.

    \b
    graphile-worker show 12
    graphile-worker show 12 --follow
    graphile-worker show 12 --json | jq .payload
    """
    if is_followed:
        await _follow(utils, ids[0])
    found = [await utils.jobs.get_record(job_id) for job_id in ids]
    known = [record for record in found if record.is_known]
    explanations = {
        record.job_id: await _explanation(utils, record) for record in known if record.job is not None
    }
    unknown = [record for record in found if not record.is_known]

    def as_json() -> Any:
        values = [
            record_as_json(record) | {"explanation": explanation_as_json(explanations.get(record.job_id))}
            for record in known
        ]
        return values if len(ids) > 1 else values[0]

    return Output(
        as_json if known or len(ids) > 1 else None,
        lambda: _print(known, explanations, all_tracebacks=all_tracebacks),
        notes=[why_unknown(record) for record in unknown],
        status=1 if unknown else 0,
    )


async def _follow(utils: WorkerUtils, job_id: int) -> None:
    try:
        with progress_of(job_id, lines=True) as show:
            await follow(utils, job_id, show)
    except asyncio.CancelledError:
        click.echo(f"No longer following job {job_id}; the job itself continues.", err=True)
        raise


async def _explanation(utils: WorkerUtils, record: JobRecord) -> Explanation | None:
    """Why the job does not run, as the dashboard says it; None if it has just ended."""
    from ...diagnostics.explanation.decision import explain

    if record.job is None:
        return None
    async with utils.with_pg_client() as connection:
        return await explain(connection, utils.schema, record.job)


def _print(
    known: list[JobRecord], explanations: dict[int, Explanation | None], *, all_tracebacks: bool
) -> None:
    for number, record in enumerate(known):
        if number:
            click.echo()
        print_record(record, all_tracebacks=all_tracebacks)
        explanation = explanations.get(record.job_id)
        if explanation is not None:
            click.echo(f"\n{cell(explanation.headline, longest=None)}")
            for line in explanation.evidence:
                click.echo(f"  {cell(line, longest=None)}")

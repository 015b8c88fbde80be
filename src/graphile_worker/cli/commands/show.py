"""`graphile-worker show`: all that is known of jobs, waiting, running or gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from ...json_shapes import record_as_json
from ..support.command import Output, client_command
from ..support.follow import follow, progress_of
from ..support.job_record import print_record, why_unknown
from ..support.output import cell
from ..support.parameters import JobId

if TYPE_CHECKING:
    from ...admin.models.explanation import Explanation
    from ...client import WorkerUtils
    from ...client.following import JobRecord


def _require_one(**parameters: Any) -> None:
    if parameters["is_followed"] and len(parameters["ids"]) > 1:
        raise click.UsageError("--follow takes one ID.")


@client_command("show", check=_require_one, connections=2)
@click.argument("ids", nargs=-1, required=True, type=JobId(), metavar="ID...")
@click.option("--all", "all_tracebacks", is_flag=True, help="Show the traceback of every attempt.")
@click.option("--follow", "is_followed", is_flag=True, help="Show the progress until the job has ended.")
async def show_command(
    utils: WorkerUtils, ids: tuple[int, ...], all_tracebacks: bool, is_followed: bool
) -> Output:
    """Show all that is known of jobs, also of finished ones that are kept.

    Of a job in the queue the last lines say why it does not run, or where it is running.

    With --json, one ID gives an object and several give an array.

    \b
    graphile-worker show 12
    graphile-worker show 12 --follow
    graphile-worker show 12 --json | jq .payload
    """
    if is_followed:
        await _follow(utils, ids[0])
    found = [await utils.get_job_record(job_id) for job_id in ids]
    known = [record for record in found if record.is_known]
    explanations = {
        record.job_id: await _explanation(utils, record) for record in known if record.job is not None
    }
    unknown = [record for record in found if not record.is_known]

    def as_json() -> Any:
        values = [
            record_as_json(record) | {"explanation": _explanation_as_json(explanations.get(record.job_id))}
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
        click.echo(f"No longer following job {job_id}; the job itself goes on.", err=True)
        raise


async def _explanation(utils: WorkerUtils, record: JobRecord) -> Explanation | None:
    """Why the job does not run, as the dashboard says it; None if it has just ended."""
    from ...admin.service.explanation import decide
    from ...admin.service.explanation_facts import gather

    if record.job is None:
        return None
    async with utils.with_pg_client() as connection:
        return decide(await gather(connection, utils.schema, record.job))


def _explanation_as_json(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    return {"kind": explanation.kind, "headline": explanation.headline, "evidence": explanation.evidence}


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

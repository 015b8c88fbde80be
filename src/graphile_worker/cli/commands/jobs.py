"""`graphile-worker complete`, `fail`, `reschedule` and `remove`.

Jobs are named by id, or by key with `--key`. Each command says which of them it could not deal with and why;
the exit status is 0 only when there were none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...job import Job
from ...json_shapes import job_as_json
from ..support.client import open_utils, run_async
from ..support.output import cell, count, print_json
from ..support.parameters import JobId, When, command_options

if TYPE_CHECKING:
    from ...client import WorkerUtils

Command = TypeVar("Command", bound=Callable[..., Any])
Change = Callable[["WorkerUtils", list[int]], Awaitable[list[Job]]]


def jobs_by_id_or_key(command: Command) -> Command:
    """The arguments that name jobs."""
    by_key = click.option(
        "--key", "keys", multiple=True, metavar="KEY", help="Name a job by its key; repeatable."
    )
    by_id = click.argument("ids", nargs=-1, type=JobId(), metavar="[ID]...")
    return by_id(by_key(command))


@click.command("complete")
@command_options
@jobs_by_id_or_key
@click.pass_context
def complete_command(
    ctx: click.Context, /, as_json: bool, ids: tuple[int, ...], keys: tuple[str, ...], **_: Any
) -> int:
    """Delete jobs as if they had run.

    \b
    graphile-worker complete 12 13
    graphile-worker complete --key welcome:1
    """
    return _change(ctx, as_json, ids, keys, "completed", lambda utils, chosen: utils.complete_jobs(chosen))


@click.command("fail")
@command_options
@jobs_by_id_or_key
@click.option("--reason", metavar="TEXT", help="Kept as the jobs' last error.")
@click.pass_context
def fail_command(
    ctx: click.Context,
    /,
    as_json: bool,
    ids: tuple[int, ...],
    keys: tuple[str, ...],
    reason: str | None,
    **_: Any,
) -> int:
    """Give jobs up for good; they stay in the database, but are not tried again.

    \b
    graphile-worker fail 12 --reason "not needed any more"
    """
    return _change(
        ctx, as_json, ids, keys, "failed", lambda utils, chosen: utils.permanently_fail_jobs(chosen, reason)
    )


@click.command("reschedule")
@command_options
@jobs_by_id_or_key
@click.option(
    "--run-at", type=When(), metavar="WHEN", help="New time: 2030-01-31T12:00:00Z, now, 5m, 2h, 1d12h."
)
@click.option("--priority", type=int, metavar="N", help="New priority; smaller numbers run first.")
@click.option("--attempts", type=int, metavar="N", help="Tries that count as made; 0 revives a failed job.")
@click.option("--max-attempts", type=int, metavar="N", help="Tries in all.")
@click.pass_context
def reschedule_command(
    ctx: click.Context,
    /,
    as_json: bool,
    ids: tuple[int, ...],
    keys: tuple[str, ...],
    run_at: datetime | timedelta | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
    **_: Any,
) -> int:
    """Change when jobs run, their priority, or their attempts.

    \b
    graphile-worker reschedule 12 --run-at now --attempts 0      # try a failed job again
    graphile-worker reschedule --key nightly --priority -10
    """
    if all(value is None for value in (run_at, priority, attempts, max_attempts)):
        raise click.UsageError("Say what to change: --run-at, --priority, --attempts or --max-attempts.", ctx)
    return _change(
        ctx,
        as_json,
        ids,
        keys,
        "rescheduled",
        lambda utils, chosen: utils.reschedule_jobs(
            chosen, run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
        ),
    )


@click.command("remove")
@command_options
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.pass_context
def remove_command(ctx: click.Context, /, as_json: bool, keys: tuple[str, ...], **_: Any) -> int:
    """Delete jobs by their keys; one that is running ends, but is not tried again.

    \b
    graphile-worker remove nightly
    """
    found = run_async(_remove(ctx, keys))
    removed = {key: job for key, job in found.items() if job is not None and job.locked_at is None}
    running = {key: job for key, job in found.items() if job is not None and job.locked_at is not None}
    missing = [key for key, job in found.items() if job is None]
    if as_json:
        print_json(
            {
                "removed": [job_as_json(job) for job in removed.values()],
                "running": [job_as_json(job) for job in running.values()],
                "missing": missing,
            }
        )
    else:
        click.echo(f"Removed {count(len(removed), 'job')}.")
        for key, job in running.items():
            click.echo(f"{cell(key)}: job {job.id} is running; it lost its key and will not be tried again")
        for key in missing:
            click.echo(f"{cell(key)}: there is no job with this key", err=True)
    return 1 if missing else 0


async def _remove(ctx: click.Context, keys: Sequence[str]) -> dict[str, Job | None]:
    async with open_utils(ctx) as utils:
        return {key: await utils.remove_job(key) for key in keys}


def _change(
    ctx: click.Context,
    as_json: bool,
    ids: Sequence[int],
    keys: Sequence[str],
    done: str,
    change: Change,
) -> int:
    """Do `change` to the jobs that are named and tell how it went; returns the exit status."""
    if not ids and not keys:
        raise click.UsageError("Name the jobs by their ids, or with --key.", ctx)
    jobs, untouched = run_async(_apply(ctx, ids, keys, change))
    if as_json:
        print_json({done: [job_as_json(job) for job in jobs], "untouched": untouched})
    else:
        click.echo(f"{done.capitalize()} {count(len(jobs), 'job')}.")
        for entry in untouched:
            name = entry["id"] if entry["id"] is not None else cell(entry["key"])
            click.echo(f"{name}: {entry['reason']}", err=True)
    return 1 if untouched else 0


async def _apply(
    ctx: click.Context, ids: Sequence[int], keys: Sequence[str], change: Change
) -> tuple[list[Job], list[dict[str, Any]]]:
    from ...queries.inspection import JobFilter

    untouched: list[dict[str, Any]] = []
    async with open_utils(ctx) as utils:
        chosen = dict.fromkeys(ids)
        for key in keys:
            found = await utils.list_jobs(JobFilter(job_key=key))
            chosen |= dict.fromkeys(details.id for details in found)
            if not found:
                untouched.append({"id": None, "key": key, "reason": "there is no job with this key"})
        jobs = await change(utils, list(chosen))
        for job_id in chosen.keys() - {job.id for job in jobs}:
            details = await utils.get_job(job_id)
            if details is None:
                reason = "there is no such job"
            else:
                reason = f"it is locked by {cell(details.locked_by)}"
            untouched.append({"id": job_id, "key": None, "reason": reason})
    return jobs, sorted(untouched, key=lambda entry: entry["id"] or 0)

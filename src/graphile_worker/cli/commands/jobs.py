"""`graphile-worker complete`, `fail`, `reschedule` and `remove`.

Jobs are named by id, or by key with `--key`. Each command lists the jobs that it could not change, and why;
the exit status is 0 only if there were none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...job import Job
from ...json_shapes import job_as_json
from ...text import count
from ..support.command import Output, client_command
from ..support.output import cell
from ..support.parameters import JobId, When

if TYPE_CHECKING:
    from ...client import WorkerUtils

Command = TypeVar("Command", bound=Callable[..., Any])
Change = Callable[[list[int]], Awaitable[list[Job]]]


def jobs_by_id_or_key(command: Command) -> Command:
    """The arguments that name jobs."""
    by_key = click.option(
        "--key", "keys", multiple=True, metavar="KEY", help="Name a job by its key; repeatable."
    )
    by_id = click.argument("ids", nargs=-1, type=JobId(), metavar="[ID]...")
    return by_id(by_key(command))


def _require_jobs(ids: Sequence[int], keys: Sequence[str], **_: Any) -> None:
    if not ids and not keys:
        raise click.UsageError("Name the jobs by id, or with --key.")


def _require_change(ids: Sequence[int], keys: Sequence[str], **changes: Any) -> None:
    if all(value is None for value in changes.values()):
        raise click.UsageError("Name a change: --run-at, --priority, --attempts or --max-attempts.")
    _require_jobs(ids, keys)


@client_command("complete", check=_require_jobs)
@jobs_by_id_or_key
async def complete_command(utils: WorkerUtils, ids: tuple[int, ...], keys: tuple[str, ...]) -> Output:
    """Delete jobs as if they had run.

    \b
    graphile-worker complete 12 13
    graphile-worker complete --key welcome:1
    """
    return await _change(utils, ids, keys, "completed", utils.complete_jobs)


@client_command("fail", check=_require_jobs)
@jobs_by_id_or_key
@click.option("--reason", metavar="TEXT", help="Stored as the last error of the jobs.")
async def fail_command(
    utils: WorkerUtils, ids: tuple[int, ...], keys: tuple[str, ...], reason: str | None
) -> Output:
    """Fail jobs permanently. They stay in the database and are not retried.

    \b
    graphile-worker fail 12 --reason "no longer needed"
    """
    return await _change(
        utils, ids, keys, "failed", lambda chosen: utils.permanently_fail_jobs(chosen, reason)
    )


@client_command("reschedule", check=_require_change)
@jobs_by_id_or_key
@click.option(
    "--run-at",
    type=When(),
    metavar="WHEN",
    help="New time to run: 2030-01-31T12:00:00Z, now, or from now: 5m, 2h, 1d12h.",
)
@click.option("--priority", type=int, metavar="N", help="New priority; lower numbers run first.")
@click.option(
    "--attempts", type=int, metavar="N", help="Attempts already used; 0 retries a failed job from scratch."
)
@click.option("--max-attempts", type=int, metavar="N", help="Maximum number of attempts.")
async def reschedule_command(
    utils: WorkerUtils,
    ids: tuple[int, ...],
    keys: tuple[str, ...],
    run_at: datetime | timedelta | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
) -> Output:
    """Change the time, priority or attempts of jobs.

    \b
    graphile-worker reschedule 12 --run-at now --attempts 0      # retry a failed job
    graphile-worker reschedule --key nightly --priority -10
    """
    return await _change(
        utils,
        ids,
        keys,
        "rescheduled",
        lambda chosen: utils.reschedule_jobs(
            chosen, run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
        ),
    )


@client_command("remove")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
async def remove_command(utils: WorkerUtils, keys: tuple[str, ...]) -> Output:
    """Delete jobs by key. A running job continues, but is not retried.

    \b
    graphile-worker remove nightly
    """
    found = {key: await utils.remove_job(key) for key in keys}
    removed = [job for job in found.values() if job is not None and job.locked_at is None]
    running = {key: job for key, job in found.items() if job is not None and job.locked_at is not None}
    missing = [key for key, job in found.items() if job is None]

    def print_text() -> None:
        click.echo(f"Removed {count(len(removed), 'job')}.")
        for key, job in running.items():
            click.echo(
                f"{cell(key)}: job {job.id} is running; its key was removed and it will not be retried"
            )
        for key in missing:
            click.echo(f"{cell(key)}: no job has this key", err=True)

    return Output(
        lambda: {
            "removed": [job_as_json(job) for job in removed],
            "running": [job_as_json(job) for job in running.values()],
            "missing": missing,
        },
        print_text,
        status=1 if missing else 0,
    )


async def _change(
    utils: WorkerUtils, ids: Sequence[int], keys: Sequence[str], done: str, change: Change
) -> Output:
    """Apply `change` to the named jobs, and report which were changed and which were not."""
    jobs, untouched = await _apply(utils, ids, keys, change)

    def print_text() -> None:
        click.echo(f"{done.capitalize()} {count(len(jobs), 'job')}.")
        for entry in untouched:
            name = entry["id"] if entry["id"] is not None else cell(entry["key"])
            click.echo(f"{name}: {entry['reason']}", err=True)

    return Output(
        lambda: {done: [job_as_json(job) for job in jobs], "untouched": untouched},
        print_text,
        status=1 if untouched else 0,
    )


async def _apply(
    utils: WorkerUtils, ids: Sequence[int], keys: Sequence[str], change: Change
) -> tuple[list[Job], list[dict[str, Any]]]:
    from ...queries.inspection import JobFilter

    untouched: list[dict[str, Any]] = []
    chosen = dict.fromkeys(ids)
    for key in keys:
        found = await utils.list_jobs(JobFilter(job_key=key))
        chosen |= dict.fromkeys(details.id for details in found)
        if not found:
            untouched.append({"id": None, "key": key, "reason": "no job has this key"})
    jobs = await change(list(chosen))
    for job_id in chosen.keys() - {job.id for job in jobs}:
        details = await utils.get_job(job_id)
        reason = "no such job" if details is None else f"locked by {cell(details.locked_by)}"
        untouched.append({"id": job_id, "key": None, "reason": reason})
    return jobs, sorted(untouched, key=lambda entry: entry["id"] or 0)

"""`graphile-worker list`, `complete`, `fail`, `reschedule`, `retry`, `cancel` and `remove`.

Jobs to change are named by id, or by key with `--key`, or chosen by filters. Each command lists the named
jobs that it could not change, and why; the exit status is 0 only if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...diagnostics.json_shapes import details_as_json, job_as_json
from ...values.job import Job
from ...values.text import count, how_it_failed
from ..support.bulk_change import (
    Selection,
    Words,
    change_matching,
    filter_flags,
    filter_from,
    selection_flags,
    selection_from,
)
from ..support.command import Output, client_command, given_command
from ..support.output import cell, print_table
from ..support.parameters import WHEN, limit_option

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...database.statements.bulk_changes import BulkReport
    from ...database.statements.inspection import JobDetails
    from ...database.statements.manage_jobs import CancelReport

COMPLETE = Words("complete", "completed", "completing")
FAIL = Words("fail", "failed", "failing")
RESCHEDULE = Words("reschedule", "rescheduled", "rescheduling")
RETRY = Words("retry", "retried", "retrying")
CANCEL = Words("cancel", "cancelled", "cancelling")
CHANGES = ("run_at", "priority", "attempts", "max_attempts")


def _require_jobs(**parameters: Any) -> None:
    selection_from(parameters)


def _require_change(**parameters: Any) -> None:
    if all(parameters[name] is None for name in CHANGES):
        raise click.UsageError("Name a change: --run-at, --priority, --attempts or --max-attempts.")
    selection = selection_from(parameters)
    is_for_failed = selection.filter is not None and selection.filter.required_state == "failed"
    if is_for_failed and parameters["attempts"] is None and parameters["max_attempts"] is None:
        raise click.UsageError(
            "Failed jobs have no attempts left, so they would stay failed. To retry them from scratch, add "
            f"--attempts 0:\n\n    {given_command('--attempts', '0')}"
        )


@client_command("complete", check=_require_jobs, audit="complete")
@selection_flags
async def complete_command(utils: WorkerUtils, **flags: Any) -> Output:
    """Delete jobs as if they had run.

    \b
    graphile-worker complete 12 13
    graphile-worker complete --key welcome:1
    graphile-worker complete --state failed --task send_email --older-than 30d
    """
    return await _change(utils, selection_from(flags), COMPLETE, utils.complete_jobs)


@client_command("fail", check=_require_jobs, audit="give_up")
@selection_flags
@click.option("--reason", metavar="TEXT", help="Stored as the last error of the jobs.")
async def fail_command(utils: WorkerUtils, reason: str | None, **flags: Any) -> Output:
    """Fail jobs permanently. They stay in the database and are not retried.

    \b
    graphile-worker fail 12 --reason "no longer needed"
    graphile-worker fail --queue imports --state ready --reason "bad file"
    """
    change = partial(utils.permanently_fail_jobs, reason=reason)
    return await _change(utils, selection_from(flags), FAIL, change)


@client_command("reschedule", check=_require_change, audit="reschedule")
@selection_flags
@click.option(
    "--run-at",
    type=WHEN,
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
    run_at: datetime | timedelta | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
    **flags: Any,
) -> Output:
    """Change the time, priority or attempts of jobs.

    \b
    graphile-worker reschedule 12 --run-at now --attempts 0              # retry a failed job
    graphile-worker reschedule --state failed --run-at now --attempts 0  # retry all failed jobs
    graphile-worker reschedule --key nightly --priority -10
    """
    change = partial(
        utils.reschedule_jobs, run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
    )
    keeps_attempts = attempts is None and max_attempts is None
    return await _change(
        utils,
        selection_from(flags),
        RESCHEDULE,
        change,
        lambda report: _about_failed(report, keeps_attempts=keeps_attempts, keeps_run_at=run_at is None),
        notes=_still_failed,
    )


def _require_failed(**parameters: Any) -> None:
    if parameters["state"] not in (None, "failed"):
        raise click.UsageError("Only permanently failed jobs can be retried; for others use `reschedule`.")
    selection_from(parameters)


@client_command("retry", check=_require_failed, audit="retry")
@selection_flags
async def retry_command(utils: WorkerUtils, **flags: Any) -> Output:
    """Requeue permanently failed jobs now, with all their attempts.

    Jobs that have not failed are left alone.

    \b
    graphile-worker retry --task send_email --failed-since 2h
    graphile-worker retry --error "connection refused" --rate 50
    graphile-worker retry --all
    """
    selection = selection_from(flags)
    if selection.filter is None:
        return await _change(utils, selection, RETRY, partial(_retry_named, utils), why=_not_retried)
    failed = msgspec.structs.replace(selection, filter=replace(selection.filter, state="failed"))
    return await _change(
        utils, failed, RETRY, partial(utils.reschedule_jobs, run_at=timedelta(0), attempts=0)
    )


async def _retry_named(utils: WorkerUtils, ids: list[int]) -> list[Job]:
    details = [await utils.jobs.get(job_id) for job_id in ids]
    failed = [job.id for job in details if job is not None and job.state == "failed"]
    return await utils.reschedule_jobs(failed, run_at=timedelta(0), attempts=0)


def _not_retried(job: JobDetails) -> str:
    return f"locked by {cell(job.locked_by)}" if job.locked_by is not None else f"not failed, but {job.state}"


@client_command("cancel", check=_require_jobs, audit="cancel")
@selection_flags
@click.option(
    "--reason",
    metavar="TEXT",
    help="Kept with the cancelled jobs, and reported to callers that wait for them.",
)
async def cancel_command(utils: WorkerUtils, reason: str | None, **flags: Any) -> Output:
    """Cancel jobs: delete those that are waiting, and stop those that are running.

    A cancelled job is not retried. A worker of another runtime finishes it first.

    \b
    graphile-worker cancel 12 13
    graphile-worker cancel --key welcome:1 --reason "the user left"
    graphile-worker cancel --task send_email --since 2h
    """
    selection = selection_from(flags)
    if selection.filter is not None:
        change: Any = partial(utils.cancel_jobs, reason=reason)
        return await change_matching(selection, CANCEL, change, _about_running)
    report, missing = await _cancel_named(utils, selection.ids, selection.keys, reason)

    def print_text() -> None:
        if report.removed or not report.asked:
            click.echo(f"Cancelled {count(len(report.removed), 'job')}.")
        for job in report.asked:
            click.echo(f"{job.id}: running; worker pool {cell(job.locked_by)} was asked to end it")
        for key in missing:
            click.echo(f"{cell(key)}: no job has this key", err=True)
        for job in report.running:
            click.echo(f"{job.id}: running, locked by {cell(job.locked_by)}; {report.problem}", err=True)
        for job_id in report.gone:
            click.echo(f"{job_id}: no such job", err=True)

    return Output(
        lambda: {
            "removed": [job_as_json(job) for job in report.removed],
            "asked": [job_as_json(job) for job in report.asked],
            "running": [job_as_json(job) for job in report.running],
            "gone": report.gone,
            "missing_keys": missing,
            "problem": report.problem,
        },
        print_text,
        status=1 if missing or report.running or report.gone else 0,
        jobs=len(report.removed) + len(report.asked),
    )


async def _cancel_named(
    utils: WorkerUtils, ids: Sequence[int], keys: Sequence[str], reason: str | None
) -> tuple[CancelReport, list[str]]:
    """The report about all of them, and the keys that no job has."""
    reports = [await utils.cancel_jobs(ids, reason=reason)] if ids else []
    missing = []
    for key in keys:
        report = await utils.jobs.cancel(job_key=key, reason=reason)
        reports.append(report)
        if not (report.removed or report.asked or report.running):
            missing.append(key)
    from ...database.statements.manage_jobs import joined

    return joined(reports), missing


def _about_running(report: BulkReport) -> list[str]:
    """Says of running jobs that their workers have to end them."""
    if report.problem is not None:
        return [f"Running jobs were not cancelled: {report.problem}."]
    if not report.asked:
        return []
    verb = "is" if report.asked == 1 else "are"
    would = "would be" if report.is_dry_run else "was" if report.asked == 1 else "were"
    owner = "its worker" if report.asked == 1 else "their workers"
    return [f"{report.asked:,} of these {verb} running; {owner} {would} asked to end them."]


@client_command("remove", audit="remove_job")
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
        jobs=len(removed) + len(running),
    )


async def _change(
    utils: WorkerUtils,
    selection: Selection,
    words: Words,
    change: Any,
    about: Callable[[BulkReport], list[str]] = lambda report: [],
    *,
    notes: Callable[[list[Job]], list[str]] = lambda jobs: [],
    why: Callable[[JobDetails], str] = lambda job: f"locked by {cell(job.locked_by)}",
) -> Output:
    """Apply `change` to all jobs that match, or to the named ones.

    Of those it reports which were changed, which were not, and `why`.
    """
    if selection.filter is not None:
        return await change_matching(selection, words, change, about)
    done = words.done
    chosen, missing = await _named(utils, selection.ids, selection.keys)
    jobs: list[Job] = await change(chosen)
    untouched: list[dict[str, Any]] = [
        {"id": None, "key": key, "reason": "no job has this key"} for key in missing
    ]
    for job_id in sorted(set(chosen) - {job.id for job in jobs}):
        details = await utils.jobs.get(job_id)
        reason = "no such job" if details is None else why(details)
        untouched.append({"id": job_id, "key": None, "reason": reason})

    def print_text() -> None:
        click.echo(f"{done.capitalize()} {count(len(jobs), 'job')}.")
        for entry in untouched:
            name = entry["id"] if entry["id"] is not None else cell(entry["key"])
            click.echo(f"{name}: {entry['reason']}", err=True)

    return Output(
        lambda: {done: [job_as_json(job) for job in jobs], "untouched": untouched},
        print_text,
        notes=notes(jobs),
        status=1 if untouched else 0,
        jobs=len(jobs),
    )


async def _named(utils: WorkerUtils, ids: Sequence[int], keys: Sequence[str]) -> tuple[list[int], list[str]]:
    """The ids of the named jobs, and the keys that no job has."""
    from ...database.statements.job_filter import JobFilter

    missing: list[str] = []
    chosen = dict.fromkeys(ids)
    for key in keys:
        found = await utils.jobs.list(JobFilter(job_key=key))
        chosen |= dict.fromkeys(details.id for details in found)
        if not found:
            missing.append(key)
    return list(chosen), missing


def _still_failed(jobs: list[Job]) -> list[str]:
    """Says of rescheduled jobs that they will not run."""
    failed = [job.id for job in jobs if job.attempts >= job.max_attempts]
    return [f"{job_id}: still failed, no attempts left; add --attempts 0 to retry it" for job_id in failed]


def _about_failed(report: BulkReport, *, keeps_attempts: bool, keeps_run_at: bool) -> list[str]:
    """Says of failed jobs that they will not run, or not soon."""
    if not report.failed:
        return []
    if not report.is_dry_run:
        jobs = "1 job is" if report.failed == 1 else f"{report.failed:,} jobs are"
        return [f"{jobs} still failed, with no attempts left; add --attempts 0 to retry."]
    if keeps_attempts:
        return [f"{count(report.failed, 'failed job')} would stay failed; add --attempts 0 to retry."]
    if keeps_run_at:
        return [
            "Failed jobs keep their run_at, which may be hours away; add --run-at now to run them at once."
        ]
    return []


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
    States: ready (can run now), scheduled (for later), running (a worker has it),
    failed (permanently: no attempts left).

    A short job looks ready while it runs in the transaction that fetched it.

    \b
    graphile-worker list
    graphile-worker list --state failed --task send_email --limit 200
    graphile-worker list --failed-since 2h --error timeout
    """
    chosen: Any = ORDERS[order]
    found = await utils.jobs.list(filter_from(flags, job_key=key, order=chosen, limit=limit))
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
    if job.state == "failed":
        attempts = how_it_failed(job.attempts_made, job.max_attempts)
    return [
        job.id, job.task_identifier, job.state, attempts, job.priority, time, job.queue_name, job.key,
        job.last_error,
    ]  # fmt: skip

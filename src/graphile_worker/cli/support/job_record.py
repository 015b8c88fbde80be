"""Prints all that is known of a job, and follows a job to its end.

The record is its row or the finished job, and the errors of its attempts. Progress is on standard error: a
bar on a terminal, else a line per change.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...diagnostics.json_shapes import details_as_json, finished_job_as_json, job_as_json
from ...values.job import Job
from ...values.payload import traces_in, without_trace
from ...values.text import duration, failed_permanently, how_it_failed
from .command import Output
from .output import cell, print_fields, print_objects, progress_bar

if TYPE_CHECKING:
    from ...client import WorkerUtils
    from ...client.job_status import JobRecord, JobStatus
    from ...database.statements.inspection import JobDetails
    from ...history.records import AttemptError, FinishedJob
    from ...history.task_reports import Progress

NOT_KEPT = "(not kept)"
MAX_TRACES = 5
WHY_NOTHING_IS_KEPT = (
    "It never existed, or it completed and was not kept. To keep finished jobs, add them with keep=True "
    '(--keep), use @task(keep=True), or set history = "all".'
)


def why_unknown(record: JobRecord) -> str:
    """Says that there is nothing about this job, and why."""
    if record.problem is not None:
        return f"{record.job_id}: no such job, and the history cannot be read: {record.problem}"
    return f"{record.job_id}: no such job, and nothing is kept of it. {WHY_NOTHING_IS_KEPT}"


def print_record(record: JobRecord, *, all_tracebacks: bool) -> None:
    """Print the job, how it was finished earlier, and its errors."""
    earlier = record.history
    if record.job is not None:
        print_fields(_row_fields(record, record.job))
        if record.job.state == "failed":  # the fields say how it ended
            earlier = record.history[1:]
    elif record.history:
        print_fields(_finished_fields(record.history[0]))
        earlier = record.history[1:]
    else:
        print_fields(
            {
                "id": record.job_id,
                "task_identifier": record.errors[0].task_identifier,
                "state": "gone; it was not kept",
            }
        )
    if earlier:
        click.echo("\nFinished earlier")
        print_objects(
            earlier,
            "finished at, state, attempts, error",
            attempts=lambda finished: f"{finished.attempts}/{finished.max_attempts}",
        )
    if record.errors:
        _print_errors(record.errors, all_tracebacks=all_tracebacks)


def indented_json(text: str) -> str:
    """JSON text over several lines, or as it is if it cannot be read."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:  # such as half a surrogate pair, which Node may write
        return text


def _row_fields(record: JobRecord, details: JobDetails) -> dict[str, Any]:
    values = details_as_json(details) | {"state": record.state}
    values["flags"] = ", ".join(values["flags"])
    if details.state == "failed":
        how = how_it_failed(details.attempts_made, details.max_attempts)
        values["attempts"] = how or f"not known; {details.max_attempts} were allowed"
    del values["attempts_made"]
    if record.is_cancelled:
        values["cancelled"] = record.cancel_reason or "without a reason"
    if record.progress is not None:
        values["progress"] = _progress(record.progress)
    del values["payload"]
    return values | _payload_fields(details.raw_payload)


def _payload_fields(raw: str) -> dict[str, str]:
    """The payload as its task gets it, and the traces in which the job was added."""
    traces = [f"{trace['trace_id']} (span {trace['span_id']})" for trace in traces_in(raw)[:MAX_TRACES]]
    found = {"trace": "\n".join(map(cell, traces))} if traces else {}
    return found | {"payload": indented_json(without_trace(raw))}


def _progress(progress: Progress) -> str:
    share = [] if progress.share is None else [f"{progress.share:.0%}"]
    data = [] if progress.data is None else [cell(progress.data, longest=None)]
    return "  ".join([*share, progress.note or "", *data, f"({cell(progress.updated_at)})"])


def _finished_fields(finished: FinishedJob) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": finished.job_id,
        "task_identifier": finished.task_identifier,
        "state": finished.state,
        "queue_name": finished.queue_name,
        "key": finished.key,
        "priority": finished.priority,
        "attempts": how_it_failed(finished.attempts, finished.max_attempts)
        if finished.state == "failed"
        else f"{finished.attempts} of {finished.max_attempts}",
        "created_at": finished.created_at,
        "run_at": finished.run_at,
        "started_at": finished.started_at,
        "finished_at": finished.finished_at,
        "took": None if finished.duration is None else duration(finished.duration),
        "worker": finished.pool_id,
        "flags": ", ".join(sorted(finished.flags)),
    }
    if finished.error is not None:
        fields["reason" if finished.state == "cancelled" else "error"] = finished.error
    if finished.state == "completed":
        fields["result"] = "(none)" if finished.raw_result is None else indented_json(finished.raw_result)
    fields = {name: value for name, value in fields.items() if value not in (None, "")}
    return fields | (
        {"payload": NOT_KEPT} if finished.raw_payload is None else _payload_fields(finished.raw_payload)
    )


def _print_errors(errors: list[AttemptError], *, all_tracebacks: bool) -> None:
    click.echo("\nErrors")
    print_objects(
        errors,
        "attempt, failed at, took, worker=pool_id, type=error_type, message",
        took=lambda error: None if error.duration is None else duration(error.duration),
        message=lambda error: error.message.removeprefix(f"{error.error_type}: "),
    )
    shown = [error for error in errors if error.traceback]
    for error in shown if all_tracebacks else shown[:1]:
        click.echo(f"\nTraceback of attempt {error.attempt}")
        click.echo(cell((error.traceback or "").rstrip(), longest=None))
    hidden = 0 if all_tracebacks else len(shown) - 1
    if hidden > 0:
        click.echo("\nUse --all to show the tracebacks of earlier attempts.", err=True)


INTERVAL = 1.0  # seconds between looks; workers store progress as often
MAX_TEXT = 50

Show = Callable[["JobStatus"], None]


async def follow(utils: WorkerUtils, job_id: int, show: Show, *, timeout: timedelta | None = None) -> bool:
    """Call `show` until the job has ended; False if the time was over before."""
    from ...errors import JobCancelledError, JobFailedError, JobGoneError

    ended = asyncio.ensure_future(utils.wait_for(job_id))
    try:
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()) as limit:
            while not ended.done():
                show(await utils.jobs.get_status(job_id))
                await asyncio.wait((ended,), timeout=INTERVAL)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    finally:
        ended.cancel()
        await asyncio.wait((ended,))
    error = ended.exception()
    if error is not None and not isinstance(error, JobFailedError | JobCancelledError | JobGoneError):
        raise error
    return True


@contextmanager
def progress_of(job_id: int, *, lines: bool) -> Iterator[Show]:
    """A function that shows how the job stands. `lines`: print lines where there is no terminal."""
    if not sys.stderr.isatty():
        yield _lines(job_id) if lines else lambda status: None
        return
    with progress_bar(f"job {job_id}", total=1.0) as bar:

        def show(status: JobStatus) -> None:
            share = status.progress.share if status.progress is not None else None
            bar.show(cell(_words(status), longest=MAX_TEXT), done=share)

        yield show


def _lines(job_id: int) -> Show:
    last = ""

    def show(status: JobStatus) -> None:
        nonlocal last
        share = status.progress.share if status.progress is not None else None
        text = _words(status) if share is None else f"{share:.0%}  {_words(status)}"
        if text != last and not status.has_ended:
            last = text
            click.echo(f"job {job_id}: {cell(text, longest=None)}", err=True)

    return show


def _words(status: JobStatus) -> str:
    """What the job does now: the note of its task, or what it is waiting for."""
    if status.state == "running":
        note = status.progress.note if status.progress is not None else None
        return note or "running"
    if status.state == "scheduled":
        failed = f"attempt {status.attempts} failed, next " if status.attempts else "scheduled for "
        return f"{failed}{cell(status.run_at)}"
    return "waiting for a worker" if status.state == "ready" else status.state


async def wait_for_end(utils: WorkerUtils, job: Job, queue: str | None, timeout: timedelta | None) -> Output:
    """Wait for the job, at most this long: its result, or its outcome otherwise."""
    with progress_of(job.id, lines=False) as show:
        has_ended = await follow(utils, job.id, show, timeout=timeout)
    record = await utils.jobs.get_record(job)
    if not has_ended or not record.history:
        why = _about_missing_history(record) if has_ended else _about_timeout(record, timeout)
        found = job_as_json(job, state=record.state, queue_name=queue)
        return Output(lambda: found, lambda: None, notes=[why], status=1)
    finished = record.history[0]
    is_completed = finished.state == "completed"
    notes = []
    if not is_completed:
        verb = f"was {finished.state}"
        if finished.state == "failed":
            verb = failed_permanently(finished.attempts, finished.max_attempts)
        reason = f": {cell(finished.error, longest=None)}" if finished.error else ""
        notes = [f"Job {job.id} {verb}{reason}"]
        if finished.state == "failed":
            notes.append(f"To see its traceback: graphile-worker show {job.id}")
    return Output(
        lambda: finished_job_as_json(finished),
        lambda: _print_result(finished.raw_result, finished.duration, job.id) if is_completed else None,
        notes=notes,
        status=0 if is_completed else 1,
    )


def _print_result(raw_result: str | None, seconds: float | None, job_id: int) -> None:
    """Text as it is, other values as JSON."""
    if raw_result is None:
        took = "" if seconds is None else f" in {duration(seconds)}"
        click.echo(f"Job {job_id} completed{took} without a result.", err=True)
        return
    value: Any = msgspec.json.decode(raw_result)
    if isinstance(value, str):
        click.echo(cell(value, longest=None))
    else:
        click.echo(indented_json(raw_result) if sys.stdout.isatty() else raw_result)


def _about_timeout(record: JobRecord, timeout: timedelta | None) -> str:
    states = {"running": "it is still running", "ready": "it still waits for a worker"}
    current = states.get(record.state, "it still waits")
    if record.state == "scheduled" and record.job is not None:
        current = f"it waits until {cell(record.job.run_at)}"
        if record.job.last_error:
            headline = record.job.last_error.partition("\n")[0]
            current = f"attempt {record.job.attempts} failed with {cell(headline)}; {current}"
    after = "yet" if timeout is None else f"within {duration(timeout.total_seconds())}"
    return (
        f"Job {record.job_id} has not ended {after}: {current}. "
        f"To follow it: graphile-worker show {record.job_id} --follow"
    )


def _about_missing_history(record: JobRecord) -> str:
    if record.job is not None:  # a permanent failure that was not kept
        how = failed_permanently(record.job.attempts_made, record.job.max_attempts)
        return f"Job {record.job_id} {how}: {cell(record.job.last_error, longest=None)}"
    why = record.problem or "only Python workers keep finished jobs; was its worker of another runtime?"
    return f"Job {record.job_id} is gone and was not kept: {why}"

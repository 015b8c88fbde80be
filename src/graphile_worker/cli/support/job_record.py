"""Prints all that is known of a job: its row or the finished job, and the errors of its attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...diagnostics.json_shapes import details_as_json
from ...values.attempts import how_it_failed
from ...values.payload import traces_in, without_trace
from ...values.text import duration
from .output import cell, print_fields, print_table

if TYPE_CHECKING:
    from ...client.job_status import JobRecord
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
        columns = ["finished at", "state", "attempts", "error"]
        rows = [
            [
                finished.finished_at,
                finished.state,
                f"{finished.attempts}/{finished.max_attempts}",
                finished.error,
            ]
            for finished in earlier
        ]
        print_table(columns, rows)
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
    rows = [
        [
            error.attempt,
            error.failed_at,
            None if error.duration is None else duration(error.duration),
            error.pool_id,
            error.error_type,
            error.message.removeprefix(f"{error.error_type}: "),
        ]
        for error in errors
    ]
    print_table(["attempt", "failed at", "took", "worker", "type", "message"], rows)
    shown = [error for error in errors if error.traceback]
    for error in shown if all_tracebacks else shown[:1]:
        click.echo(f"\nTraceback of attempt {error.attempt}")
        click.echo(cell((error.traceback or "").rstrip(), longest=None))
    hidden = 0 if all_tracebacks else len(shown) - 1
    if hidden > 0:
        click.echo("\nUse --all to show the tracebacks of earlier attempts.", err=True)

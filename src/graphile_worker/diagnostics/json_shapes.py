"""What commands print with `--json`, and what an HTTP API returns: the keys are part of the public contract.

The keys are written out here, so that renaming an attribute cannot change them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from ..client.job_status import JobRecord
    from ..database.statements.inspection import JobDetails
    from ..history.statistics import BacklogSample, TaskStatistics
    from ..values.job import Job
    from .finding import Finding

INTERNAL = ("task_id", "job_queue_id")
"""Columns that mean nothing outside the database."""


def _shape(keys: str, **shown: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that gives these attributes of an object, in this order; of a list, of each object in it.

    `key=attribute` stands for an attribute with another name. `shown` has how to show attributes that are no
    plain values. None is null everywhere.
    """
    names = [(key, attribute or key) for key, _, attribute in (each.partition("=") for each in keys.split())]

    def shape(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return [shape(each) for each in value]
        found = {key: getattr(value, attribute) for key, attribute in names}
        for key, show in shown.items():
            if found[key] is not None:
                found[key] = show(found[key])
        return found

    return shape


# -- jobs --------------------------------------------------------------------------------------------------


def job_as_json(job: Job, **more: Any) -> dict[str, Any]:
    """Every column by its name; flags as a list of names. `more` adds what is not in the row."""
    values = {name: value for name, value in job.to_dict().items() if name not in INTERNAL}
    flags = sorted(values.pop("flags") or [])
    first = {"id": values.pop("id"), "task_identifier": values.pop("task_identifier")}
    return first | more | values | {"flags": flags}


def details_as_json(details: JobDetails) -> dict[str, Any]:
    """The same with the state, the name of the queue, and the time of a permanent failure."""
    return job_as_json(details, state=details.state, queue_name=details.queue_name)


progress_as_json = _shape("share note data updated_at")
finished_job_as_json = _shape(
    "id=job_id task_identifier state queue_name key priority attempts max_attempts created_at run_at "
    "started_at finished_at duration pool_id payload result error"
)
error_as_json = _shape(
    "job_id attempt task_identifier failed_at duration is_final error_type message traceback fingerprint "
    "pool_id version"
)
error_group_as_json = _shape(
    "fingerprint task_identifier error_type message place first_at last_at errors permanent last_job_id "
    "first_version last_version"
)
explanation_as_json = _shape("kind headline evidence")
stack_as_json = _shape("job_id task_identifier worker_id kind stack taken_at running_for place")
bulk_as_json = _shape("changed asked skipped failed tasks last_id up_to is_complete is_dry_run problem")
_around_row = _shape(
    "history errors progress is_cancelled cancel_reason",
    history=finished_job_as_json,
    errors=error_as_json,
    progress=progress_as_json,
)


def record_as_json(record: JobRecord) -> dict[str, Any]:
    """The same for a job that may be gone, with `history`, `errors` and `progress`.

    What only a row has is null once the job is gone; `state` is then how it ended, or `gone`.
    """
    job = _gone_as_json(record) if record.job is None else details_as_json(record.job)
    around: dict[str, Any] = _around_row(record)
    return job | around


def _gone_as_json(record: JobRecord) -> dict[str, Any]:
    finished = record.history[0] if record.history else None
    known = {} if finished is None else finished_job_as_json(finished)
    named = finished or (record.errors[0] if record.errors else None)
    names = (
        "queue_name", "payload", "priority", "run_at", "attempts", "max_attempts", "last_error", "created_at",
        "updated_at", "key", "locked_at", "locked_by", "revision",
    )  # fmt: skip
    return {
        "id": record.job_id,
        "task_identifier": None if named is None else named.task_identifier,
        "state": record.state,
        **{name: known.get(name) for name in names},
        "last_error": known.get("error"),
        "failed_at": finished.finished_at if finished is not None and finished.state == "failed" else None,
        "attempts_made": finished.attempts if finished is not None and finished.state == "failed" else None,
        "flags": [] if finished is None else sorted(finished.flags),
    }


# -- the queue ---------------------------------------------------------------------------------------------

pause_as_json = _shape("task_identifier queue_name schedule paused_at until reason")
"""Without a task, a queue and a schedule, everything is paused."""
queue_as_json = _shape(
    "queue_name concurrency locked_by locked_at jobs ready is_estimate pause", pause=pause_as_json
)
limit_as_json = _shape(
    "name concurrency rate burst running may_start overridden set_at tasks",
    rate=lambda rate: {"starts": rate[0], "period": rate[1].total_seconds()},
    overridden=list,
    tasks=list,
)
"""The bounds in force; the period of the rate in seconds."""
schedule_as_json = _shape(
    "identifier known_since last_execution workers runs pause",
    workers=_shape(
        "worker_id=pool_id host pid app_version task_identifier pattern zone payload options source"
    ),
    runs=_shape("job_id due_at"),
    pause=pause_as_json,
)
_counts = _shape("ready scheduled running failed total")
statistics_as_json = _shape(
    "jobs tasks is_estimate queues locked_queues oldest_ready_at pauses",
    jobs=_counts,
    tasks=lambda tasks: {task: _counts(counts) for task, counts in sorted(tasks.items())},
    pauses=pause_as_json,
)


def task_statistics_as_json(statistics: TaskStatistics, seconds: float) -> dict[str, Any]:
    """Statistics of a period of this many seconds; all times in seconds."""
    return {
        "completed": statistics.completed,
        "failed": statistics.failed,
        "permanently_failed": statistics.permanently_failed,
        "completed_per_second": statistics.completed / seconds,
        "run_seconds": statistics.run_seconds,
        "wait_seconds": statistics.wait_seconds,
        "longest": statistics.longest,
        "run": _percentiles(statistics.run_percentile),
        "wait": _percentiles(statistics.wait_percentile),
    }


def _percentiles(percentile: Callable[[float], float | None]) -> dict[str, float | None]:
    return {"p50": percentile(0.5), "p95": percentile(0.95), "p99": percentile(0.99)}


def backlog_as_json(start: datetime, samples: Sequence[BacklogSample]) -> dict[str, Any]:
    """Several samples as one: sums of what happened, and the largest backlog."""
    added = [sample.added for sample in samples if sample.added is not None]
    deleted = [sample.deleted for sample in samples if sample.deleted is not None]
    return {
        "start": start,
        "added": sum(added) if added else None,
        "deleted": sum(deleted) if deleted else None,
        "ready": max(sample.ready for sample in samples),
        "scheduled": max(sample.scheduled for sample in samples),
        "failed": max(sample.failed for sample in samples),
        "is_estimate": any(sample.is_estimate for sample in samples),
        "oldest_wait": max(sample.oldest_wait for sample in samples),
    }


# -- workers and the schema --------------------------------------------------------------------------------

worker_as_json = _shape(
    "id runtime host pid version tasks concurrency liveness started_at last_seen_at is_alive dead_in "
    "silent_for stalled_for blocked jobs_held running job_ids locked_since app_version lanes is_listening "
    "clock flag_rules executors load",
    blocked=_shape("task_identifier job_id since seconds"),
    running=_shape("id started_at"),
    lanes=_shape("name slots tasks"),
    flag_rules=_shape(
        "forbidden accepted allowlist changing", forbidden=list, accepted=list, allowlist=list, changing=list
    ),
    executors=_shape("executor place job_id memory"),
    load=_shape("memory child_memory cpu loop_delay"),
)
concurrency_as_json = _shape("worker_id lane before concurrency")
sweep_as_json = _shape(
    "recovered lost is_busy is_dry_run", recovered=_shape("id returned failed left cancelled")
)
cleanup_as_json = _shape("permafailed_jobs task_identifiers job_queues")
migration_as_json = _shape(
    "schema found_revision revision applied_revisions rust_revisions applied_extensions=applied_own_objects "
    "has_extensions=has_own_objects",
    schema=lambda schema: schema.name,
)
_finding = _shape("check severity summary meaning advice page")


def findings_as_json(found: list[Finding]) -> dict[str, Any]:
    """The doctor's findings, which are sorted by severity."""
    worst = found[0].severity if found else "ok"
    return {"healthy": worst != "error", "worst": worst, "findings": _finding(found)}

"""What commands print with `--json`, and what an HTTP API returns: the keys are part of the public contract.

The keys are written out here, so that renaming an attribute cannot change them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from ..client.job_status import ConcurrencyChange, JobRecord, JobStack
    from ..database.migrations.run import MigrationReport
    from ..database.statements.bulk_changes import BulkReport
    from ..database.statements.cleanup import CleanupReport
    from ..database.statements.inspection import JobCounts, JobDetails, QueueSummary, Statistics
    from ..database.statements.limits import LimitSummary
    from ..database.statements.schedules import Schedule
    from ..history.error_groups import ErrorGroup
    from ..history.records import AttemptError, FinishedJob
    from ..history.statistics import BacklogSample, TaskStatistics
    from ..history.task_reports import Progress
    from ..recovery.registry.workers import WorkerSummary
    from ..recovery.sweep import RecoveredWorker, SweepReport
    from ..values.job import Job, Pause
    from .explanation.values import Explanation
    from .finding import Finding

INTERNAL = ("task_id", "job_queue_id")
"""Columns that mean nothing outside the database."""


def job_as_json(job: Job, **more: Any) -> dict[str, Any]:
    """Every column by its name; flags as a list of names. `more` adds what is not in the row."""
    values = {name: value for name, value in job.to_dict().items() if name not in INTERNAL}
    flags = sorted(values.pop("flags") or [])
    first = {"id": values.pop("id"), "task_identifier": values.pop("task_identifier")}
    return first | more | values | {"flags": flags}


def details_as_json(details: JobDetails) -> dict[str, Any]:
    """The same with the state, the name of the queue, and the time of a permanent failure."""
    return job_as_json(details, state=details.state, queue_name=details.queue_name)


def record_as_json(record: JobRecord) -> dict[str, Any]:
    """The same for a job that may be gone, with `history`, `errors` and `progress`.

    What only a row has is null once the job is gone; `state` is then how it ended, or `gone`.
    """
    job = _gone_as_json(record) if record.job is None else details_as_json(record.job)
    return job | {
        "history": [finished_job_as_json(finished) for finished in record.history],
        "errors": [error_as_json(error) for error in record.errors],
        "progress": None if record.progress is None else progress_as_json(record.progress),
        "is_cancelled": record.is_cancelled,
        "cancel_reason": record.cancel_reason,
    }


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


def explanation_as_json(explanation: Explanation | None) -> dict[str, Any] | None:
    """Why a job does not run; None if it is gone."""
    if explanation is None:
        return None
    return {"kind": explanation.kind, "headline": explanation.headline, "evidence": explanation.evidence}


def progress_as_json(progress: Progress) -> dict[str, Any]:
    return {
        "share": progress.share,
        "note": progress.note,
        "data": progress.data,
        "updated_at": progress.updated_at,
    }


def bulk_as_json(report: BulkReport) -> dict[str, Any]:
    return {
        "changed": report.changed,
        "asked": report.asked,
        "skipped": report.skipped,
        "failed": report.failed,
        "tasks": report.tasks,
        "last_id": report.last_id,
        "up_to": report.up_to,
        "is_complete": report.is_complete,
        "is_dry_run": report.is_dry_run,
        "problem": report.problem,
    }


def finished_job_as_json(finished: FinishedJob) -> dict[str, Any]:
    """A finished job; payload and result as JSON values."""
    return {
        "id": finished.job_id,
        "task_identifier": finished.task_identifier,
        "state": finished.state,
        "queue_name": finished.queue_name,
        "key": finished.key,
        "priority": finished.priority,
        "attempts": finished.attempts,
        "max_attempts": finished.max_attempts,
        "created_at": finished.created_at,
        "run_at": finished.run_at,
        "started_at": finished.started_at,
        "finished_at": finished.finished_at,
        "duration": finished.duration,
        "pool_id": finished.pool_id,
        "payload": finished.payload,
        "result": finished.result,
        "error": finished.error,
    }


def error_as_json(error: AttemptError) -> dict[str, Any]:
    """A failed attempt."""
    return {
        "job_id": error.job_id,
        "attempt": error.attempt,
        "task_identifier": error.task_identifier,
        "failed_at": error.failed_at,
        "duration": error.duration,
        "is_final": error.is_final,
        "error_type": error.error_type,
        "message": error.message,
        "traceback": error.traceback,
        "fingerprint": error.fingerprint,
        "pool_id": error.pool_id,
        "version": error.version,
    }


def error_group_as_json(group: ErrorGroup) -> dict[str, Any]:
    """One kind of error."""
    return {
        "fingerprint": group.fingerprint,
        "task_identifier": group.task_identifier,
        "error_type": group.error_type,
        "message": group.message,
        "place": group.place,
        "first_at": group.first_at,
        "last_at": group.last_at,
        "errors": group.errors,
        "permanent": group.permanent,
        "last_job_id": group.last_job_id,
        "first_version": group.first_version,
        "last_version": group.last_version,
    }


def statistics_as_json(found: Statistics) -> dict[str, Any]:
    return {
        "jobs": _counts(found.jobs),
        "tasks": {task: _counts(counts) for task, counts in sorted(found.tasks.items())},
        "is_estimate": found.is_estimate,
        "queues": found.queues,
        "locked_queues": found.locked_queues,
        "oldest_ready_at": found.oldest_ready_at,
        "pauses": [pause_as_json(pause) for pause in found.pauses],
    }


def pause_as_json(pause: Pause) -> dict[str, Any]:
    """Without a task, a queue and a schedule, everything is paused."""
    return {
        "task_identifier": pause.task_identifier,
        "queue_name": pause.queue_name,
        "schedule": pause.schedule,
        "paused_at": pause.paused_at,
        "until": pause.until,
        "reason": pause.reason,
    }


def _counts(counts: JobCounts) -> dict[str, int]:
    return {
        "ready": counts.ready,
        "scheduled": counts.scheduled,
        "running": counts.running,
        "failed": counts.failed,
        "total": counts.total,
    }


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


def queue_as_json(queue: QueueSummary) -> dict[str, Any]:
    return {
        "queue_name": queue.queue_name,
        "concurrency": queue.concurrency,
        "locked_by": queue.locked_by,
        "locked_at": queue.locked_at,
        "jobs": queue.jobs,
        "ready": queue.ready,
        "is_estimate": queue.is_estimate,
        "pause": None if queue.pause is None else pause_as_json(queue.pause),
    }


def worker_as_json(worker: WorkerSummary) -> dict[str, Any]:
    return {
        "id": worker.id,
        "runtime": worker.runtime,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "tasks": worker.tasks,
        "concurrency": worker.concurrency,
        "liveness": worker.liveness,
        "started_at": worker.started_at,
        "last_seen_at": worker.last_seen_at,
        "is_alive": worker.is_alive,
        "dead_in": worker.dead_in,
        "silent_for": worker.silent_for,
        "stalled_for": worker.stalled_for,
        "blocked": None
        if worker.blocked is None
        else {
            "task_identifier": worker.blocked.task_identifier,
            "job_id": worker.blocked.job_id,
            "since": worker.blocked.since,
            "seconds": worker.blocked.seconds,
        },
        "jobs_held": worker.jobs_held,
        "running": None
        if worker.running is None
        else [{"id": job.id, "started_at": job.started_at} for job in worker.running],
        "job_ids": worker.job_ids,
        "locked_since": worker.locked_since,
        "app_version": worker.app_version,
        "lanes": None
        if worker.lanes is None
        else [{"name": lane.name, "slots": lane.slots, "tasks": lane.tasks} for lane in worker.lanes],
        "is_listening": worker.is_listening,
        "clock": worker.clock,
        "flag_rules": None
        if worker.flag_rules is None
        else {
            "forbidden": list(worker.flag_rules.forbidden),
            "accepted": list(worker.flag_rules.accepted),
            "allowlist": None if worker.flag_rules.allowlist is None else list(worker.flag_rules.allowlist),
            "changing": list(worker.flag_rules.changing),
        },
        "executors": None
        if worker.executors is None
        else [
            {"executor": each.executor, "place": each.place, "job_id": each.job_id, "memory": each.memory}
            for each in worker.executors
        ],
        "load": None
        if worker.load is None
        else {
            "memory": worker.load.memory,
            "child_memory": worker.load.child_memory,
            "cpu": worker.load.cpu,
            "loop_delay": worker.load.loop_delay,
        },
    }


def schedule_as_json(schedule: Schedule) -> dict[str, Any]:
    return {
        "identifier": schedule.identifier,
        "known_since": schedule.known_since,
        "last_execution": schedule.last_execution,
        "workers": [
            {
                "worker_id": worker.pool_id,
                "host": worker.host,
                "pid": worker.pid,
                "app_version": worker.app_version,
                "task_identifier": worker.task_identifier,
                "pattern": worker.pattern,
                "zone": worker.zone,
                "payload": worker.payload,
                "options": worker.options,
                "source": worker.source,
            }
            for worker in schedule.workers
        ],
        "runs": [{"job_id": run.job_id, "due_at": run.due_at} for run in schedule.runs],
        "pause": None if schedule.pause is None else pause_as_json(schedule.pause),
    }


def concurrency_as_json(change: ConcurrencyChange) -> dict[str, Any]:
    return {
        "worker_id": change.worker_id,
        "lane": change.lane,
        "before": change.before,
        "concurrency": change.concurrency,
    }


def stack_as_json(stack: JobStack) -> dict[str, Any]:
    return {
        "job_id": stack.job_id,
        "task_identifier": stack.task_identifier,
        "worker_id": stack.worker_id,
        "kind": stack.kind,
        "stack": stack.stack,
        "taken_at": stack.taken_at,
        "running_for": stack.running_for,
        "place": stack.place,
    }


def sweep_as_json(report: SweepReport) -> dict[str, Any]:
    return {
        "recovered": [_recovered(worker) for worker in report.recovered],
        "lost": report.lost,
        "is_busy": report.is_busy,
        "is_dry_run": report.is_dry_run,
    }


def _recovered(worker: RecoveredWorker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "returned": worker.returned,
        "failed": worker.failed,
        "left": worker.left,
        "cancelled": worker.cancelled,
    }


def cleanup_as_json(report: CleanupReport) -> dict[str, int]:
    return {
        "permafailed_jobs": report.permafailed_jobs,
        "task_identifiers": report.task_identifiers,
        "job_queues": report.job_queues,
    }


def migration_as_json(report: MigrationReport) -> dict[str, Any]:
    return {
        "schema": report.schema.name,
        "found_revision": report.found_revision,
        "revision": report.revision,
        "applied_revisions": report.applied_revisions,
        "rust_revisions": report.rust_revisions,
        "applied_extensions": report.applied_own_objects,
        "has_extensions": report.has_own_objects,
    }


def findings_as_json(found: Sequence[Finding]) -> dict[str, Any]:
    """The doctor's findings, which are sorted by severity."""
    worst = found[0].severity if found else "ok"
    findings = [
        {
            "check": finding.check,
            "severity": finding.severity,
            "summary": finding.summary,
            "meaning": finding.meaning,
            "advice": finding.advice,
        }
        for finding in found
    ]
    return {"healthy": worst != "error", "worst": worst, "findings": findings}


def limit_as_json(limit: LimitSummary) -> dict[str, Any]:
    """The bounds in force; the period of the rate in seconds."""
    rate = limit.rate
    return {
        "name": limit.name,
        "concurrency": limit.concurrency,
        "rate": None if rate is None else {"starts": rate[0], "period": rate[1].total_seconds()},
        "burst": limit.burst,
        "running": limit.running,
        "may_start": limit.may_start,
        "overridden": list(limit.overridden),
        "set_at": limit.set_at,
        "tasks": list(limit.tasks),
    }

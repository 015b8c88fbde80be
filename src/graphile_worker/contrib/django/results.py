"""Results of Django's tasks, from the queue and the history."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...values.schema_name import SchemaName
from .compat import TaskError, TaskResult, TaskResultStatus
from .tasks import find_task

ENDED_OTHERWISE = {"cancelled": "graphile_worker.errors.JobCancelledError",
                   "expired": "graphile_worker.errors.JobCancelledError"}  # fmt: skip


async def read_result(connection: Connection, schema: str, job_id: int, alias: str | None = None) -> Any:
    """The TaskResult of a job, or None if there is no such job or it is no task of Django's.

    `alias` is the backend of the result, by default that of the task.
    """
    row = await connection.fetchrow(load("history/whole_job", SchemaName(schema)), job_id)
    if row is None or row["task_identifier"] is None:
        return None
    try:
        task = find_task(row["task_identifier"])
    except ImportError:
        return None
    return None if task is None else result_from(row, job_id, task, alias or task.backend)


def result_from(row: Row, job_id: int, task: Any, alias: str) -> Any:
    """The result that one row of `whole_job` describes."""
    failures: Sequence[Any] = msgspec.json.decode(row["errors"]) if row["errors"] else []
    payload = msgspec.json.decode(row["payload"]) if row["payload"] else {}
    if not isinstance(payload, dict):
        payload = {}
    status = _status(row)
    errors = [_error(failure) for failure in failures]
    if not row["is_in_queue"] and row["state"] in ENDED_OTHERWISE:
        errors.append(
            TaskError(exception_class_path=ENDED_OTHERWISE[row["state"]], traceback=row["error"] or "")
        )
    elif status == TaskResultStatus.FAILED and not errors:
        text = row["last_error"] or row["error"] or ""
        errors.append(TaskError(exception_class_path="builtins.Exception", traceback=text))
    workers = [failure["pool_id"] for failure in failures if failure["pool_id"]]
    starts = [failure["failed_at"] - (failure["duration"] or 0) for failure in failures]
    if status == TaskResultStatus.RUNNING:
        workers.append(row["locked_by"])
        starts.append(row["locked_at"])
    elif status == TaskResultStatus.SUCCESSFUL:
        workers.append(row["pool_id"] or "")
        starts.append(row["started_at"] or row["finished_at"])
    finished = None
    if status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED):
        finished = row["finished_at"] or (failures[-1]["failed_at"] if failures else None)
    result = TaskResult(
        task=task.using(priority=-row["priority"]) if task.priority != -row["priority"] else task,
        id=str(job_id),
        status=status,
        enqueued_at=_instant(row["created_at"]),
        started_at=_instant(starts[0]) if starts else None,
        last_attempted_at=_instant(starts[-1]) if starts else None,
        finished_at=_instant(finished),
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=alias,
        errors=errors,
        worker_ids=workers,
    )
    if status == TaskResultStatus.SUCCESSFUL and row["result"] is not None:
        object.__setattr__(result, "_return_value", msgspec.json.decode(row["result"]))
    return result


def _status(row: Row) -> Any:
    if row["is_in_queue"]:
        if row["locked_at"] is not None:
            return TaskResultStatus.RUNNING
        return TaskResultStatus.FAILED if row["is_last_attempt"] else TaskResultStatus.READY
    return TaskResultStatus.SUCCESSFUL if row["state"] == "completed" else TaskResultStatus.FAILED


def _error(failure: Any) -> Any:
    text = failure["traceback"] or failure["message"] or ""
    return TaskError(exception_class_path=class_path(failure["error_type"] or "Exception"), traceback=text)


def class_path(error_type: str) -> str:
    """The dotted path of an exception class; the history leaves out `builtins` and our own modules."""
    if "." in error_type:
        return error_type
    module = "builtins" if hasattr(builtins, error_type) else "graphile_worker.errors"
    return f"{module}.{error_type}"


def _instant(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    found = datetime.fromtimestamp(seconds, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found)

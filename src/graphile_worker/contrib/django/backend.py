"""GraphileWorkerBackend: Django's Tasks framework on Graphile Worker.

    TASKS = {"default": {"BACKEND": "graphile_worker.contrib.django.backend.GraphileWorkerBackend"}}

A task is added by one statement on Django's connection, in the transaction that is open there. Its result is
read by one statement from the queue and the history.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.utils import timezone

from ... import errors as own_errors
from ...database.connections.bound import run_blocking
from ...database.connections.connection import Connection, Row
from ...database.connections.foreign import as_blocking_connection
from ...database.sql import load
from ...values import attempts
from ...values.schema_name import SchemaName
from ...values.spec import MAX_IDENTIFIER_LENGTH
from ...values.text import closest
from .client import utils
from .conf import check_alias, worker_settings
from .tasks import (
    OWN_FIELDS,
    BaseTaskBackend,
    GraphileTask,
    InvalidTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    find_task,
    identifier_of,
    normalize_json,
    remember,
    task_enqueued,
    unfinished,
)

OPTIONS = ("DATABASE", "MAX_ATTEMPTS", "RESULTS", "RESULT_DAYS", "SERIAL_QUEUES")
RESULTS = ("all", "failed", "none")
LARGEST_ID = 2**63 - 1
APP = "graphile_worker.contrib.django"


class GraphileWorkerBackend(BaseTaskBackend):
    """A backend of TASKS. Its OPTIONS:

    - DATABASE: alias of the database, by default that of the setting GRAPHILE_WORKER
    - MAX_ATTEMPTS: how often a task runs at most, 1 by default
    - RESULTS: "all" (the default), "failed" or "none"; only with "all" can results be read
    - RESULT_DAYS: how long results are kept, 7 by default
    - SERIAL_QUEUES: queues whose tasks run one at a time
    """

    task_class = GraphileTask
    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        for name in options:
            if name not in OPTIONS:
                near = closest(str(name), OPTIONS)
                hint = f"did you mean {near!r}?" if near else f"known: {', '.join(OPTIONS)}"
                raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS'] has no key {name!r}; {hint}")
        if options.get("RESULTS", "all") not in RESULTS:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']['RESULTS']: expected {RESULTS}")
        self.supports_get_result = options.get("RESULTS", "all") == "all"
        self.max_attempts: int = options.get("MAX_ATTEMPTS", 1)
        self._keep = timedelta(days=options.get("RESULT_DAYS", 7))
        self._serial_queues = frozenset(options.get("SERIAL_QUEUES", ()))

    @property
    def task_options(self) -> dict[str, Any]:
        """Options of its tasks in a worker, for jobs that other programs have added."""
        options: dict[str, Any] = {"max_attempts": self.max_attempts}
        if self.supports_get_result:
            options |= {"keep": self._keep, "keep_payload": True}
        elif self.options["RESULTS"] == "none":
            options["keep"] = False
        return options

    @property
    def database(self) -> str:
        """The alias of the database that has the jobs."""
        alias: str = self.options.get("DATABASE") or worker_settings().database
        return alias

    def validate_task(self, task: Any) -> None:
        """Called by Django when a task is defined and when it is enqueued."""
        super().validate_task(task)
        if len(identifier := identifier_of(task)) > MAX_IDENTIFIER_LENGTH:
            raise InvalidTask(
                f"{identifier!r}, the task identifier, is longer than {MAX_IDENTIFIER_LENGTH} characters"
            )
        remember(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        is_kept = self.supports_get_result
        own = {name: getattr(task, name, None) for name in OWN_FIELDS}
        job = utils(self.database).add_job(
            identifier_of(task),
            {"args": args, "kwargs": kwargs},
            priority=-task.priority,
            run_at=_aware(task.run_after),
            queue_name=task.queue_name if task.queue_name in self._serial_queues else None,
            **own | {"max_attempts": own["max_attempts"] or self.max_attempts},
            keep=self._keep if is_kept else None,
            keep_payload=True if is_kept else None,
        )
        result = unfinished(task, job, TaskResultStatus.READY, args, kwargs, backend=self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """What is known of a task that was enqueued; raises TaskResultDoesNotExist."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        try:
            job_id = int(result_id)
        except (TypeError, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        if not 0 < job_id <= LARGEST_ID:
            raise TaskResultDoesNotExist(result_id)
        connection = as_blocking_connection(connections[self.database])
        found = run_blocking(read_result(connection, worker_settings().schema, job_id, self.alias))
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return found

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        yield from super().check(**kwargs)
        yield from check_backend(self)


def check_backend(backend: Any) -> Iterable[CheckMessage]:
    """E001, E002, W001 and W002: one backend of TASKS."""
    if not apps.is_installed(APP):
        yield Error(
            f"TASKS[{backend.alias!r}] needs {APP!r} in INSTALLED_APPS",
            hint="Its migrations install the schema.",
            id="graphile_worker.E001",
        )
    try:
        problems = check_alias(backend.database)
    except ImproperlyConfigured:
        return  # E003
    yield from problems or _check_routers(backend)
    if not backend.queues:
        yield Warning(
            f"TASKS[{backend.alias!r}]['QUEUES'] is empty: a worker cannot know the queues",
            hint="Name them here, or with `manage.py graphile_worker --queue NAME`.",
            id="graphile_worker.W001",
        )


def _check_routers(backend: Any) -> Iterable[CheckMessage]:
    if not settings.DATABASE_ROUTERS:
        return
    models = [model for model in apps.get_models() if model._meta.app_label != "graphile_worker"]
    written = sorted({router.db_for_write(model) for model in models})
    if written and backend.database not in written:
        yield Warning(
            f"TASKS[{backend.alias!r}] enqueues in the database {backend.database!r}, where no model is "
            "written: tasks that are enqueued in a transaction are not part of it",
            hint=f"Set DATABASE to an alias that your routers write to: {', '.join(map(repr, written))}.",
            id="graphile_worker.W002",
        )


def _aware(instant: datetime | None) -> datetime | None:
    """A time without a zone is meant in Django's TIME_ZONE."""
    if instant is None or timezone.is_aware(instant):
        return instant
    return timezone.make_aware(instant)


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
    for module in (builtins, own_errors, attempts):
        if hasattr(module, error_type):
            return f"{module.__name__}.{error_type}"
    return "builtins.Exception"  # an error of another runtime


def _instant(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    found = datetime.fromtimestamp(seconds, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found)

"""GraphileWorkerBackend: Django's Tasks framework on Graphile Worker.

TASKS = {"default": {"BACKEND": "graphile_worker.contrib.django.backend.GraphileWorkerBackend"}}

A task is added by one statement on Django's connection, in the transaction that is open there. Its result is
read by one statement from the queue and the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from ...database.connections.blocking import run_blocking
from ...database.connections.foreign import as_blocking_connection
from ...values.spec import MAX_IDENTIFIER_LENGTH
from ...values.text import closest
from .client import utils
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from .conf import worker_settings
from .results import read_result
from .tasks import GraphileTask, identifier_of, remember

OPTIONS = ("DATABASE", "MAX_ATTEMPTS", "RESULTS", "RESULT_DAYS", "SERIAL_QUEUES")
RESULTS = ("all", "failed", "none")
LARGEST_ID = 2**63 - 1


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
        """Add a job for the task."""
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        is_kept = self.supports_get_result
        job = utils(self.database).add_job(
            identifier_of(task),
            {"args": args, "kwargs": kwargs},
            priority=-task.priority,
            run_at=_aware(task.run_after),
            queue_name=task.queue_name if task.queue_name in self._serial_queues else None,
            max_attempts=getattr(task, "max_attempts", None) or self.max_attempts,
            job_key=getattr(task, "job_key", None),
            job_key_mode=getattr(task, "job_key_mode", None),
            keep=self._keep if is_kept else None,
            keep_payload=True if is_kept else None,
        )
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=TaskResultStatus.READY,
            enqueued_at=job.created_at if _uses_zones() else timezone.make_naive(job.created_at),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
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
        """Called by Django's system checks."""
        from .checks import check_backend

        yield from super().check(**kwargs)
        yield from check_backend(self)


def _uses_zones() -> bool:
    from django.conf import settings

    return bool(settings.USE_TZ)


def _aware(instant: datetime | None) -> datetime | None:
    """A time without a zone is meant in Django's TIME_ZONE."""
    if instant is None or timezone.is_aware(instant):
        return instant
    return timezone.make_aware(instant)

"""Tasks of Django's framework as tasks of a worker."""

from __future__ import annotations

import traceback
from asyncio import CancelledError
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from ...directives import GiveUp, JobDirective, Snooze
from ...errors import JobError, JobInterruptedError
from ...job import Job
from ...tasks.helpers import JobHelpers
from ...tasks.task import AnyTask
from ...tasks.task import Task as WorkerTask
from .compat import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from .tasks import backend_of, identifier_of

NO_FAILURES = (CancelledError, JobInterruptedError, Snooze)
"""What ends an attempt without using it up; the job runs again."""


def worker_task(task: Any) -> AnyTask:
    """A task of Django's framework as one of ours."""
    run = _run_coroutine(task) if iscoroutinefunction(task.func) else _run_function(task)
    run.__name__ = task.name
    run.__doc__ = task.func.__doc__
    return WorkerTask(run, identifier_of(task), backend_of(task).task_options)


def _run_function(task: Any) -> Callable[..., Any]:
    def run(payload: Any, helpers: JobHelpers) -> Any:
        sender = type(backend_of(task))
        result, arguments, keywords = _prepared(task, payload, helpers)
        task_started.send(sender=sender, task_result=result)
        try:
            _succeed(result, task.func(*arguments, **keywords))
        except BaseException as error:
            if _fail(result, error, helpers.job):
                task_finished.send(sender=sender, task_result=result)
            raise
        task_finished.send(sender=sender, task_result=result)
        return result._return_value

    return run


def _run_coroutine(task: Any) -> Callable[..., Any]:
    async def run(payload: Any, helpers: JobHelpers) -> Any:
        sender = type(backend_of(task))
        result, arguments, keywords = _prepared(task, payload, helpers)
        await task_started.asend(sender=sender, task_result=result)
        try:
            _succeed(result, await task.func(*arguments, **keywords))
        except BaseException as error:
            if _fail(result, error, helpers.job):
                # With `asend`, plain receivers would not see the exception, which the framework logs.
                trace = error.__traceback__
                await sync_to_async(task_finished.send)(sender=sender, task_result=result)
                error.__traceback__ = trace
            raise
        await task_finished.asend(sender=sender, task_result=result)
        return result._return_value

    return run


def _prepared(task: Any, payload: Any, helpers: JobHelpers) -> tuple[Any, list[Any], dict[str, Any]]:
    """The result as the task and the receivers of signals see it, and the arguments."""
    if not isinstance(payload, dict) or not isinstance(payload.get("args", []), list):
        raise JobError('the payload of a Django task must be {"args": [...], "kwargs": {...}}')
    job, now = helpers.job, timezone.now()
    args, kwargs = payload.get("args", []), payload.get("kwargs", {})
    result = TaskResult(
        task=task,
        id=str(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=job.created_at if settings.USE_TZ else timezone.make_naive(job.created_at),
        started_at=now,
        last_attempted_at=now,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[job.locked_by or ""] * job.attempts,
    )
    context = [TaskContext(task_result=result)] if task.takes_context else []
    return result, [*context, *args], kwargs


def _fail(result: Any, error: BaseException, job: Job) -> bool:
    """Note how the attempt ended; returns whether the task has failed permanently."""
    if isinstance(error, NO_FAILURES):
        object.__setattr__(result, "status", TaskResultStatus.READY)
        return False
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    text = "".join(traceback.format_exception(error))
    result.errors.append(TaskError(exception_class_path=path, traceback=text))
    is_last = job.attempts >= job.max_attempts or isinstance(error, GiveUp)
    object.__setattr__(result, "status", TaskResultStatus.FAILED if is_last else TaskResultStatus.READY)
    object.__setattr__(result, "finished_at", timezone.now() if is_last else None)
    return is_last


def _succeed(result: Any, value: Any) -> None:
    """Note what the task returned; raises if it is no JSON, or a directive such as `Snooze`."""
    if isinstance(value, JobDirective):
        raise value
    object.__setattr__(result, "_return_value", normalize_json(value))
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())

"""Tasks of Django's framework, and our own, as a worker in a Django project runs them.

Plain functions run in the worker's threads, coroutines on its event loop in a thread-sensitive context of
their own: without it, all would share one thread for their database work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries
from django.utils import timezone

from ...errors import JobError
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


def worker_task(task: Any) -> AnyTask:
    """A task of Django's framework as one of ours."""
    run = _run_coroutine(task) if iscoroutinefunction(task.func) else _run_function(task)
    run.__name__ = task.name
    run.__doc__ = task.func.__doc__
    made: AnyTask = WorkerTask(run, identifier_of(task), {"max_attempts": backend_of(task).max_attempts})
    return made if iscoroutinefunction(task.func) else with_connections(made)


def _run_function(task: Any) -> Callable[..., Any]:
    def run(payload: Any, helpers: JobHelpers) -> Any:
        with _reported(task, payload, helpers) as (arguments, keywords, result):
            task_started.send(sender=type(backend_of(task)), task_result=result)
            object.__setattr__(result, "_return_value", normalize_json(task.func(*arguments, **keywords)))
        return result._return_value

    return run


def _run_coroutine(task: Any) -> Callable[..., Any]:
    async def run(payload: Any, helpers: JobHelpers) -> Any:
        async with _OwnThread():
            sender = type(backend_of(task))
            result, arguments, keywords = _prepared(task, payload, helpers)
            await task_started.asend(sender=sender, task_result=result)
            try:
                object.__setattr__(
                    result, "_return_value", normalize_json(await task.func(*arguments, **keywords))
                )
            except Exception as error:
                if _fail(result, error, helpers.job):
                    await task_finished.asend(sender=sender, task_result=result)
                raise
            _succeed(result)
            await task_finished.asend(sender=sender, task_result=result)
            return result._return_value

    return run


@contextmanager
def _reported(task: Any, payload: Any, helpers: JobHelpers) -> Iterator[tuple[Any, Any, Any]]:
    sender = type(backend_of(task))
    result, arguments, keywords = _prepared(task, payload, helpers)
    try:
        yield arguments, keywords, result
    except BaseException as error:
        if _fail(result, error, helpers.job):
            task_finished.send(sender=sender, task_result=result)
        raise
    _succeed(result)
    task_finished.send(sender=sender, task_result=result)


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
        enqueued_at=job.created_at,
        started_at=now,
        last_attempted_at=now,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[helpers.worker_id] * job.attempts,
    )
    context = [TaskContext(task_result=result)] if task.takes_context else []
    return result, [*context, *args], kwargs


def _fail(result: Any, error: BaseException, job: Job) -> bool:
    """Note the error; returns whether it was the last attempt."""
    kind = type(error)
    path = f"{kind.__module__}.{kind.__qualname__}"
    result.errors.append(TaskError(exception_class_path=path, traceback=str(error)))
    is_last = job.attempts >= job.max_attempts
    object.__setattr__(result, "status", TaskResultStatus.FAILED if is_last else TaskResultStatus.READY)
    object.__setattr__(result, "finished_at", timezone.now() if is_last else None)
    return is_last


def _succeed(result: Any) -> None:
    object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())


# -- connections of Django -----------------------------------------------------------------------------------


def with_connections(task: AnyTask) -> AnyTask:
    """The same task, with Django's connections looked after before and after each run."""
    whole = copy.copy(task)
    invoke = task._invoke
    if task.is_async:

        async def run_coroutine(payload: Any, helpers: JobHelpers) -> Any:
            async with _OwnThread():
                return await invoke(payload, helpers)

        whole._invoke = run_coroutine
    else:

        def run_function(payload: Any, helpers: JobHelpers) -> Any:
            close_old_connections()
            try:
                return invoke(payload, helpers)
            finally:
                close_old_connections()
                reset_queries()

        whole._invoke = run_function
    return whole


class _OwnThread(ThreadSensitiveContext):
    """A thread for the database work of one coroutine; its connections are closed at the end."""

    async def __aexit__(self, exc: object, value: object, tb: object) -> None:
        if self in SyncToAsync.context_to_thread_executor:
            await sync_to_async(connections.close_all, thread_sensitive=True)()
        await super().__aexit__(exc, value, tb)

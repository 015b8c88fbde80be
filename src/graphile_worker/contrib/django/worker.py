"""What a worker in a Django project runs, the tasks of the installed applications, and how.

- `worker_task` makes a task of Django's framework a task of a worker.
- `with_connections` takes care of Django's connections around every job. Plain functions run in the worker's
  threads, coroutines on its event loop in a thread-sensitive context of their own: without it, all would
  share one thread for their database work.
- `LaterTasks` finds tasks in modules that the worker has not imported. A project may define tasks anywhere,
  and enqueue them from a web process that has imported their module. The worker looks at the names of tasks
  in the database, at its start and once a minute, and imports those modules of installed applications that
  may have them.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module, invalidate_caches
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections, reset_queries
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from ...database.connections.errors import explained
from ...database.statements.fetch import known_task_names
from ...errors import JobInterruptedError, WorkerStoppedError
from ...hooks import Hooks, WorkerContext
from ...recovery.sweeper import Periodic
from ...runner.application import App
from ...tasks.helpers import JobHelpers
from ...tasks.task import AnyTask
from ...tasks.task import Task as WorkerTask
from ...values.attempts import GiveUp, JobDirective, Snooze
from ...values.clock import SystemClock
from ...values.job import Job
from ...worker.pool import WorkerPool
from .conf import DjangoSettings, worker_settings
from .tasks import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    arguments_of,
    backend_of,
    framework_logger,
    identifier_of,
    normalize_json,
    task_finished,
    task_started,
    unfinished,
)

if TYPE_CHECKING:
    from ...cron import ParsedCronItem

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
                _tell_of_failure(sender, result)
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
                # With `asend`, plain receivers would not see the exception.
                trace = error.__traceback__
                await sync_to_async(_tell_of_failure)(sender, result)
                error.__traceback__ = trace
            raise
        await task_finished.asend(sender=sender, task_result=result)
        return result._return_value

    return run


_is_failing: ContextVar[bool] = ContextVar("_is_failing", default=False)


class _LeftToTheWorker(logging.Filter):
    """Keeps the framework from logging a failure, with its traceback, that the worker logs, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_failing.get()


_left_to_the_worker = _LeftToTheWorker()


def _tell_of_failure(sender: Any, result: Any) -> None:
    framework_logger.addFilter(_left_to_the_worker)
    token = _is_failing.set(True)
    try:
        task_finished.send(sender=sender, task_result=result)
    finally:
        _is_failing.reset(token)


def _prepared(task: Any, payload: Any, helpers: JobHelpers) -> tuple[Any, list[Any], dict[str, Any]]:
    """The result as the task and the receivers of signals see it, and the arguments."""
    args, kwargs = arguments_of(payload)
    job = helpers.job
    result = unfinished(
        task,
        job,
        TaskResultStatus.RUNNING,
        args,
        kwargs,
        backend=task.backend,
        started_at=timezone.now(),
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


INTERVAL = 60.0  # seconds

logger = logging.getLogger("graphile_worker.django")


class LaterTasks:
    """A plugin. `tasks` returns what the worker runs, of all tasks that are defined at the moment."""

    def __init__(self, tasks: Callable[[], Iterable[AnyTask]]) -> None:
        self._tasks = tasks
        self._left_alone: set[str] = set()
        self._reported: set[str] = set()
        self._pool: WorkerPool | None = None
        self._loop: Periodic | None = None

    def install(self, hooks: Hooks) -> None:
        """Nothing: it only runs beside the worker."""

    async def start(self, worker: WorkerContext) -> None:
        """Search once, and go on while the worker runs."""
        self._pool = cast(WorkerPool, worker.pool)
        self._schema = worker.options.schema_name
        try:
            await self._search()
        except Exception as error:  # the worker reports a database that is away
            logger.debug("could not search for tasks: %s", explained(error))
        if not self._pool.once:
            self._loop = Periodic("search for tasks", self._look, SystemClock(), first_after=INTERVAL)
            self._loop.start()

    async def stop(self) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def _look(self) -> float:
        with suppress(WorkerStoppedError):  # the pool ends before its plugins
            await self._search()
        return INTERVAL

    async def _search(self) -> None:
        pool = self._pool
        if pool is None:
            return
        names = await pool.run_statement(lambda connection: known_task_names(connection, self._schema))
        known = {*pool.task_identifiers, *self._left_alone}
        unknown = sorted(name for name in names - known if "." in name)
        if unknown and (found := await asyncio.to_thread(self._import, unknown, known)):
            logger.info("found more tasks: %s", ", ".join(found))
            await pool.add_tasks(found)

    def _import(self, names: list[str], known: set[str]) -> dict[str, AnyTask]:
        from .tasks import find_task

        invalidate_caches()
        found = []
        for name in names:
            try:
                if find_task(name) is not None:
                    found.append(name)
                    continue
                self._left_alone.add(name)
                logger.info("jobs of %r are left to other workers: it is not a task of this project", name)
            except ImportError as error:  # the module may be deployed later
                if name not in self._reported:
                    self._reported.add(name)
                    logger.info("jobs of %r are left to other workers: %s", name, error)
            except Exception:
                self._left_alone.add(name)
                logger.exception("the module of the task %r cannot be imported", name)
        tasks = {task.identifier: task for task in self._tasks()}
        self._left_alone.update(set(found) - tasks.keys())  # of queues or backends of other workers
        return {name: task for name, task in tasks.items() if name not in known}


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
            _check_old_connections()
            try:
                return invoke(payload, helpers)
            finally:
                close_old_connections()
                reset_queries()

        whole._invoke = run_function
    return whole


def _check_old_connections() -> None:
    """Close connections that are too old; those that the server has closed are replaced on first use."""
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        connection.health_check_enabled = True


class _OwnThread(ThreadSensitiveContext):
    """A thread for the database work of one coroutine; its connections are closed at the end."""

    async def __aexit__(self, exc: object, value: object, tb: object) -> None:
        if self in SyncToAsync.context_to_thread_executor:
            await sync_to_async(connections.close_all, thread_sensitive=True)()
        await super().__aexit__(exc, value, tb)


Adapt = Callable[[AnyTask], AnyTask]
"""Makes a task of a project one that a worker can run beside others."""


def make_app(
    queues: Collection[str] = (), excluded: Collection[str] = (), *, adapt: Adapt = with_connections
) -> App:
    """An App with the tasks of the project; `queues` and `excluded` are queues of Django's framework."""
    chosen = worker_settings()
    own = [adapt(task) for task in own_tasks(chosen)]

    def of_django() -> list[AnyTask]:
        return [adapt(task) for task in django_tasks(queues, excluded)]

    items: list[ParsedCronItem] = []
    if chosen.crontab or chosen.cron_items:
        from .recurring import recurring_jobs

        items = recurring_jobs(chosen)
    plugins = [LaterTasks(of_django)] if has_framework() else []
    return App(tasks=[*own, *of_django()], plugins=plugins, cron_items=items)


def own_tasks(chosen: DjangoSettings) -> list[AnyTask]:
    """Tasks made with `graphile_worker.task` in the modules of the settings."""
    autodiscover_modules(*chosen.task_modules)
    modules = [import_module(name) for name in [*_discovered(chosen), *chosen.tasks]]
    found = {id(value): value for module in modules for value in vars(module).values()}
    return [value for value in found.values() if isinstance(value, WorkerTask)]


def _discovered(chosen: DjangoSettings) -> Iterable[str]:
    import sys

    from django.apps import apps

    for config in apps.get_app_configs():
        for module in chosen.task_modules:
            if (name := f"{config.name}.{module}") in sys.modules and config.name != __package__:
                yield name


def has_framework() -> bool:
    """Whether there is a Tasks framework: Django 6, or the package django-tasks."""
    try:
        from . import tasks  # noqa: F401
    except ImproperlyConfigured:
        return False
    return True


def django_tasks(queues: Collection[str] = (), excluded: Collection[str] = ()) -> list[Any]:
    """Tasks of Django's framework, once for each queue that the worker serves."""
    if not has_framework():
        return []
    from .backend import GraphileWorkerBackend
    from .tasks import backend_of, defined_tasks

    if "*" in queues:  # as other backends name all of them
        queues = ()
    found = []
    for task in defined_tasks().values():
        backend = backend_of(task)
        if not isinstance(backend, GraphileWorkerBackend):
            continue
        served = set(queues) or backend.queues or {task.queue_name}
        served = (served & backend.queues if backend.queues else served) - set(excluded)
        found += [worker_task(task.using(queue_name=queue)) for queue in sorted(served)]
    return found

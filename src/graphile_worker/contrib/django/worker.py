"""What a worker in a Django project runs: the tasks of the installed applications.

Django's connections around every job of a worker.

Plain functions run in the worker's threads, coroutines on its event loop in a thread-sensitive context of
their own: without it, all would share one thread for their database work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections, reset_queries
from django.utils.module_loading import autodiscover_modules

from ...app import App
from ...tasks.helpers import JobHelpers
from ...tasks.task import AnyTask
from ...tasks.task import Task as WorkerTask
from .conf import DjangoSettings, plugin_named, worker_settings
from .running import LaterTasks


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

    found_later = [LaterTasks(of_django)] if has_framework() else []
    plugins = [*found_later, *map(plugin_named, chosen.plugins)]
    return App(tasks=[*own, *of_django()], plugins=plugins, crontab=chosen.crontab)


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
        from . import compat  # noqa: F401
    except ImproperlyConfigured:
        return False
    return True


def django_tasks(queues: Collection[str] = (), excluded: Collection[str] = ()) -> list[Any]:
    """Tasks of Django's framework, once for each queue that the worker serves."""
    if not has_framework():
        return []
    from .backend import GraphileWorkerBackend
    from .running import worker_task
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

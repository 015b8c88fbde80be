"""Django's connections around every job of a worker.

Plain functions run in the worker's threads, coroutines on its event loop in a thread-sensitive context of
their own: without it, all would share one thread for their database work.
"""

from __future__ import annotations

import copy
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries

from ...tasks.helpers import JobHelpers
from ...tasks.task import AnyTask


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

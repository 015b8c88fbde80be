"""A worker in the transaction of a test: tasks and statements run in the thread that called `run_tasks`.

Django has a connection for each thread, so only that thread sees what the test has not committed. The event
loop of the worker is in another thread, and passes the work on through `asgiref`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from ...db.blocking import run_blocking
from ...db.foreign.adapter import ForeignTransaction
from ...db.foreign.django_connections import DjangoConnection
from ...db.foreign.driver_state import is_aborted
from ...db.foreign.rows import ForeignRow, Result
from ...db.single import SingleConnection
from ...tasks.helpers import JobHelpers, current_helpers
from ...tasks.sync_helpers import SyncHelpers
from ...tasks.task import AnyTask

T = TypeVar("T")


@cache
def with_moving_time(sql: str) -> str:
    """The statement with the time of the statement for that of the transaction, which stands still in a test.

    Without this, a task would end before it was enqueued, and a retry would be due too early.
    """
    return re.sub(r"(?<![\w.])now\(\)", "pg_catalog.statement_timestamp()", sql)


class CallersConnection(DjangoConnection):
    """Django's connection of the calling thread, for the worker's event loop."""

    is_blocking = False

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        run = super()._run
        # Workers pass arrays as tuples too, which psycopg takes for rows.
        values = tuple(list(value) if isinstance(value, tuple) else value for value in arguments)
        return await _in_caller(lambda: run_blocking(run(with_moving_time(sql), values)))

    async def _is_outside_transaction(self) -> bool:
        look = super()._is_outside_transaction
        return await _in_caller(lambda: run_blocking(look()))

    def is_in_transaction(self) -> bool:
        return not self._connection.autocommit or bool(self._connection.in_atomic_block)

    def is_closed(self) -> bool:
        return False  # Django opens it when it is used

    # The worker limits the time of its statements. Here nothing waits for a server that is away.

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[ForeignRow]:
        return await super().fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> ForeignRow | None:
        return await super().fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        return await super().fetchval(query, *args, column=column)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        return await super().execute(query, *args)

    def transaction(self, *, isolation: str | None = None, **modes: Any) -> ForeignTransaction:
        return super().transaction(isolation=isolation)


def in_calling_thread(task: AnyTask, pool: SingleConnection) -> AnyTask:
    """The same task, run by the calling thread and in its transaction. The worker waits meanwhile."""
    whole = copy.copy(task)
    invoke, is_async = task._invoke, task.is_async

    async def run(payload: Any, helpers: JobHelpers) -> Any:
        token = await pool.reserve()
        try:
            savepoints = await _in_caller(_Savepoints)
            try:
                if is_async:
                    return await invoke(payload, helpers)
                return await _in_caller(lambda: _call(invoke, payload, helpers))
            finally:
                await _in_caller(savepoints.end)
        finally:
            pool.end_reservation(token)

    whole._invoke, whole.is_async = run, True
    return whole


async def _in_caller(function: Callable[[], T]) -> T:
    result: T = await sync_to_async(function, thread_sensitive=True)()
    return result


def _call(invoke: Callable[..., Any], payload: Any, helpers: JobHelpers) -> Any:
    own = _Helpers(helpers.job, helpers._services, helpers.worker_id)
    token = current_helpers.set(own)
    try:
        return invoke(payload, own)
    except StopIteration as error:  # a future cannot hold it
        raise RuntimeError("the task raised StopIteration") from error
    finally:
        current_helpers.reset(token)


class _Savepoints:
    """Keeps the transactions of the test usable if a statement of the task fails."""

    def __init__(self) -> None:
        self._open = [
            (connection, connection.savepoint())
            for connection in connections.all(initialized_only=True)
            if connection.in_atomic_block and connection.connection is not None
        ]

    def end(self) -> None:
        """Roll back where a statement has failed, as the server did; keep what was written elsewhere."""
        for connection, savepoint in reversed(self._open):
            if connection.needs_rollback or is_aborted(connection.connection):
                connection.set_rollback(False)
                connection.savepoint_rollback(savepoint)
            connection.savepoint_commit(savepoint)


class _Helpers(JobHelpers):
    """The helpers of a function in the calling thread."""

    @property
    def sync(self) -> SyncHelpers:
        return _CallersHelpers(self, self._services.loop)


class _CallersHelpers(SyncHelpers):
    """While the function waits for a coroutine, its thread runs the statements of that coroutine."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def wait() -> T:
            return await coroutine

        result: T = async_to_sync(wait)()
        return result

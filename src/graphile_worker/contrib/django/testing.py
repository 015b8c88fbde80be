"""For tests of Django projects: run what was enqueued in the transaction of the test, or look at it.

Django has a connection for each thread, so only the thread that called `run_tasks` sees what the test has not
committed, and tasks and statements run in it. The event loop of the worker is in another thread, and passes
the work on through `asgiref`.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.utils import timezone

from ...database.connections.bound import run_blocking
from ...database.connections.connection import Connection
from ...database.connections.foreign import as_blocking_connection
from ...database.connections.foreign.adapter import ForeignRow, ForeignTransaction, Result, is_aborted
from ...database.connections.foreign.django_connections import DjangoConnection
from ...database.connections.single import SingleConnection
from ...database.statements.inspection import MAX_LIMIT
from ...database.statements.job_filter import JobFilter
from ...hooks import Hooks
from ...hooks.events import JobStarted
from ...runner import run_once
from ...tasks.helpers import JobHelpers, SyncHelpers, current_helpers
from ...tasks.task import AnyTask
from ...testing.results import JobsRun, Observed
from ...values.clock import SystemClock
from ...values.option_groups import NodeOptions
from .client import utils
from .conf import DjangoSettings, worker_settings
from .worker import has_framework, make_app

__all__ = ["TasksRun", "aenqueued_tasks", "arun_tasks", "enqueued_tasks", "run_tasks"]

LIMIT = 1000


class TasksRun(list[Any]):
    """The TaskResult of each task of Django's framework that ran, in the order in which they ended."""

    def __init__(self, results: list[Any], jobs: JobsRun) -> None:
        super().__init__(results)
        self.jobs = jobs
        """Every attempt, also of other tasks. `jobs.check()` raises what a task raised."""


def run_tasks(
    *, limit: int = LIMIT, until: datetime | timedelta | None = None, using: str | None = None
) -> TasksRun:
    """Run every task that is due, and those that tasks enqueue, and return their results.

    Everything happens in this thread and on its connection, so that it works in the transaction of a
    `TestCase` as in a `TransactionTestCase`. Tasks run one at a time. A task that fails does not raise here:
    see the results, or call `run_tasks().jobs.check()`.

    - `limit`: RuntimeError after this many jobs, because some task enqueues itself
    - `until`: a time, or a timedelta from now; also run what is due by then
    - `using`: the alias of the database
    """
    chosen = worker_settings()
    alias = using or chosen.database
    clock = None if until is None else _LaterClock(until)
    runs = async_to_sync(_run)(chosen, CallersConnection(connections[alias]), clock, limit)
    connection = as_blocking_connection(connections[alias])
    ids = dict.fromkeys(run.job.id for run in runs)
    found = [_result(connection, chosen, job_id) for job_id in ids]
    return TasksRun([result for result in found if result is not None], runs)


async def arun_tasks(
    *, limit: int = LIMIT, until: datetime | timedelta | None = None, using: str | None = None
) -> TasksRun:
    """`run_tasks` for asynchronous tests."""
    found: TasksRun = await sync_to_async(run_tasks)(limit=limit, until=until, using=using)
    return found


def enqueued_tasks(task: Any = None, *, using: str | None = None) -> list[Any]:
    """The TaskResult of each task that is enqueued and has not run, the oldest first.

    With `task`, of this one only, in any queue.
    """
    chosen = worker_settings()
    jobs = utils(using).jobs.list(JobFilter(order="oldest", limit=MAX_LIMIT))
    connection = as_blocking_connection(connections[using or chosen.database])
    results = [_result(connection, chosen, job.id) for job in jobs if job.is_available]
    return [
        result for result in results if result is not None and (task is None or result.task.func is task.func)
    ]


async def aenqueued_tasks(task: Any = None, *, using: str | None = None) -> list[Any]:
    """`enqueued_tasks` for asynchronous tests."""
    found: list[Any] = await sync_to_async(enqueued_tasks)(task, using=using)
    return found


def _result(connection: Connection, chosen: DjangoSettings, job_id: int) -> Any:
    if not has_framework():
        return None
    from .backend import read_result

    return run_blocking(read_result(connection, chosen.schema, job_id))


async def _run(
    chosen: DjangoSettings, connection: CallersConnection, clock: _LaterClock | None, limit: int
) -> JobsRun:
    observed, bound, pool = Observed(), _Bound(limit), SingleConnection(connection)
    options = chosen.worker_options.with_values(
        concurrency=1,  # one by one, so that the order is deterministic
        prefetch=0,
        handle_signals=False,
        use_local_time=clock is not None,
        local_queue=None,
        node=NodeOptions(),
    )
    bound.run = asyncio.ensure_future(
        run_once(
            app=make_app(adapt=lambda task: in_calling_thread(task, pool)),
            pg_pool=pool,
            plugins=[observed, bound],
            options=options,
            clock=clock,
        )
    )
    try:
        await bound.run
    except asyncio.CancelledError:
        if not bound.is_exceeded:
            raise
        raise RuntimeError(
            f"run_tasks has run {limit} jobs, and more are due; if no task enqueues itself without end, "
            "set a higher limit"
        ) from None
    return JobsRun(observed.runs)


class _Bound:
    """A plugin that ends the run after too many jobs."""

    def __init__(self, limit: int) -> None:
        self.run: asyncio.Future[None] | None = None
        self.is_exceeded = False
        self._left = limit

    def install(self, hooks: Hooks) -> None:
        hooks.events.on(JobStarted, self._started)

    def _started(self, event: JobStarted) -> None:
        self._left -= 1
        if self._left < 0 and self.run is not None:
            self.is_exceeded = True
            self.run.cancel()


class _LaterClock(SystemClock):
    """Says that it is later than it is."""

    def __init__(self, until: datetime | timedelta) -> None:
        due = super().now() + until if isinstance(until, timedelta) else until
        self._until = (timezone.make_aware(due) if timezone.is_naive(due) else due).astimezone(UTC)

    def now(self) -> datetime:
        return max(super().now(), self._until)


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

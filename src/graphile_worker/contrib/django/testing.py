"""For tests of Django projects: run what was enqueued in the transaction of the test, or look at it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.utils import timezone

from ...clock import SystemClock
from ...db.blocking import run_blocking
from ...db.connection import Connection
from ...db.foreign import as_blocking_connection
from ...db.single import SingleConnection
from ...hooks import Hooks
from ...hooks.events import JobStarted
from ...queries.inspection import MAX_LIMIT
from ...queries.job_filter import JobFilter
from ...runner import run_once
from ...testing.results import JobsRun, Observed
from .calling_thread import CallersConnection, in_calling_thread
from .client import utils
from .conf import WorkerSettings, worker_settings
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
    jobs = utils(using).list_jobs(JobFilter(order="oldest", limit=MAX_LIMIT))
    connection = as_blocking_connection(connections[using or chosen.database])
    results = [_result(connection, chosen, job.id) for job in jobs if job.is_available]
    return [
        result for result in results if result is not None and (task is None or result.task.func is task.func)
    ]


async def aenqueued_tasks(task: Any = None, *, using: str | None = None) -> list[Any]:
    """`enqueued_tasks` for asynchronous tests."""
    found: list[Any] = await sync_to_async(enqueued_tasks)(task, using=using)
    return found


def _result(connection: Connection, chosen: WorkerSettings, job_id: int) -> Any:
    if not has_framework():
        return None
    from .results import read_result

    return run_blocking(read_result(connection, chosen.schema, job_id))


async def _run(
    chosen: WorkerSettings, connection: CallersConnection, clock: _LaterClock | None, limit: int
) -> JobsRun:
    observed, bound, pool = Observed(), _Bound(limit), SingleConnection(connection)
    options = chosen.worker_options().with_values(
        concurrency=1,  # one by one, so that the order is deterministic
        prefetch=0,
        handle_signals=False,
        use_local_time=clock is not None,
        local_queue=None,
        complete_job_batch_delay=None,
        fail_job_batch_delay=None,
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

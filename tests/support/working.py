"""What tests of a running worker share: modes, jobs in a database, workers that are stopped at the end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from graphile_worker import Runner, run, run_once

SCHEMA = "graphile_worker"
PATIENCE = 60.0  # seconds for anything to happen at all; only a failure ever takes so long
SELDOM = 600.0  # seconds, far beyond any patience

IS_LOCKED_OUT = (
    "select exists (select from pg_locks where not granted "
    f"and relation = '{SCHEMA}._private_jobs'::regclass)"
)
"""Whether a statement waits for a lock of the table of jobs."""

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "direct": {"prefetch": 0},
    "local queue": {
        "local_queue": {"size": 4},
        "complete_job_batch_delay": 0.005,
        "fail_job_batch_delay": 0.005,
    },
}
"""The ways in which a worker gets and writes jobs; behaviour must be the same in each."""

IN_ONE_MODE = pytest.mark.parametrize("mode", ["default"], indirect=True)
"""For a test in a folder where `mode` is a fixture with a case per mode, if no mode can make a difference."""


MANY = 100
"""From this many on, jobs are added at once: one by one, adding them takes longer than running them."""

ADD_ONE_BY_ONE = f"""
select job.id
from generate_series(0, $2::integer - 1) n, {SCHEMA}.add_job(
    $1, json_build_object('n', n), queue_name => $3, max_attempts => $4,
    run_at => now() - interval '1 hour' + n * interval '1 millisecond'
) job"""

ADD_AT_ONCE = f"""
select job.id
from {SCHEMA}.add_jobs(array(
    select json_populate_record(null::{SCHEMA}.job_spec, json_build_object(
        'identifier', $1::text, 'payload', json_build_object('n', n),
        'queue_name', $3::text, 'max_attempts', $4::integer,
        'run_at', now() - interval '1 hour' + n * interval '1 millisecond'
    )) from generate_series(0, $2::integer - 1) n
)) job"""


class Jobs:
    """The queue's tables as a test sees them, through a connection of its own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def add(
        self,
        identifier: str,
        payload: Any = None,
        *,
        queue: str | None = None,
        key: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        flags: list[str] | None = None,
    ) -> int:
        """Add a job with the database function; its id."""
        return await self.connection.fetchval(
            f"select id from {SCHEMA}.add_job($1, $2::text::json, queue_name => $3, job_key => $4, "
            "priority => $5, run_at => $6, max_attempts => $7, flags => $8)",
            identifier,
            json.dumps({} if payload is None else payload),
            queue,
            key,
            priority,
            run_at,
            max_attempts,
            flags,
        )

    async def add_many(
        self, identifier: str, count: int, *, queue: str | None = None, max_attempts: int | None = None
    ) -> list[int]:
        """Add jobs with the payloads {"n": 0}, {"n": 1}, ... that are due in this order; their ids."""
        statement = ADD_ONE_BY_ONE if count < MANY else ADD_AT_ONCE
        rows = await self.connection.fetch(statement, identifier, count, queue, max_attempts)
        return [row["id"] for row in rows]

    async def all(self) -> list[Any]:
        """Every job row, by id, with the names of its task and queue; the payload as text."""
        return await self.connection.fetch(
            f"select job.*, task.identifier, queue.queue_name from {SCHEMA}._private_jobs job "
            f"join {SCHEMA}._private_tasks task on task.id = job.task_id "
            f"left join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id order by job.id"
        )

    async def one(self) -> Any:
        """The only job row; a test fails if there is not exactly one."""
        rows = await self.all()
        assert len(rows) == 1, rows
        return rows[0]

    async def count(self) -> int:
        return await self.connection.fetchval(f"select count(*) from {SCHEMA}._private_jobs")

    async def locked(self) -> int:
        """How many jobs and queues are locked."""
        return await self.connection.fetchval(
            f"select (select count(*) from {SCHEMA}._private_jobs where locked_at is not null) "
            f"+ (select count(*) from {SCHEMA}._private_job_queues where locked_at is not null)"
        )

    async def queues(self) -> list[Any]:
        return await self.connection.fetch(
            f"select queue.*, (select count(*) from {SCHEMA}._private_jobs where job_queue_id = queue.id) "
            f"as job_count from {SCHEMA}._private_job_queues queue order by queue_name"
        )

    async def make_due(self) -> None:
        """Let every job be due now."""
        await self.connection.execute(f"update {SCHEMA}._private_jobs set run_at = now()")

    async def postpone(self) -> None:
        """Let every job be due an hour later, so that it is not due however long the test takes."""
        await self.connection.execute(
            f"update {SCHEMA}._private_jobs set run_at = run_at + interval '1 hour'"
        )

    async def until_gone(self, *, timeout: float = PATIENCE) -> None:
        """Wait until no job is left."""
        await until(self._is_empty, timeout=timeout)

    async def until_left(self, job_id: int) -> None:
        """Wait until this job is the only one; a job that has ended is there until that is written."""

        async def is_alone() -> bool:
            return [row["id"] for row in await self.all()] == [job_id]

        await until(is_alone)

    async def _is_empty(self) -> bool:
        return not await self.connection.fetchval(f"select exists (select from {SCHEMA}._private_jobs)")


def headline(row: Any) -> str:
    """The first line of a job's `last_error`; below it stands where the error was raised."""
    return row["last_error"].split("\n")[0]


async def until(
    condition: Callable[[], Awaitable[bool] | bool], *, timeout: float = PATIENCE, every: float = 0.005
) -> None:
    """Wait until a condition holds; a TimeoutError fails the test."""
    began = time.monotonic()
    async with asyncio.timeout(timeout):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(_pause(every, began))


def wait_until(condition: Callable[[], bool], *, timeout: float = PATIENCE, every: float = 0.005) -> None:
    """The same without an event loop."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + timeout:
            raise TimeoutError
        time.sleep(_pause(every, began))


def _pause(every: float, began: float) -> float:
    """How long to wait before the next look: what takes long is looked for less often, up to a limit."""
    return min(max(every, (time.monotonic() - began) / 20), 4 * every)


async def until_listening(recorder: Any, connection: Any) -> None:
    """Wait until the worker hears notifications; what is sent for that says that there is no job."""
    heard = recorder.names.count("pool:listen:notification")

    async def hears() -> bool:
        await connection.execute("select pg_notify('jobs:insert', $1)", '{"count": 0}')
        return recorder.names.count("pool:listen:notification") > heard

    await until(hears)


class Gate:
    """A task's body that a test lets pass call by call, and that counts who is inside."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.most_at_once = 0
        self._waiting: list[tuple[Any, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    async def __call__(self, payload: Any = None) -> None:
        """Wait here until the test opens."""
        self.started.append(payload)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, waiter))
        self.most_at_once = max(self.most_at_once, self.inside)
        self._changed.set()
        try:
            await waiter
            self.ended.append(payload)
        finally:
            self._waiting = [entry for entry in self._waiting if entry[1] is not waiter]

    @property
    def inside(self) -> int:
        """How many calls wait to be let through."""
        return sum(not waiter.done() for _, waiter in self._waiting)

    async def until_inside(self, count: int, *, timeout: float = PATIENCE) -> None:
        """Wait until so many calls wait here."""
        async with asyncio.timeout(timeout):
            while self.inside < count:
                self._changed.clear()
                await self._changed.wait()

    def open(self, error: BaseException | None = None) -> Any:
        """Let the call that waits longest go on (or fail); its payload."""
        payload, waiter = next(entry for entry in self._waiting if not entry[1].done())
        _end(waiter, error)
        return payload

    def open_all(self) -> None:
        """Let every call that waits go on."""
        while self.inside:
            self.open()

    def open_one(self, payload: Any, error: BaseException | None = None) -> None:
        """Let the call with this payload go on (or fail)."""
        _end(next(each for found, each in self._waiting if found == payload and not each.done()), error)


def _end(waiter: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


class Workers:
    """Starts workers on one database with settings for tests, and stops them at the end."""

    def __init__(self, database_url: str, mode: dict[str, Any] | None = None) -> None:
        self.options: dict[str, Any] = {
            "connection_string": database_url,
            "handle_signals": False,
            # What nobody announces is found by chance otherwise, and a missed wake-up would not be noticed.
            "poll_interval": SELDOM,
            **(mode or {}),
        }
        self._runners: list[Runner] = []

    async def start(self, task_list: Any, **options: Any) -> Runner:
        """A running worker; `events` may be a recorder's."""
        async with asyncio.timeout(PATIENCE):
            runner = await run(task_list=task_list, **self._merged(options))
        self._runners.append(runner)
        return runner

    async def once(self, task_list: Any, *, timeout: float = PATIENCE, **options: Any) -> None:
        """A run that ends when nothing is left to do."""
        async with asyncio.timeout(timeout):
            await run_once(task_list=task_list, **self._merged(options))

    def _merged(self, options: dict[str, Any]) -> dict[str, Any]:
        merged = self.options | options
        if "pg_pool" in options:
            merged.pop("connection_string")
        return merged

    async def stop(self, runner: Runner, **arguments: Any) -> None:
        """Stop a worker gracefully; a TimeoutError fails the test."""
        async with asyncio.timeout(PATIENCE):
            await runner.stop(**arguments)

    async def close(self) -> None:
        async with asyncio.timeout(2 * PATIENCE):
            # A worker that died raises its error once more; the test has seen it, or fails anyway.
            await asyncio.gather(*(runner.kill() for runner in self._runners), return_exceptions=True)


async def workers_of(
    database_url: str, mode: dict[str, Any] | None = None, *, kind: type[Workers] = Workers
) -> AsyncIterator[Workers]:
    """For fixtures: workers that are gone at the end of the test."""
    workers = kind(database_url, mode)
    try:
        yield workers
    finally:
        await workers.close()


async def terminate_workers(connection: Any) -> int:
    """Cut every connection of workers in this database, as an administrator would; how many there were."""
    rows = await connection.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and application_name = 'graphile_worker'"
    )
    return len(rows)

"""A worker with held batches behind a network that can cut their connections, or hide that they are cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from graphile_worker import JobHelpers, Runner, WorkerUtils
from graphile_worker.hooks.events import JobCompleted
from graphile_worker.testing.results import EventRecorder
from support.proxy import Proxy, proxy_to
from support.working import SCHEMA, Gate, Jobs, Workers, until

FLOW = 300  # jobs; the first fetch after a rest is an ordinary one, and takes 160 at most, see `held_load`
BACKLOG = 600  # jobs: a worker that finds so many opens all sessions at once
PLACE = 250  # among them, of the job that waits
ROUNDS = 50  # until it is held; the sessions are opened while the first ones run
LONG = 60.0
"""Seconds to hold a batch: it ends with the last of its jobs."""
SHORT = 5.0
"""Seconds to hold a batch: enough to cut its connection, and the test waits for its end."""

HELD_SESSIONS = (
    "select pid from pg_stat_activity where datname = current_database() and state = 'idle in transaction' "
    "and application_name = 'graphile_worker'"
)
BUSY_SESSIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle' "
    "and application_name = 'graphile_worker'"
)
BEGUN = datetime.now(UTC) - timedelta(hours=1)


class LostScene:
    """Quick jobs, and some that wait in a gate, inside one transaction."""

    def __init__(self, workers: Workers, jobs: Jobs, utils: WorkerUtils, proxy: Proxy, url: str) -> None:
        self.jobs = jobs
        self.proxy = proxy
        self.recorder = EventRecorder()
        self.gate = Gate()
        self.times: Counter[int] = Counter()
        """How often each job ran, by id."""
        self.attempts: set[int] = set()
        self.own_tasks: set[asyncio.Task[Any]] = set()
        """Those that are not of the worker."""
        self._held: list[int] = []  # jobs that wait, each in a batch of its own
        self._workers = workers
        self._utils = utils
        self._url = url

    async def work(self, payload: Any, helpers: JobHelpers) -> str:
        self.times[helpers.job.id] += 1
        self.attempts.add(helpers.job.attempts)
        if payload.get("waits"):
            await self.gate(helpers.job.id)
        return "done"

    async def start(self, hold: float, **options: Any) -> Runner:
        """A worker with short jobs and enough connections; it fetches far ahead, however slow the machine."""
        self.own_tasks = asyncio.all_tasks()
        usual: dict[str, Any] = {"concurrency": 10, "max_pool_size": 20, "prefetch": 5.0, "hold": hold}
        return await self._workers.start(
            {"work": self.work}, connection_string=self._url, events=self.recorder.events, **(usual | options)
        )

    async def add_flow(self, count: int = FLOW, *, priority: int = 0) -> None:
        """Quick jobs that are due in this order."""
        await self.jobs.connection.execute(
            f"select {SCHEMA}.add_jobs(array(select row('work', json_build_object(), null, "
            f"$2::timestamptz + n * interval '1 millisecond', null, null, $3::smallint, null)"
            f"::{SCHEMA}.job_spec from generate_series(1, $1::integer) n))",
            count,
            BEGUN,
            priority,
        )

    async def hold(self, *, priority: int = 0, keep: bool | None = None) -> int:
        """Have a batch of which one job waits in the gate, and the others have ended; the id of that job."""
        for _ in range(ROUNDS):
            before, others = self.gate.inside, await self.jobs.count()
            async with self.jobs.connection.transaction():
                await self.add_flow(priority=priority)
                added = await self._utils.add_job(
                    "work",
                    {"waits": True},
                    run_at=BEGUN + timedelta(milliseconds=PLACE),
                    priority=priority,
                    keep=keep,
                    connection=self.jobs.connection,
                )
            await self.gate.until_inside(before + 1)
            await until(partial(self._is_rest_done, added.id))
            if await self.is_free(added.id):
                self._held.append(added.id)
                return added.id
            self.gate.open_one(added.id)
            await until(partial(self.has_rows, others))
        raise AssertionError("the worker holds nothing")

    async def _is_rest_done(self, waiting: int) -> bool:
        """Whether all jobs that are left have run, and are in open batches with one that waits.

        Others that have run may still be locked, or in a transaction that is just being ended.
        """
        rows = await self.jobs.connection.fetch(f"select id, locked_at from {SCHEMA}._private_jobs")
        held = await self._are_free([*self._held, waiting])
        return (
            all(self.times[row["id"]] for row in rows)
            and {row["id"] for row in rows if row["locked_at"] is not None} <= {*self._held, waiting}
            and await self.jobs.connection.fetchval(BUSY_SESSIONS) == len(held)
            and held == await self._are_free([*self._held, waiting])
        )

    async def _are_free(self, job_ids: list[int]) -> list[int]:
        return [job_id for job_id in job_ids if await self.is_free(job_id)]

    async def is_free(self, job_id: int) -> bool:
        """Whether nothing is written of a lock."""
        return await self.jobs.connection.fetchval(
            f"select locked_at is null from {SCHEMA}._private_jobs where id = $1", job_id
        )

    async def is_locked(self, job_id: int) -> bool:
        return await self.is_free(job_id) is False

    async def fetch_one_more(self, job_id: int) -> bool:
        """Make the worker fetch a single job; whether it has locked this one with it.

        Single jobs are not held, and not every fetch looks for jobs that are due since long.
        """
        await self.jobs.add("work")
        return await self.is_locked(job_id)

    async def has_rows(self, count: int) -> bool:
        return await self.jobs.count() == count

    async def sessions(self) -> list[int]:
        """The server's processes that have an open transaction of the worker."""
        return [row["pid"] for row in await self.jobs.connection.fetch(HELD_SESSIONS)]

    async def cut_at(self, answer: bytes) -> None:
        """Cut the connection of the open batch in place of passing on this answer."""
        (pid,) = await self.open_sessions()
        self.proxy.link(pid).needle = answer

    async def open_sessions(self, count: int = 1) -> list[int]:
        """Wait until as many batches are open; a fetch that finds nothing has a transaction for a moment."""

        async def are_open() -> bool:
            return len(await self.sessions()) == count

        while len(pids := await self.sessions()) != count:
            await until(are_open)
        return pids

    async def end_sessions(self, count: int = 1, *, is_hidden: bool = False) -> list[int]:
        """End the sessions of open batches on the server; `is_hidden`: the worker does not notice."""
        pids = await self.open_sessions(count)
        if is_hidden:
            for pid in pids:
                self.proxy.link(pid).flows.clear()
        for pid in pids:
            await self.end_session(pid)
        return pids

    async def end_session(self, pid: int) -> None:
        """End one session on the server, and wait until it has gone."""
        await self.jobs.connection.execute("select pg_terminate_backend($1)", pid)
        await until(lambda: self.has_ended(pid))

    async def is_blocked(self, connection: Any) -> bool:
        """Whether the statement of this connection waits for a lock."""
        pid = connection.get_server_pid()
        return await self.jobs.connection.fetchval(
            "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", pid
        )

    async def has_ended(self, pid: int) -> bool:
        """Whether this process of the server is gone."""
        return not await self.jobs.connection.fetchval(
            "select exists (select from pg_stat_activity where pid = $1)", pid
        )

    def is_lost(self, runner: Runner, job_id: int) -> bool:
        """Whether the worker knows that the batch of this job is lost, and not yet what became of it."""
        pool: Any = runner._pool
        return job_id in pool._held_batches._lost.jobs

    def forget_watermarks(self, runner: Runner) -> None:
        """Make the next fetch look for jobs that are due since long."""
        pool: Any = runner._pool
        for lane in pool._lanes:
            lane.fetcher.forget_watermarks()

    def has_noticed(self, runner: Runner) -> bool:
        """Whether the worker's end of the connection of an open batch is closed."""
        pool: Any = runner._pool
        return any(
            batch_session.batch and not batch_session.session.is_connected
            for batch_session in pool._held_batches._batch_sessions.all
        )

    def fetch_session(self, runner: Runner) -> int:
        """The server's process that the worker fetches with."""
        pool: Any = runner._pool
        pid: int = pool._sessions.fetch._connection.get_server_pid()
        return pid

    async def is_gone(self, job_id: int) -> bool:
        return await self.jobs.connection.fetchval(
            f"select not exists (select from {SCHEMA}._private_jobs where id = $1)", job_id
        )

    async def take(self, *job_ids: int) -> None:
        """Lock jobs as another worker does."""
        status = await self.jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set attempts = attempts + 1, locked_by = 'foreign', "
            "locked_at = now() where id = any ($1::bigint[]) and locked_at is null",
            job_ids,
        )
        assert status == f"UPDATE {len(job_ids)}"

    async def ended_and_held(self, waiting: int) -> list[int]:
        """The jobs of open batches that have ended."""
        rows = await self.jobs.all()
        return [row["id"] for row in rows if row["id"] != waiting and row["locked_at"] is None]

    def assert_each_ran_once(self) -> None:
        assert {job_id: times for job_id, times in self.times.items() if times != 1} == {}
        assert self.attempts == {1}

    def assert_each_completed_once(self) -> None:
        self.assert_each_ran_once()
        completed = Counter(event.job.id for event in self.recorder.of(JobCompleted))
        assert completed == self.times

    async def until_completed(self) -> None:
        """Wait until everything is written, and its events were emitted."""
        await self.jobs.until_gone()
        await until(lambda: self.recorder.count(JobCompleted) >= len(self.times))


@asynccontextmanager
async def lost_scene(workers: Workers, jobs: Jobs, utils: WorkerUtils, url: str) -> AsyncIterator[LostScene]:
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        async with proxy_to(url, Path(folder)) as (proxy, through):
            scene = LostScene(workers, jobs, utils, proxy, through)
            try:
                yield scene
            finally:
                for link in proxy.links:
                    link.flows.set()
                proxy.is_away = False
                await workers.close()

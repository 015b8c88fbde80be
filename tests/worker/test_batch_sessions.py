"""Batch sessions and what they borrow, on a pool of their own and without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.database.connections.connection import Pool
from graphile_worker.database.statements.write_plan import Outcomes
from graphile_worker.recovery.lease import Lease
from graphile_worker.runner.services import ConnectionBudget
from graphile_worker.values.flags import NO_RULES
from graphile_worker.values.job import Job
from graphile_worker.values.options import MOST_HOLD
from graphile_worker.values.outcome import COMPLETED, Finished
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.held.batches import HeldBatches
from graphile_worker.worker.held.policy import FEWEST_SKIPPED, Workload
from graphile_worker.worker.held.reconcile import HeldWrite
from graphile_worker.worker.held.sessions import FEWEST_SESSIONS, SESSIONS, BatchSessions
from graphile_worker.worker.session import SessionClosedError, Sessions
from support.held_load import FREE_ROWS
from support.pool_parts import RecordingOwner, pool_context
from support.proxy import proxy_to
from support.working import IS_LOCKED_OUT, PATIENCE, SCHEMA, Jobs, until

FOR_TASKS = 8  # connections
POOL_ID = "pool-a"
TERMS: Any = {"limit": 10, "flags": NO_RULES, "now": None}
"""Of a fetch."""

SERIES = 50  # jobs of one queue
FREE = f"select id from {SCHEMA}._private_jobs for update skip locked"


@pytest.fixture
async def connection_budget(database_url: str) -> AsyncIterator[ConnectionBudget]:
    async with asyncpg.create_pool(database_url, min_size=0, max_size=FOR_TASKS + 3) as pool:
        connection_budget = ConnectionBudget(pool, reserved=0, prepared_statements=True)
        assert pool.get_max_size() - connection_budget.kept == FOR_TASKS
        yield connection_budget


class Scene:
    """Batch sessions, or held batches, with the connections of a small pool and no worker."""

    def __init__(self, connection_budget: ConnectionBudget) -> None:
        self.connection_budget = connection_budget
        self.owner = RecordingOwner()
        self.sessions = Sessions(pool_context(POOL_ID), connection_budget.database, Lease())
        self.tasks: list[asyncio.Task[None]] = []
        self.served = 0
        self.prefetched: Sequence[Job] = ()
        self._can_end = asyncio.Event()

    def batch_sessions(self) -> BatchSessions:
        return BatchSessions(self.sessions, self.connection_budget, SchemaName(), on_short=lambda: None)

    def held_batches(self, *, has_series: bool = False) -> HeldBatches:
        context = pool_context(POOL_ID, owner=self.owner, hold=MOST_HOLD)
        parts: Any = self
        held_batches = HeldBatches(
            context, self.sessions, self.connection_budget, parts, (), self, has_series=has_series
        )
        held_batches.allow(0.0)
        return held_batches

    # -- the lanes and the sink of the pool ----------------------------------------------------------------

    accepted = not_deleted = 0

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        return list(filter(is_dropped, self.prefetched))

    def jobs_freed(self) -> None: ...

    def accept(self, finished: Finished) -> None:
        raise AssertionError("no outcome is left to the sink here")

    def held_write(self, finished: Sequence[Finished]) -> HeldWrite:
        return HeldWrite(others=finished)

    def is_of_history(self, error: BaseException) -> bool:
        raise AssertionError("no end is refused here")

    def written_held(self, batch: Sequence[Finished], began: float, outcomes: Outcomes) -> None: ...

    def discarded_held(self, finished: Finished) -> None:
        raise AssertionError("no batch is lost here")

    def held_write_failed(self, error: BaseException) -> None:
        raise error

    # -- tasks ---------------------------------------------------------------------------------------------

    async def start_tasks(self, count: int) -> None:
        """Tasks that ask for a connection, and keep it."""
        self.tasks += [asyncio.create_task(self._keep()) for _ in range(count)]
        await asyncio.sleep(0)  # they have asked

    async def _keep(self) -> None:
        async with self.connection_budget.to_task():
            self.served += 1
            await self._can_end.wait()

    async def close(self) -> None:
        self._can_end.set()
        await asyncio.gather(*self.tasks)
        await self.sessions.close()


def is_ready(held_batches: HeldBatches) -> bool:
    """Whether a fetch of many short jobs may hold them; starts to open sessions."""
    many = Workload(wanted=1000, run_time=0.0001, asked=1000, found=1000, jobs_in=lambda seconds: 1000)
    return held_batches.plan_fetch(many)[1]


@pytest.fixture
async def scene(connection_budget: ConnectionBudget) -> AsyncIterator[Scene]:
    scene = Scene(connection_budget)
    yield scene
    await scene.close()


@asynccontextmanager
async def all_connections(database: Pool) -> AsyncIterator[None]:
    """Keep every connection of the pool from others."""
    async with AsyncExitStack() as stack:
        for _ in range(database.get_max_size()):
            await stack.enter_async_context(database.acquire())
        yield


async def use(database: Pool) -> None:
    async with database.acquire() as connection:
        await connection.fetchval("select 1")


async def test_connections_are_wanted_only_while_a_task_waits(connection_budget: ConnectionBudget) -> None:
    wanted: list[int] = []
    connection_budget.watch(lambda: wanted.append(connection_budget.wanted))

    async def borrow() -> None:
        async with connection_budget.to_task():
            pass

    assert connection_budget.take()
    async with AsyncExitStack() as stack:
        for _ in range(FOR_TASKS - 1):
            await stack.enter_async_context(connection_budget.to_task())
        assert not wanted  # all are in use, and no one waits
        assert not connection_budget.wanted
        for is_cancelled in (True, False):
            task = asyncio.create_task(borrow())
            await until(lambda: connection_budget.wanted == 1)
            assert not connection_budget.take()
            task.cancel() if is_cancelled else connection_budget.put_back()
            await asyncio.wait((task,))
            assert not connection_budget.wanted
        assert wanted == [1, 1]


async def test_sessions_that_were_not_opened_in_time_are_left_to_tasks(
    connection_budget: ConnectionBudget,
) -> None:
    sessions = Sessions(pool_context(POOL_ID), connection_budget.database, Lease())
    batch_sessions = BatchSessions(sessions, connection_budget, SchemaName(), on_short=lambda: None)
    batch_sessions.open_all()
    await until(lambda: all(batch_session.is_reserved for batch_session in batch_sessions.all))
    await batch_sessions.close()  # nothing has connected
    assert [connection_budget.take() for _ in range(FOR_TASKS)].count(True) == FOR_TASKS // 2
    assert len(batch_sessions.all) == SESSIONS
    await sessions.close()


async def test_sessions_that_are_being_opened_have_ended_when_they_are_closed(
    connection_budget: ConnectionBudget, jobs: Jobs
) -> None:
    """What leaves it in doubt which jobs are locked does so before the worker returns its jobs."""
    database = connection_budget.database
    sessions = Sessions(pool_context(POOL_ID), database, Lease())
    batch_sessions = BatchSessions(sessions, connection_budget, SchemaName(), on_short=lambda: None)
    async with jobs.connection.transaction(), AsyncExitStack() as stack:
        await jobs.connection.execute(f"lock table {SCHEMA}._private_jobs in access exclusive mode")
        for _ in range(database.get_max_size() - 1):
            await stack.enter_async_context(database.acquire())
        batch_sessions.open_all()  # one waits for the lock, the others for connections

        async def one_waits() -> bool:
            return bool(await jobs.connection.fetchval(IS_LOCKED_OUT))

        await until(one_waits)
        await batch_sessions.close()
        assert sessions.locked_jobs.doubts == 1
    await sessions.close()


async def test_tasks_that_wait_while_sessions_are_opened_get_them(scene: Scene) -> None:
    batch_sessions = scene.batch_sessions()
    batch_sessions.open_all()
    await asyncio.sleep(0)
    await scene.start_tasks(FOR_TASKS)
    assert [(batch_session.is_reserved, batch_session.is_warm) for batch_session in batch_sessions.all] == [
        (True, False)
    ] * SESSIONS
    assert scene.connection_budget.wanted == SESSIONS
    await until(lambda: scene.served == FOR_TASKS)
    assert not any(batch_session.is_reserved for batch_session in batch_sessions.all)


async def test_only_as_many_sessions_are_closed_as_tasks_wait(scene: Scene) -> None:
    batch_sessions = scene.batch_sessions()
    batch_sessions.open_all()
    await until(lambda: all(batch_session.is_warm for batch_session in batch_sessions.all))
    await scene.start_tasks(FOR_TASKS - SESSIONS + 1)
    assert scene.connection_budget.wanted == 1
    batch_sessions.changed()  # a session is being closed for the task already
    await until(lambda: scene.served == len(scene.tasks))
    assert [batch_session.is_warm for batch_session in batch_sessions.all].count(True) == SESSIONS - 1
    assert [batch_session.is_reserved for batch_session in batch_sessions.all].count(True) == SESSIONS - 1


async def test_no_session_is_opened_while_callers_wait(scene: Scene) -> None:
    scene.batch_sessions()
    async with all_connections(scene.connection_budget.database):
        waiting = asyncio.create_task(use(scene.connection_budget.database))
        await until(lambda: scene.connection_budget.wanted == 1)
        assert not scene.connection_budget.take()
    await waiting
    assert scene.connection_budget.take()
    scene.connection_budget.put_back()


async def test_a_fetch_that_finds_nothing_leaves_its_session_to_a_task(scene: Scene) -> None:
    held_batches = scene.held_batches()
    await until(lambda: is_ready(held_batches))
    await scene.start_tasks(FOR_TASKS - FEWEST_SESSIONS)
    fetches = [asyncio.create_task(held_batches.fetch(tasks={}, **TERMS)) for _ in range(FEWEST_SESSIONS)]
    await asyncio.sleep(0)
    await scene.start_tasks(FEWEST_SESSIONS)
    assert scene.connection_budget.wanted == FEWEST_SESSIONS  # no session is free now
    assert await asyncio.gather(*fetches) == [(), ()]
    await until(lambda: scene.served == FOR_TASKS)


async def test_a_batch_that_was_just_fetched_keeps_its_session_until_it_ends(
    scene: Scene, jobs: Jobs
) -> None:
    (job_id,) = await jobs.add_many("quick", 1)
    task_id = await jobs.connection.fetchval(f"select task_id from {SCHEMA}._private_jobs")
    held_batches = scene.held_batches()
    await until(lambda: is_ready(held_batches))
    await scene.start_tasks(FOR_TASKS - FEWEST_SESSIONS)
    fetches = [asyncio.create_task(held_batches.fetch(tasks={task_id: "quick"}, **TERMS))]
    await asyncio.sleep(0)
    await scene.start_tasks(FEWEST_SESSIONS)
    (fetched,) = await asyncio.gather(*fetches)
    assert fetched is not None
    (job,) = fetched
    await until(lambda: scene.served == FOR_TASKS - 1)  # the other session was free
    assert job.id == job_id
    assert scene.connection_budget.wanted == 1
    assert await jobs.connection.fetch(FREE_ROWS, [job_id]) == []
    held_batches.take(Finished(job, COMPLETED, "worker-a", 0.0))
    await until(lambda: scene.served == FOR_TASKS)
    assert await jobs.count() == 0


async def test_the_size_of_batches_follows_what_became_of_those_before(scene: Scene, jobs: Jobs) -> None:
    """The rules are in `test_hold_policy`; here they get the right numbers."""
    await jobs.add_many("quick", 300)
    task_id = await jobs.connection.fetchval(f"select task_id from {SCHEMA}._private_jobs limit 1")
    held_batches = scene.held_batches()
    await until(lambda: is_ready(held_batches))

    async def run_batch(limit: int, started: int) -> None:
        """Fetch jobs, of which so many start and complete until time is up."""
        fetched = await held_batches.fetch(tasks={task_id: "quick"}, **{**TERMS, "limit": limit})
        assert fetched is not None
        assert len(fetched) == limit
        scene.prefetched = fetched[started:]
        for job in fetched[:started]:
            held_batches.take(Finished(job, COMPLETED, "worker-a", 0.0))
        await held_batches.flush()

    await run_batch(300, started=240)
    assert held_batches._policy.most == 120
    assert await jobs.count() == 60  # released
    await run_batch(60, started=60)
    assert held_batches._policy.most == 120  # as large as it may be already
    await jobs.add_many("quick", 120)
    await run_batch(120, started=120)
    assert held_batches._policy.most == 240
    assert await jobs.count() == 0


async def test_abandoned_batches_open_no_sessions(scene: Scene) -> None:
    """Where no connection comes, the end of the worker waits for none."""
    held_batches = scene.held_batches()
    database = scene.connection_budget.database
    async with all_connections(database):
        assert not is_ready(held_batches)
        await until(lambda: database.is_starved)  # the sessions wait for connections
        assert held_batches._batch_sessions.are_warming
        held_batches.abandon()
        async with asyncio.timeout(PATIENCE):
            await scene.sessions.close()
    assert database.get_idle_size() == database.get_size()


async def test_a_closed_session_of_batches_opens_no_connection(scene: Scene) -> None:
    """A warm-up may have waited for something else until then."""
    session = scene.sessions.open(hold=True)
    await session.run(lambda connection: connection.fetchval("select 1"))
    await scene.sessions.close()
    with pytest.raises(SessionClosedError):
        await session.run(lambda connection: connection.fetchval("select 1"))
    assert scene.connection_budget.database.get_idle_size() == scene.connection_budget.database.get_size()


async def test_a_queue_that_was_resumed_after_it_was_taken_is_left_to_others(
    database_url: str, tmp_path: Path, jobs: Jobs, utils: WorkerUtils
) -> None:
    """The answer that says which queues are taken comes late: another worker may have one of them by then."""
    async with (
        proxy_to(database_url, tmp_path) as (proxy, url),
        asyncpg.create_pool(url, min_size=0, max_size=FOR_TASKS + 3) as pool,
        AsyncExitStack() as stack,
    ):
        scene = Scene(ConnectionBudget(pool, reserved=0, prepared_statements=True))
        stack.push_async_callback(scene.close)
        held_batches = scene.held_batches(has_series=True)
        await until(lambda: is_ready(held_batches))

        async def fetch(tasks: Mapping[int, str]) -> Sequence[Job] | None:
            return await held_batches.fetch_series(**{**TERMS, "tasks": tasks, "limit": 1000})

        assert await fetch({}) is None  # prepares the statement, in the session that is used first
        for _ in range(FEWEST_SKIPPED):  # because that was of no use
            assert await fetch({}) is None
        await utils.add_jobs([JobSpec("quick", number, queue_name="queue") for number in range(SERIES)])
        rows = await jobs.connection.fetch(f"select id, identifier from {SCHEMA}._private_tasks")
        tasks = {row["id"]: row["identifier"] for row in rows}
        for link in proxy.links:
            link.flows.clear()
        fetching = asyncio.create_task(fetch(tasks))

        async def is_taken() -> bool:
            return [row["locked_by"] for row in await jobs.queues()] == [POOL_ID]

        await until(is_taken)
        await utils.queues.pause("queue")
        await utils.queues.resume("queue")
        assert [row["locked_by"] for row in await jobs.queues()] == [None]
        for link in proxy.links:
            link.flows.set()
        assert await fetching is None
        assert len(await jobs.connection.fetch(FREE)) == SERIES

        assert is_ready(held_batches)
        async with asyncio.timeout(PATIENCE):
            while await fetch(tasks) is None:
                assert is_ready(held_batches)
        assert await jobs.connection.fetch(FREE) == []

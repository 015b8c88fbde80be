"""Whatever waits for a connection of the worker gets those of held batches, if no other becomes free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from faults.scene import FastClock
from graphile_worker import JobHelpers
from support.held_load import LOAD, Holding
from support.working import PATIENCE, Gate, Jobs, until

HOLD = 1.0  # seconds: enough for batches on a slow machine, and few enough for a test
KEPT = 4
"""Tasks that keep a connection. With those of the worker and of two batches, that is the whole pool."""


class Keeper:
    """A task that keeps a connection until the gate opens, and then does something else inside."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.finish: Callable[[JobHelpers], Awaitable[Any]] | None = None
        self.ended = 0

    async def __call__(self, payload: Any, helpers: JobHelpers) -> None:
        async with helpers.with_pg_client() as connection:
            await connection.fetchval("select 1")
            await self.gate(payload)
            if self.finish is not None:
                await self.finish(helpers)
        self.ended += 1


@pytest.fixture
def keeper(gate: Gate) -> Keeper:
    return Keeper(gate)


@asynccontextmanager
async def steady_load(holding: Holding) -> AsyncIterator[None]:
    """Short jobs all the time, so that no session of batches is closed because it is not used."""

    async def add() -> None:
        while True:
            await holding.add_load(LOAD)
            await until(lambda: has_little_to_do(holding))

    adding = asyncio.create_task(add())
    try:
        yield
    finally:
        adding.cancel()
        await asyncio.wait((adding,))


async def has_little_to_do(holding: Holding) -> bool:
    return len(await holding.rows("quick")) < LOAD // 2


async def add_a_job(helpers: JobHelpers) -> None:
    await helpers.add_job("quick", {})


@pytest.mark.parametrize("is_callers", [False, True], ids=["own pool", "the caller's pool"])
async def test_tasks_that_keep_a_connection_add_jobs(
    holding: Holding, jobs: Jobs, keeper: Keeper, gate: Gate, database_url: str, is_callers: bool
) -> None:
    """Each needs a second connection for that, and none of them ends before it has one."""

    keeper.finish = add_a_job
    async with asyncpg.create_pool(database_url, min_size=0, max_size=10) as pool:
        options = {"pg_pool": pool} if is_callers else {}
        runner = await holding.start({"keep": keeper.__call__}, hold=HOLD, concurrency=10, **options)
        await jobs.add_many("keep", KEPT)
        await gate.until_inside(KEPT)
        async with steady_load(holding):
            gate.open_all()
            await until(lambda: keeper.ended == KEPT)
        await runner.stop()


async def name_the_queue(helpers: JobHelpers) -> None:
    assert await helpers.get_queue_name() == "some queue"


async def query(helpers: JobHelpers) -> None:
    await helpers.query("select 1")


@pytest.mark.parametrize("use", [add_a_job, name_the_queue, query])
async def test_a_task_needs_a_connection_beside_tasks_that_keep_theirs(
    holding: Holding,
    jobs: Jobs,
    keeper: Keeper,
    gate: Gate,
    database_url: str,
    use: Callable[[JobHelpers], Awaitable[None]],
) -> None:
    """The worker is idle otherwise, so no batch ends meanwhile."""
    has_ended = asyncio.Event()

    async def other(payload: Any, helpers: JobHelpers) -> None:
        await use(helpers)
        has_ended.set()

    async with asyncpg.create_pool(database_url, min_size=0, max_size=10) as pool:
        tasks = {"keep": keeper.__call__, "other": other}
        runner = await holding.start(tasks, hold=HOLD, concurrency=20, pg_pool=pool)
        await jobs.add_many("keep", KEPT)
        await gate.until_inside(KEPT)
        await until(lambda: pool.get_size() == 10 and pool.get_idle_size() == 0)
        await jobs.add("other", queue="some queue")
        async with asyncio.timeout(PATIENCE):
            await has_ended.wait()
        assert gate.inside == KEPT
        gate.open_all()
        await runner.stop()


async def test_recurring_jobs_are_added_beside_tasks_that_keep_connections(
    holding: Holding, jobs: Jobs, keeper: Keeper, gate: Gate
) -> None:
    await holding.start(
        {"keep": keeper.__call__},
        hold=HOLD,
        concurrency=20,
        clock=FastClock(60.0),
        use_local_time=True,
        crontab="* * * * * recurring",
    )
    await jobs.add_many("keep", KEPT)
    await gate.until_inside(KEPT)
    for _ in range(2):
        await jobs.connection.execute("delete from graphile_worker._private_jobs where locked_by is null")
        await until(lambda: has_recurring(holding))
    assert gate.inside == KEPT
    gate.open_all()


async def has_recurring(holding: Holding) -> bool:
    return bool(await holding.rows("recurring"))

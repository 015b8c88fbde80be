"""Limited jobs in held batches: they count while the transaction is open, and never exceed the limit.

A batch has at most a quarter of the jobs that may run, so only wide limits have any. See
docs/design/0041-limits-in-held-batches.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphile_worker import Lane, Limit, Runner, Task, WorkerUtils, task
from graphile_worker.database.sql import load
from graphile_worker.database.statements.limits import LimitState, get_limited_jobs
from graphile_worker.values.options import MOST_HOLD
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.fetch.limited import LONGEST_DELAY
from support.held_load import ROUNDS, SMALL_LOAD, Holding
from support.working import SCHEMA, Gate, Jobs, until

HOLDS = f"{SCHEMA}._private_py_limit_holds"
WIDE = 800  # jobs at once; enough for batches of the largest size that tests have
SLOTS = 10
SHORTLY = 2.0  # seconds to hold a batch
CUT_WITHIN = 8.0  # the same where its connection is cut before its end
PLENTY = 1_000_000  # jobs per second

HELD_SESSIONS = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
    "and state = 'idle in transaction' and application_name = 'graphile_worker'"
)


class LimitedHolding:
    """A worker that holds limited jobs, in a lane with a few slots."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.jobs = holding.jobs
        self.connection = holding.jobs.connection

    async def start(self, limit: Limit, step: Any, *, is_warm: bool = True, **options: Any) -> Runner:
        async def nothing() -> None: ...

        tasks = {"quick": self.limited("quick", nothing, limit), "step": self.limited("step", step, limit)}
        lanes = [Lane("limited", concurrency=SLOTS)]
        return await self.holding.start(tasks, is_warm=is_warm, lanes=lanes, **options)

    @staticmethod
    def limited(name: str, function: Callable[..., Awaitable[None]], limit: Limit) -> Task[Any, Any]:
        return task(name, limit=limit, lane="limited")(function)

    async def state(self, name: str = "wide", *, asked: int = PLENTY) -> LimitState:
        """What a fetch of another pool that finds no job would be told."""
        found = LimitState()

        async def is_told() -> bool:
            nonlocal found
            _, found = await get_limited_jobs(
                self.connection, SchemaName(), pool_id="another", tasks={}, limit=asked, limits=[name]
            )
            return not found.is_busy

        await until(is_told)
        return found

    async def room(self) -> int:
        """For how many jobs another pool would find room."""
        return (await self.state()).room

    async def rows(self) -> list[list[int]]:
        """The jobs of each row that says who uses a limit."""
        return [row["job_ids"] for row in await self.connection.fetch(f"select job_ids from {HOLDS}")]


@pytest.fixture
async def limited(holding: Holding) -> LimitedHolding:
    await holding.jobs.connection.fetch(load("session/tune_session", SchemaName()))
    return LimitedHolding(holding)


async def test_held_jobs_of_a_limit_count_while_they_are_held(
    limited: LimitedHolding, jobs: Jobs, utils: WorkerUtils, gate: Gate
) -> None:
    await limited.start(Limit("wide", concurrency=WIDE), gate.__call__)
    ids = await limited.holding.add(lambda: jobs.add_many("step", 5))
    await gate.until_inside(5)
    assert await limited.holding.row_locked(ids) == ids
    assert {row["locked_by"] for row in await limited.holding.rows("step")} == {None}

    await limited.room()  # removes the rows of fetches whose jobs have ended
    ((*held,),) = await limited.rows()
    assert set(ids) <= set(held)
    count = len(held)
    assert await limited.room() == WIDE - count
    (shown,) = await utils.limits.list()
    assert shown.running == count
    gate.open_all()
    await jobs.until_gone()
    assert await limited.room() == WIDE


async def test_a_job_that_outlasts_its_batch_counts_until_it_ends(
    limited: LimitedHolding, jobs: Jobs, gate: Gate
) -> None:
    await limited.start(Limit("wide", concurrency=WIDE), gate.__call__, hold=SHORTLY)
    await limited.holding.add(lambda: jobs.add_many("step", 5))
    await gate.until_inside(5)
    assert limited.holding.last_fetch == "held"
    await until(lambda: limited.holding.are_locked("step", 5))
    assert await limited.room() == WIDE - 5
    gate.open()
    await until(lambda: limited.holding.are_locked("step", 4))
    assert await limited.room() == WIDE - 4
    gate.open_all()
    await jobs.until_gone()
    assert await limited.room() == WIDE


async def test_jobs_of_a_lost_batch_count_again_when_they_are_locked(
    limited: LimitedHolding, jobs: Jobs, gate: Gate
) -> None:
    """In between nothing counts them, and another fetch may have removed their row."""
    await limited.start(Limit("wide", concurrency=WIDE), gate.__call__, hold=CUT_WITHIN)
    ids = await limited.holding.add(lambda: jobs.add_many("step", 5))
    await gate.until_inside(5)
    assert await limited.holding.row_locked(ids) == ids
    await limited.connection.execute(f"delete from {HOLDS}")
    await limited.connection.fetch(HELD_SESSIONS)
    await until(lambda: limited.holding.are_locked("step", 5))
    assert await limited.room() == WIDE - 5
    gate.open_all()
    await jobs.until_gone()
    assert sorted(payload["n"] for payload in gate.started) == list(range(5))


@pytest.mark.parametrize(
    "limit",
    [Limit("wide", concurrency=190), Limit("wide", rate=(PLENTY, 1), burst=190)],
    ids=["concurrency", "rate"],
)
async def test_jobs_of_a_narrow_limit_are_not_held(limited: LimitedHolding, jobs: Jobs, limit: Limit) -> None:
    """A quarter of what it allows is less than a batch is worth."""

    async def step() -> None: ...

    await limited.start(limit, step, is_warm=False)
    for _ in range(3):
        await limited.holding.add_load(SMALL_LOAD)
        await jobs.until_gone()
    assert limited.holding.held_fetches == []


@pytest.mark.parametrize(("hold", "is_held"), [(LONGEST_DELAY, True), (MOST_HOLD, False)])
async def test_jobs_with_a_rate_are_held_unless_they_may_start_much_later(
    limited: LimitedHolding, jobs: Jobs, hold: float, is_held: bool
) -> None:
    async def step() -> None: ...

    await limited.start(Limit("wide", rate=(PLENTY, 1), burst=PLENTY), step, is_warm=is_held, hold=hold)
    for _ in range(3):
        await limited.holding.add_load(SMALL_LOAD)
        await jobs.until_gone()
    assert bool(limited.holding.held_fetches) is is_held
    assert await limited.rows() == []


async def test_a_batch_for_which_there_is_no_room_is_not_held(
    limited: LimitedHolding, jobs: Jobs, gate: Gate
) -> None:
    """Another pool uses nearly all of the limit: what is left is used exactly."""
    runner = await limited.start(Limit("wide", concurrency=WIDE), gate.__call__)
    tasks = {
        row["id"]: row["identifier"]
        for row in await limited.connection.fetch(f"select id, identifier from {SCHEMA}._private_tasks")
    }
    before = len(limited.holding.held_fetches)
    async with limited.connection.transaction():
        await jobs.add_many("step", WIDE + 200)
        taken, _ = await get_limited_jobs(
            limited.connection, SchemaName(), pool_id="another", tasks=tasks, limit=WIDE - 3, limits=["wide"]
        )
    assert len(taken) == WIDE - 3
    await gate.until_inside(3)
    async with limited.connection.transaction():
        await limited.connection.execute("select pg_notify('jobs:insert', '{\"count\":1}')")
    await until(lambda: limited.holding.are_locked("step", WIDE))
    assert gate.inside == gate.most_at_once == 3
    assert len(limited.holding.held_fetches) == before
    mine = {row["locked_by"] for row in await limited.holding.rows("step")} - {"another", None}
    assert mine == {runner.pool_id}


async def test_a_job_with_a_key_is_not_overtaken_by_a_batch(
    limited: LimitedHolding, jobs: Jobs, connection: Any
) -> None:
    order: list[str] = []

    async def step(payload: Any) -> None:
        order.append(payload["name"])

    await limited.start(Limit("wide", concurrency=WIDE), step)
    for _ in range(ROUNDS):
        order.clear()
        before = len(limited.holding.held_fetches)
        async with connection.transaction():
            await limited.holding.add_load(SMALL_LOAD)
            await connection.execute(
                f"select from generate_series(1, 30) n, {SCHEMA}.add_job('step', "
                "json_build_object('name', n::text), job_key => case when n = 15 then 'key' end, "
                "run_at => now() + n * interval '1 microsecond')"
            )
        await jobs.until_gone()
        assert sorted(order, key=int) == [str(n) for n in range(1, 31)]
        assert order.index("15") >= 14 - SLOTS  # slots run at the same time
        assert order.index("15") <= 14 + SLOTS
        if len(limited.holding.held_fetches) > before:
            return
    raise AssertionError("the worker holds nothing")

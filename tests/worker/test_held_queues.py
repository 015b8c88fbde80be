"""Named queues in held batches: their jobs run in series, many in one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from graphile_worker import JobHelpers, Runner, WorkerUtils
from graphile_worker.hooks.events import JobFailed, JobSucceeded
from support.held_load import Holding
from support.working import SCHEMA, Gate, Jobs, Workers, until

MANY = 120  # jobs of a queue
PLACE = 30  # of the job that waits
HELD_SESSIONS = (
    "select pid from pg_stat_activity where datname = current_database() and state = 'idle in transaction' "
    "and application_name = 'graphile_worker'"
)
SHORTLY = 1.0  # seconds


class Series:
    """A worker that holds the jobs of queues, one of which waits for the test."""

    def __init__(self, holding: Holding, gate: Gate) -> None:
        self.holding = holding
        self.jobs = holding.jobs
        self.gate = gate
        self.order: list[int] = []
        self.inside: Counter[int | None] = Counter()
        self.overlaps: list[int] = []
        self.waits_at: set[int] = set()
        self.fails_at: set[int] = set()
        self.runner: Any = None

    async def step(self, payload: Any, helpers: JobHelpers) -> None:
        job = helpers.job
        self.order.append(job.id)
        self.inside[job.job_queue_id] += 1
        if self.inside[job.job_queue_id] > 1:
            self.overlaps.append(job.id)
        try:
            if job.id in self.waits_at:
                await self.gate(job.id)
            if job.id in self.fails_at and job.attempts == 1:
                raise RuntimeError("once")
        finally:
            self.inside[job.job_queue_id] -= 1

    async def start(self, **options: Any) -> Runner:
        options = {"concurrency": 10, "max_pool_size": 20, **options}
        self.runner = await self.holding.start({"step": self.step}, **options)
        return self.runner

    async def add(self, *, queues: int = 1, count: int = MANY, place: int | None = PLACE) -> list[int]:
        """Add jobs of queues in turn; the one at `place` waits. Their ids."""
        async with self.jobs.connection.transaction():
            rows = await self.jobs.connection.fetch(
                f"select job.id from generate_series(0, $1::integer - 1) n, {SCHEMA}.add_job("
                "'step', json_build_object('n', n), queue_name => 'q' || n % $2::integer, "
                "run_at => now() - interval '1 hour' + n * interval '1 millisecond') job",
                count,
                queues,
            )
            ids = [row["id"] for row in rows]
            if place is not None:
                self.waits_at.add(ids[place])
        return ids

    async def hold(self, **options: Any) -> list[int]:
        """The same; the one that waits is held, and has begun."""
        for _ in range(20):
            ids = await self.add(**options)
            await self.gate.until_inside(1)
            (waiting,) = self.waits_at
            if await self.holding.row_locked([waiting]) and await self.is_free(waiting):
                return ids
            await self.let_go()
            await self.jobs.until_gone()
            self.order.clear()
        raise AssertionError("nothing is held")

    async def is_free(self, job_id: int) -> bool:
        return await self.jobs.connection.fetchval(
            f"select locked_at is null from {SCHEMA}._private_jobs where id = $1", job_id
        )

    async def let_go(self) -> None:
        self.waits_at.clear()
        self.gate.open_all()

    async def queue(self, name: str = "q0") -> Any:
        return next(row for row in await self.jobs.queues() if row["queue_name"] == name)

    async def sessions(self) -> list[int]:
        return [row["pid"] for row in await self.jobs.connection.fetch(HELD_SESSIONS)]

    async def elsewhere(self, workers: Workers, **options: Any) -> Runner:
        """Another worker, which holds nothing."""
        return await workers.start({"step": self.step}, hold=0, poll_interval=0.1, **options)


@pytest.fixture
def series(holding: Holding, gate: Gate) -> Series:
    return Series(holding, gate)


async def stays(condition: Callable[[], Awaitable[bool]], *, looks: int = 20) -> bool:
    """Whether a condition holds while others have had their turn."""
    for _ in range(looks):
        if not await condition():
            return False
        await asyncio.sleep(0.01)  # timing: what must not happen has time to; less cannot fail the test
    return True


@pytest.mark.parametrize("queues", [1, 7], ids=["one queue", "several queues"])
async def test_jobs_run_in_order_and_one_at_a_time(series: Series, jobs: Jobs, queues: int) -> None:
    await series.start()
    before = sum(series.holding.held_fetches)
    ids = await series.add(queues=queues, count=300, place=None)
    await jobs.until_gone()
    assert sorted(series.order) == ids
    for queue in range(queues):
        own = ids[queue::queues]
        assert [job_id for job_id in series.order if job_id in set(own)] == own
    assert series.overlaps == []
    assert sum(series.holding.held_fetches) - before > 100
    await until(lambda: jobs_unlocked(jobs))


async def jobs_unlocked(jobs: Jobs) -> bool:
    return await jobs.locked() == 0


async def test_a_held_queue_is_locked_for_all_and_its_jobs_are_not_written(
    series: Series, workers: Workers
) -> None:
    runner = await series.start()
    ids = await series.hold()
    assert (await series.queue())["locked_by"] == runner.pool_id
    left = [row for row in await series.holding.rows("step") if row["id"] >= ids[PLACE]]
    assert {(row["locked_by"], row["attempts"]) for row in left} == {(None, 0)}
    await series.elsewhere(workers)
    assert await stays(lambda: is_at(series, ids[PLACE]))
    await series.let_go()
    await series.jobs.until_gone()
    assert series.order == ids
    assert series.overlaps == []


async def is_at(series: Series, job_id: int) -> bool:
    return series.order[-1] == job_id


async def test_queues_in_use_are_not_taken_for_lost_ones(series: Series) -> None:
    """Without that a reclaim would unlock them: none of their jobs is locked."""
    runner: Any = await series.start()
    ids = await series.hold()
    sessions = runner._pool._sessions
    sessions.locked_jobs.doubt()
    await sessions.reclaim()
    assert (await series.queue())["locked_by"] == runner.pool_id
    await series.let_go()
    await series.jobs.until_gone()
    assert series.order == ids


async def test_a_job_that_outlasts_the_batch_keeps_its_queue(series: Series, workers: Workers) -> None:
    runner = await series.start(hold=SHORTLY)
    ids = await series.hold()
    await until(lambda: series.holding.are_locked("step", 1))
    rows = await series.holding.rows("step")
    assert [row["id"] for row in rows] == ids[PLACE:]
    assert (rows[0]["locked_by"], rows[0]["attempts"]) == (runner.pool_id, 1)
    assert {(row["locked_by"], row["attempts"]) for row in rows[1:]} == {(None, 0)}
    assert (await series.queue())["locked_by"] == runner.pool_id
    assert await series.holding.row_locked(ids[PLACE:]) == []
    await series.elsewhere(workers)
    assert await stays(lambda: is_at(series, ids[PLACE]))
    await series.let_go()
    await series.jobs.until_gone()
    assert series.order == ids
    assert series.overlaps == []


async def test_a_job_that_fails_ends_its_series(series: Series) -> None:
    await series.start()
    ids = await series.hold(queues=2)
    failing = ids[PLACE]
    series.fails_at.add(failing)
    await series.let_go()
    await series.jobs.until_left(failing)
    row = await series.jobs.one()
    assert (row["attempts"], row["locked_by"]) == (1, None)
    assert [job_id for job_id in series.order if job_id in ids[::2]] == ids[::2]
    assert series.overlaps == []
    assert series.holding.of(JobFailed, ids) == []
    await series.jobs.make_due()
    series.runner._pool._lanes.jobs_freed()
    await series.jobs.until_gone()
    await until(lambda: len(series.holding.of(JobSucceeded, ids)) == MANY)


async def test_a_series_ends_before_a_job_with_a_key(series: Series, utils: WorkerUtils) -> None:
    """Its row must not be locked while others run: who replaces it would wait."""
    await series.start()
    connection = series.jobs.connection
    for _ in range(20):
        async with connection.transaction():
            ids = await series.add()
            await connection.execute(
                f"update {SCHEMA}._private_jobs set key = 'k' where id = $1", ids[PLACE + 10]
            )
        await series.gate.until_inside(1)
        if await series.holding.row_locked([ids[PLACE]]):
            break
        await series.let_go()
        await series.jobs.until_gone()
        series.order.clear()
    assert await series.holding.row_locked(ids[PLACE:]) == ids[PLACE : PLACE + 10]
    await series.let_go()
    await series.jobs.until_gone()
    assert series.order == ids


async def test_a_pause_of_the_queue_ends_its_series(
    series: Series, utils: WorkerUtils, workers: Workers
) -> None:
    """And a resume leaves the queue to the job that still runs in it, although nothing shows that it runs."""
    runner = await series.start(hold=5 * SHORTLY)
    ids = await series.hold()
    await series.elsewhere(workers)
    await utils.queues.pause("q0")
    assert await series.is_free(ids[PLACE])
    await utils.queues.resume("q0")
    assert await series.holding.are_locked("step", 1)
    assert (await series.queue())["locked_by"] == runner.pool_id
    assert await stays(lambda: is_at(series, ids[PLACE]), looks=50)
    await utils.queues.pause("q0")
    await series.let_go()
    await until(lambda: has_rows(series.jobs, len(ids) - PLACE - 1))
    assert await stays(lambda: is_at(series, ids[PLACE]))
    await utils.queues.resume("q0")
    await series.jobs.until_gone()
    assert series.order == ids
    assert series.overlaps == []


async def has_rows(jobs: Jobs, count: int) -> bool:
    return await jobs.count() == count


async def test_a_graceful_stop_ends_series(series: Series) -> None:
    runner = await series.start()
    ids = await series.hold()
    stopping = asyncio.create_task(runner.stop())
    await until(lambda: series.holding.are_locked("step", 1))
    await series.let_go()
    await stopping
    rows = await series.jobs.all()
    assert [row["id"] for row in rows] == ids[PLACE + 1 :]
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}
    assert await series.jobs.locked() == 0
    assert series.order == ids[: PLACE + 1]


async def test_a_forced_stop_returns_every_job(series: Series) -> None:
    runner = await series.start()
    ids = await series.hold()
    await runner.kill()
    rows = await series.jobs.all()
    assert [row["id"] for row in rows] == ids[PLACE:]
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}
    assert await series.jobs.locked() == 0


async def test_jobs_of_a_lost_batch_run_once_and_in_order(series: Series, workers: Workers) -> None:
    """The queue stays locked. What has completed is deleted before its next job can be chosen."""
    await series.start(hold=SHORTLY)
    ids = await series.hold(queues=2)
    await series.elsewhere(workers)
    for pid in await series.sessions():
        await series.jobs.connection.execute("select pg_terminate_backend($1)", pid)
    others = ids[1::2]
    await until(lambda: series.holding.are_locked("step", 1))
    assert await stays(lambda: runs_once(series))
    await series.let_go()
    await series.jobs.until_gone()
    assert Counter(series.order) == Counter(ids)
    assert [job_id for job_id in series.order if job_id in ids[::2]] == ids[::2]
    assert [job_id for job_id in series.order if job_id in others] == others
    assert series.overlaps == []
    await until(lambda: jobs_unlocked(series.jobs))


async def runs_once(series: Series) -> bool:
    return max(Counter(series.order).values()) == 1

"""Jobs that leave a held batch before it has ended: released, lost, or locked by another fetch of the pool.

The event loop leaves almost no room for some of these moments. The tests make them: they keep a job out of
its source, as while it is being returned, or make the end of a batch wait for the test.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker import Job, JobHelpers, Runner, WorkerUtils
from graphile_worker.database.connections.retry import Delays
from graphile_worker.hooks.events import PoolEvicted, PoolJobsFetched, PoolJobsReturned
from graphile_worker.recovery import held_batches
from graphile_worker.recovery.orphaned_jobs import RECOVERED
from graphile_worker.values.flags import NO_RULES
from graphile_worker.values.schema_name import SchemaName
from support.held_load import LOAD, Holding
from support.proxy import Proxy, proxy_to
from support.working import PATIENCE, SCHEMA, SELDOM, Gate, Jobs, until

STEPS = 20
SLOTS = 2
SHORTLY = 2.0  # seconds to hold a batch: jobs of a loaded machine are still short enough
LIMIT = 100  # jobs of a fetch
LOCK = 4711

END_OF_BATCH = "from pg_locks where locktype = 'advisory' and objid = $1 and not granted"


class Scene:
    """A batch of which two jobs run, and all others wait for a slot."""

    def __init__(self, holding: Holding, jobs: Jobs, gate: Gate) -> None:
        self.holding = holding
        self.jobs = jobs
        self.gate = gate
        self.attempts: set[int] = set()
        self.ids: list[int] = []
        self.runner: Any = None

    async def step(self, payload: Any, helpers: JobHelpers) -> None:
        self.attempts.add(helpers.job.attempts)
        await self.gate(helpers.job.id)

    async def start(self, **options: Any) -> Runner:
        tasks = {"step": self.step, "other": self.step}
        await self.on_update("")
        await self.jobs.connection.execute(
            f"create trigger on_update before update on {SCHEMA}._private_jobs for each row "
            f"execute function {SCHEMA}.on_update()"
        )
        self.runner = await self.holding.start(tasks, concurrency=SLOTS, **options)
        return self.runner

    async def hold(self) -> list[int]:
        """Hold the jobs; the ids of those that wait for a slot. The last of them is of the task `other`."""

        async def add() -> list[int]:
            return [*await self.jobs.add_many("step", STEPS - 1), await self.jobs.add("other")]

        self.ids = await self.holding.add(add)
        await self.gate.until_inside(SLOTS)
        assert await self.holding.row_locked(self.ids) == self.ids
        assert [row["locked_by"] for row in await self.rows()] == [None] * STEPS
        return [job_id for job_id in self.ids if job_id not in self.gate.started]

    async def hold_one(self, job_id: int) -> list[Job]:
        """Hold a free job that the worker does not fetch itself."""

        async def is_free() -> bool:
            return not await self.holding.row_locked([job_id])

        await until(is_free)
        (row,) = [row for row in await self.rows() if row["id"] == job_id]
        held_batches = self.runner._pool._held_batches
        await held_batches.free_session({}, lambda: False)
        tasks = {row["task_id"]: row["identifier"]}
        jobs = list(await held_batches.fetch(tasks=tasks, limit=1, flags=NO_RULES, now=None))
        assert [job.id for job in jobs] == [job_id]
        return jobs

    async def rows(self) -> list[Any]:
        return [row for row in await self.jobs.all() if row["id"] in self.ids]

    async def are_locked(self) -> bool:
        """Whether all are locked in the ordinary way."""
        return {row["locked_by"] for row in await self.rows()} == {self.runner.pool_id}

    async def is_locked(self, job_id: int) -> bool:
        rows = [row for row in await self.rows() if row["id"] == job_id]
        return [row["locked_by"] for row in rows] == [self.runner.pool_id]

    async def has_returned(self, times: int) -> bool:
        """Whether the return of the ordinary job was attempted this often."""
        return await self.jobs.connection.fetchval(
            f"select is_called and last_value = $1 from {SCHEMA}.returns", times
        )

    def keep_out(self, *job_ids: int) -> list[Job]:
        """Take jobs from their source that have not started."""
        dropped: list[Job] = self.runner._pool._lanes.drop(lambda job: job.id in job_ids)
        assert [job.id for job in dropped] == list(job_ids)
        return dropped

    def release(self, jobs: list[Job]) -> None:
        """As a source does that returns them; the end of their batch begins, if it has not."""
        assert self.runner._pool._held_batches.release(jobs) == []

    async def delay_the_lock(self, job_id: int) -> None:
        """Make the statement that locks this job wait for `let_it_lock`."""
        await self.delay(f"old.id = {job_id} and old.locked_at is null")

    async def delay(self, condition: str) -> None:
        """Make the next update of such a row wait for `let_it_lock`."""
        await self.jobs.connection.execute(f"select pg_advisory_lock({LOCK})")
        await self.on_update(f"if {condition} then perform pg_advisory_xact_lock({LOCK}); end if;")

    async def on_update(self, body: str) -> None:
        """What happens before each update of a job from now on. A trigger would wait for open batches."""
        await self.jobs.connection.execute(
            f"create or replace function {SCHEMA}.on_update() returns trigger language plpgsql "
            f"as $$ begin {body} return new; end $$"
        )

    async def until_it_ends(self) -> int:
        """Wait until the end of the batch locks the job, or another delayed one; its process."""

        async def is_waiting() -> bool:
            return await self.jobs.connection.fetchval(f"select exists (select {END_OF_BATCH})", LOCK)

        await until(is_waiting)
        pid: int = await self.jobs.connection.fetchval(f"select pid {END_OF_BATCH}", LOCK)
        return pid

    async def let_it_lock(self) -> None:
        await self.jobs.connection.execute(f"select pg_advisory_unlock({LOCK})")

    async def end_session(self) -> None:
        """End the session of the batch on the server. The worker notices at the end of the batch."""
        await end_session_of(self.runner, self.ids[-1], self.jobs)

    async def take(self, *job_ids: int) -> None:
        """Lock jobs as another worker does."""
        status = await self.jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set attempts = attempts + 1, locked_by = 'foreign', "
            "locked_at = now() where id = any ($1::bigint[]) and locked_at is null",
            job_ids,
        )
        assert status == f"UPDATE {len(job_ids)}"

    async def run_all(self) -> None:
        """Let every job end: each has run once."""
        await self.holding.open_until_gone(self.gate)
        assert Counter(self.gate.started) == Counter(self.ids)
        assert self.gate.ended == self.gate.started
        assert self.attempts == {1}


@pytest.fixture
def scene(holding: Holding, jobs: Jobs, gate: Gate) -> Scene:
    return Scene(holding, jobs, gate)


@pytest.fixture
async def network(database_url: str, workers: Any) -> AsyncIterator[tuple[Proxy, str]]:
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        async with proxy_to(database_url, Path(folder)) as proxy:
            try:
                yield proxy
            finally:
                await workers.close()


# -- released after the end has begun ------------------------------------------------------------------------


async def test_a_job_that_the_end_of_its_batch_locks_after_its_release_is_returned(scene: Scene) -> None:
    await scene.start()
    waiting = await scene.hold()
    late = scene.keep_out(waiting[-2])
    await scene.delay_the_lock(waiting[-2])
    scene.release(scene.keep_out(waiting[-1]))
    await scene.until_it_ends()
    scene.release(late)
    await scene.let_it_lock()
    await scene.run_all()


async def test_a_job_that_was_released_while_its_batch_was_lost_before_the_commit_runs(scene: Scene) -> None:
    await scene.start()
    waiting = await scene.hold()
    late = scene.keep_out(waiting[-2])
    await scene.delay_the_lock(waiting[-2])
    scene.release(scene.keep_out(waiting[-1]))
    pid = await scene.until_it_ends()
    scene.release(late)
    await scene.jobs.connection.execute("select pg_terminate_backend($1)", pid)
    await scene.let_it_lock()
    await scene.run_all()


async def test_a_job_that_was_released_while_its_batch_was_lost_after_the_commit_runs(
    scene: Scene, network: tuple[Proxy, str]
) -> None:
    proxy, url = network
    await scene.start(connection_string=url)
    waiting = await scene.hold()
    late = scene.keep_out(waiting[-2])
    await scene.delay_the_lock(waiting[-2])
    scene.release(scene.keep_out(waiting[-1]))
    proxy.link(await scene.until_it_ends()).needle = b"COMMIT\0"
    scene.release(late)
    await scene.let_it_lock()
    await scene.run_all()
    assert proxy.cuts == 1


async def test_a_paused_job_leaves_its_batch_in_the_same_step_of_the_event_loop(scene: Scene) -> None:
    """In a later one the batch may be lost; the job would then be taken for one that runs."""
    await scene.start()
    paused = (await scene.hold())[-1]
    pool = scene.runner._pool
    source = pool._lanes._all[0].source
    source.withhold(lambda job: job.id == paused)
    assert paused not in pool._held_batches.by_id
    source.withhold(None)
    await scene.run_all()


async def test_jobs_that_another_thread_locks_after_their_batch_was_lost_are_returned(
    scene: Scene, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop is no longer blocked while that thread ends a batch for which others wait."""
    monkeypatch.setattr(held_batches, "MOST_WAIT", "0")
    monkeypatch.setattr(held_batches, "MOST_TIME", "0")
    await scene.start()
    waiting = await scene.hold()
    pool = scene.runner._pool
    pool.allow_held_batches(after=SELDOM)
    await scene.delay_the_lock(waiting[-1])
    batches = held_batches.BlockedBatches(SchemaName(SCHEMA), pool.id, pool.open_batches)
    keeper, changer = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    try:
        change = f"update {SCHEMA}._private_jobs set priority = priority where id = $1"
        changing = asyncio.create_task(changer.execute(change, waiting[0]))
        await until(lambda: is_waiting_for(scene.jobs, "transactionid"))
        ending = asyncio.create_task(batches.end(keeper, timeout=PATIENCE))
        await scene.until_it_ends()
        scene.release(scene.keep_out(*waiting))
        batch_sessions = pool._held_batches._batch_sessions
        await until(lambda: all(batch_session.batch is None for batch_session in batch_sessions.all))
        await until(lambda: not pool._sessions.locked_jobs.in_doubt)
        await scene.let_it_lock()
        await ending
        await changing
    finally:
        await keeper.close(timeout=60)
        await changer.close(timeout=60)
    await scene.run_all()
    assert not pool._sessions.locked_jobs.kept


async def is_waiting_for(jobs: Jobs, lock: str) -> bool:
    return await jobs.connection.fetchval(
        "select exists (select from pg_locks where not granted and locktype = $1)", lock
    )


# -- fetched again -------------------------------------------------------------------------------------------


async def test_jobs_that_were_released_are_fetched_again_when_their_batch_has_ended(scene: Scene) -> None:
    """A fetch while it ended has seen their rows locked, and no poll is due."""
    await scene.start(hold=SHORTLY)
    await scene.hold()
    await scene.delay_the_lock(scene.gate.started[0])
    scene.holding.recorder.clear()
    await scene.until_it_ends()
    await until(lambda: any(not fetch.count for fetch in scene.holding.recorder.of(PoolJobsFetched)))
    assert len(scene.gate.started) == SLOTS
    await scene.let_it_lock()
    await scene.run_all()


async def test_jobs_that_an_ordinary_fetch_has_locked_in_between_run_once(
    scene: Scene, utils: WorkerUtils
) -> None:
    """The server has ended the session of their batch, and the worker does not know."""
    await scene.start(poll_interval=0.1)
    await scene.hold()
    await scene.end_session()
    await until(scene.are_locked)
    assert len(scene.gate.started) == SLOTS
    await utils.pause(task="other")  # the end of the batch begins

    async def are_settled() -> bool:
        rows = [row for row in await scene.rows() if row["identifier"] == "other"]
        return [(row["locked_by"], row["attempts"]) for row in rows] == [(None, 0)]

    await until(are_settled)
    await utils.resume(task="other")
    await scene.run_all()


async def test_a_job_that_is_released_while_others_are_reclaimed_is_returned_too(scene: Scene) -> None:
    """The reclaim has counted it among the jobs that the pool knows."""
    await scene.start(poll_interval=0.1)
    waiting = await scene.hold()
    await scene.end_session()
    await until(scene.are_locked)
    connection = scene.jobs.connection
    async with connection.transaction():
        unknown = await scene.jobs.add("step")
        await connection.execute(
            f"update {SCHEMA}._private_jobs set attempts = 1, locked_at = now(), locked_by = $1 "
            "where id = $2",
            scene.runner.pool_id,
            unknown,
        )
    await scene.delay(f"old.id = {unknown} and old.locked_at is not null")
    sessions = scene.runner._pool._sessions
    sessions.locked_jobs.doubt()  # as after a lost answer
    reclaiming = asyncio.create_task(sessions.reclaim())
    await scene.until_it_ends()
    scene.ids.append(unknown)
    scene.release(scene.keep_out(waiting[-1]))
    await scene.let_it_lock()
    await reclaiming
    await scene.run_all()


async def test_a_return_that_is_repeated_leaves_out_jobs_that_were_fetched_again(
    scene: Scene, utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause frees a held job and returns an ordinary one, which fails once."""
    monkeypatch.setattr("graphile_worker.worker.fetch.source.RETRY_DELAYS", Delays(1.0, 1.0))
    await scene.start()
    held = (await scene.hold())[-1]
    ordinary = await scene.jobs.add("other", key="k")  # not held
    scene.ids.append(ordinary)
    await until(lambda: scene.is_locked(ordinary))
    assert not await scene.is_locked(held)
    connection = scene.jobs.connection
    await connection.execute(f"create sequence {SCHEMA}.returns")
    await scene.on_update(
        f"if old.id = {ordinary} and new.locked_at is null then "
        f"if nextval('{SCHEMA}.returns') = 1 then raise 'not now'; end if; end if;"
    )
    await utils.pause(task="other")
    await until(lambda: scene.has_returned(1))
    again = await scene.hold_one(held)
    await scene.holding.recorder.wait_for(PoolJobsReturned)
    assert await scene.has_returned(2)
    assert held in scene.runner._pool._held_batches.by_id
    assert await scene.holding.row_locked([held]) == [held]
    await utils.resume(task="other")
    await until(lambda: scene.is_locked(ordinary))
    scene.runner._pool._lanes._all[0].source.adopt(again)
    await scene.run_all()


async def test_a_return_without_an_answer_leaves_out_jobs_that_were_fetched_again(
    scene: Scene, utils: WorkerUtils, network: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has unlocked the job, and the worker does not know."""
    for module in ("database.connections.retry", "worker.session"):
        monkeypatch.setattr(f"graphile_worker.{module}.BROKEN_CONNECTION", Delays(1.0, 1.0))
    proxy, url = network
    await scene.start(connection_string=url)
    await scene.hold()
    ordinary = await scene.jobs.add("other", key="k")  # not held
    scene.ids.append(ordinary)
    await until(lambda: scene.is_locked(ordinary))
    fetching = scene.runner._pool._sessions.fetch._connection.get_server_pid()
    await scene.delay(f"old.id = {ordinary} and new.locked_at is null")
    await utils.pause(task="other")
    assert await scene.until_it_ends() == fetching
    proxy.link(fetching).needle = b"COMMIT\0"  # keyed jobs are returned in a transaction
    await scene.let_it_lock()
    await until(lambda: proxy.cuts == 1)
    await utils.resume(task="other")
    await until(lambda: scene.is_locked(ordinary))  # fetched again
    await scene.holding.recorder.wait_for(PoolJobsReturned)
    assert await scene.is_locked(ordinary)
    await scene.run_all()


# -- written while it is locked ------------------------------------------------------------------------------


async def test_outcomes_are_written_while_a_batch_is_locked_before_its_jobs_run(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait for all outcomes must not end that batch a second time."""
    runner: Any = await scene.start()
    await scene.delay("old.last_error is not null and old.locked_at is null")

    async def add() -> int:
        job_id = await scene.jobs.add("step")
        await scene.jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set last_error = $2 where id = $1", job_id, RECOVERED
        )
        return job_id

    scene.ids = [await scene.holding.add(add)]
    await scene.until_it_ends()
    assert scene.holding.held_fetches
    writing = asyncio.create_task(runner._pool.write_outcomes())
    await asyncio.sleep(0)
    await scene.let_it_lock()
    await writing
    await scene.run_all()
    assert "could not be written" not in caplog.text


async def test_a_wait_for_outcomes_leaves_batches_alone_that_begin_meanwhile(scene: Scene) -> None:
    runner: Any = await scene.start()
    await scene.hold()
    await scene.delay_the_lock(scene.gate.started[0])
    writing = asyncio.create_task(runner._pool.write_outcomes())
    await scene.until_it_ends()
    later = await scene.jobs.add("foreign")
    scene.ids.append(later)
    await scene.hold_one(later)
    await scene.let_it_lock()
    await writing
    assert await scene.is_locked(scene.gate.started[0])
    assert later in runner._pool._held_batches.by_id


# -- taken by other workers ----------------------------------------------------------------------------------


async def test_jobs_of_a_lost_batch_that_other_workers_have_taken_do_not_start(
    scene: Scene, utils: WorkerUtils
) -> None:
    await scene.start()
    await scene.hold()
    await scene.end_session()
    await scene.take(*scene.ids)
    await utils.pause(task="other")  # the end of the batch begins
    evicted = await scene.holding.recorder.wait_for(PoolEvicted)
    assert sorted(job.id for job in evicted.jobs) == sorted(scene.gate.started)
    await assert_only_new_jobs_run(scene)


async def test_a_job_of_a_lost_batch_that_is_still_in_its_source_is_dropped_when_it_was_taken(
    scene: Scene,
) -> None:
    await scene.start()
    waiting = await scene.hold()
    await scene.end_session()
    await scene.take(*scene.ids)
    late = scene.keep_out(waiting[-2])
    scene.release(scene.keep_out(waiting[-1]))
    scene.runner._pool._lanes._all[0].source.adopt(late)
    evicted = await scene.holding.recorder.wait_for(PoolEvicted)
    assert sorted(job.id for job in evicted.jobs) == sorted([*scene.gate.started, waiting[-2]])
    await assert_only_new_jobs_run(scene)


async def end_session_of(runner: Any, job_id: int, jobs: Jobs) -> None:
    """End the session that holds this job on the server; others may have an empty transaction just now."""
    pid = runner._pool._held_batches.by_id[job_id].connection.get_server_pid()
    assert await jobs.connection.fetchval("select pg_terminate_backend($1)", pid)

    async def is_gone() -> bool:
        return not await jobs.connection.fetchval(
            "select exists (select from pg_stat_activity where pid = $1)", pid
        )

    await until(is_gone)


async def assert_only_new_jobs_run(scene: Scene) -> None:
    """The worker has cancelled what ran, starts nothing of the rest, and goes on."""
    gate, before = scene.gate, list(scene.gate.started)
    await until(lambda: not gate.inside)
    assert len(before) == SLOTS
    more = await scene.jobs.add_many("step", 5)

    async def have_run() -> bool:
        gate.open_all()
        return await scene.jobs.count() == STEPS

    await until(have_run)
    assert Counter(gate.started) == Counter([*before, *more])
    assert gate.ended == more
    assert {(row["locked_by"], row["attempts"]) for row in await scene.rows()} == {("foreign", 1)}


async def test_a_fetch_that_finds_own_jobs_goes_on_to_the_rest(
    holding: Holding, jobs: Jobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is lost while a job runs. A fetch that finds little but its jobs is not the last."""
    monkeypatch.setattr("graphile_worker.worker.fetch.adaptive.MAX_FETCH", LIMIT)
    runner = await holding.start({"step": gate.__call__}, concurrency=10)
    async with jobs.connection.transaction():
        await holding.add_load(LOAD)
        waiting = await jobs.connection.fetchval(
            f"select id from {SCHEMA}.add_job('step', run_at => now() - interval '1 day' + interval '0.4 s')"
        )

    async def has_one_batch() -> bool:
        return await jobs.count() <= LIMIT

    async def has_nothing_else() -> bool:
        return await jobs.count() == held

    await gate.until_inside(1)
    await until(has_one_batch)
    held = await jobs.count()
    assert held > LIMIT // 2
    await end_session_of(runner, waiting, jobs)
    await jobs.add_many("quick", 3 * LIMIT)  # due after those, and announced
    await until(has_nothing_else)
    gate.open_all()
    await jobs.until_gone()

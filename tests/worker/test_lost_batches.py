"""Held batches whose connection is lost: nothing is lost, and nothing runs twice without need."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF
from graphile_worker import WorkerUtils
from graphile_worker.errors import WorkerStoppedError
from graphile_worker.hooks.events import (
    JobCompleted,
    JobErrored,
    JobOutcomeDiscarded,
    PoolEvicted,
    PoolJobsFetched,
    PoolOutcomesWritten,
)
from graphile_worker.worker import shutdown
from support.working import SCHEMA, Jobs, Workers, headline, terminate_workers, until
from worker.lost_scene import BACKLOG, LONG, ROUNDS, SHORT, LostScene, lost_scene


@pytest.fixture
async def scene(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str
) -> AsyncIterator[LostScene]:
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        yield scene


async def test_outcomes_of_a_batch_that_was_lost_before_its_end_are_kept_and_written(
    scene: LostScene,
) -> None:
    await scene.start(LONG)
    waiting = await scene.hold()
    await scene.end_sessions()
    assert await scene.ended_and_held(waiting)
    scene.gate.open_one(waiting)
    await scene.until_completed()
    scene.assert_each_completed_once()
    assert scene.recorder.count(JobOutcomeDiscarded) == scene.recorder.count(PoolEvicted) == 0


@pytest.mark.parametrize("answer", [b"DELETE ", b"COMMIT\0"], ids=["before the commit", "after the commit"])
async def test_a_batch_whose_connection_breaks_while_it_ends_is_written_once(
    scene: LostScene, answer: bytes
) -> None:
    await scene.start(LONG)
    waiting = await scene.hold()
    await scene.cut_at(answer)
    scene.gate.open_one(waiting)
    await scene.until_completed()
    assert scene.proxy.cuts == 1
    scene.assert_each_completed_once()
    assert scene.recorder.count(JobOutcomeDiscarded) == scene.recorder.count(PoolEvicted) == 0


@pytest.mark.parametrize("answer", [b"UPDATE ", b"COMMIT\0"], ids=["before the commit", "after the commit"])
async def test_a_job_that_outlasts_a_batch_whose_end_was_not_answered_goes_on(
    scene: LostScene, answer: bytes
) -> None:
    await scene.start(SHORT)
    waiting = await scene.hold()
    await scene.cut_at(answer)
    await until(lambda: scene.is_locked(waiting))
    assert scene.proxy.cuts == 1
    scene.gate.open_one(waiting)
    await scene.until_completed()
    scene.assert_each_completed_once()
    assert scene.recorder.count(JobOutcomeDiscarded) == scene.recorder.count(PoolEvicted) == 0


async def test_jobs_of_a_batch_that_was_committed_after_all_are_counted_as_written(
    scene: LostScene, caplog: pytest.LogCaptureFixture
) -> None:
    """What Prometheus and others count comes from this event; and the failure is over."""
    caplog.set_level(logging.INFO, logger="graphile_worker.worker")
    await scene.start(LONG)
    waiting = await scene.hold()
    await scene.cut_at(b"COMMIT\0")
    scene.gate.open_one(waiting)
    await scene.until_completed()
    assert scene.proxy.cuts == 1
    events = scene.recorder.of(PoolOutcomesWritten)
    assert Counter(finished.job.id for event in events for finished in event.finished) == scene.times
    lines = [record.message for record in caplog.records if "outcomes" in record.message]
    assert [line.split(" (")[0].split(":")[0] for line in lines] == [
        "outcomes could not be written and are kept",
        "outcomes are written again",
    ]


# -- other workers -------------------------------------------------------------------------------------------


async def test_the_outcome_of_a_job_that_another_worker_has_taken_is_discarded(scene: LostScene) -> None:
    await scene.start(LONG)
    waiting = await scene.hold()
    ended, *others = await scene.ended_and_held(waiting)
    assert others
    await scene.end_sessions()
    await scene.take(waiting, ended)
    scene.gate.open_one(waiting)
    await scene.recorder.wait_for(JobOutcomeDiscarded, count=2)
    assert {event.job.id for event in scene.recorder.of(JobOutcomeDiscarded)} == {waiting, ended}
    await until(lambda: scene.has_rows(2))
    assert {row["locked_by"] for row in await scene.jobs.all()} == {"foreign"}
    completed = Counter(event.job.id for event in scene.recorder.of(JobCompleted))
    assert completed == Counter(scene.times.keys() - {waiting, ended})
    scene.assert_each_ran_once()


async def test_an_outcome_is_discarded_although_another_lost_batch_may_have_been_committed(
    scene: LostScene, database_url: str
) -> None:
    await scene.add_flow(
        BACKLOG
    )  # a worker that starts beside a backlog opens a third session, for all other jobs
    runner = await scene.start(LONG)
    await scene.jobs.until_gone()
    first = await scene.hold()
    (first_session,) = await scene.open_sessions()
    second = await scene.hold()
    async with (
        asyncpg.create_pool(database_url, min_size=1) as pool,
        pool.acquire() as other,
        other.transaction(),  # a held batch of another worker
    ):
        # It waits for the row, so that no fetch of this one locks it first.
        deleting = asyncio.create_task(
            other.execute(f"delete from {SCHEMA}._private_jobs where id = $1", first)
        )
        await until(lambda: scene.is_blocked(other))
        await scene.end_session(first_session)
        assert await deleting == "DELETE 1"
        scene.gate.open_one(first)
        await until(lambda: scene.is_lost(runner, first))
        await scene.cut_at(b"COMMIT\0")
        scene.gate.open_one(second)
        await until(lambda: scene.proxy.cuts == 1)
        await until(lambda: scene.has_rows(1))
    await scene.recorder.wait_for(JobOutcomeDiscarded)
    await until(lambda: scene.recorder.count(JobCompleted) >= len(scene.times) - 1)
    assert [event.job.id for event in scene.recorder.of(JobOutcomeDiscarded)] == [first]
    assert first not in {event.job.id for event in scene.recorder.of(JobCompleted)}
    scene.assert_each_ran_once()


async def test_a_running_job_that_another_worker_has_taken_is_cancelled(scene: LostScene) -> None:
    await scene.start(SHORT)
    waiting = await scene.hold()
    await scene.end_sessions()
    await scene.take(waiting)
    evicted = await scene.recorder.wait_for(PoolEvicted)
    assert [job.id for job in evicted.jobs] == [waiting]
    await until(lambda: not scene.gate.inside)
    assert waiting not in scene.gate.ended
    await until(lambda: scene.has_rows(1))
    assert (await scene.jobs.one())["locked_by"] == "foreign"
    await scene.jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    await scene.add_flow(100)  # the worker goes on
    await scene.jobs.until_gone()
    scene.assert_each_ran_once()


# -- the worker does not notice ------------------------------------------------------------------------------


async def test_an_ordinary_fetch_runs_nothing_again_that_the_server_has_freed_unnoticed(
    scene: LostScene,
) -> None:
    await scene.start(LONG)
    waiting = await scene.hold()
    (pid,) = await scene.end_sessions(is_hidden=True)
    held = await scene.ended_and_held(waiting)
    assert held
    await until(lambda: scene.fetch_one_more(waiting))
    scene.assert_each_ran_once()
    scene.gate.open_one(waiting)
    scene.proxy.link(pid).flows.set()
    await scene.until_completed()
    scene.assert_each_completed_once()


async def test_a_held_fetch_runs_nothing_again_that_the_server_has_freed_unnoticed(scene: LostScene) -> None:
    await scene.start(LONG)
    for _ in range(ROUNDS):
        waiting = await scene.hold(priority=1)
        (pid,) = await scene.end_sessions(is_hidden=True)
        scene.recorder.clear()
        rows = len(await scene.jobs.all())
        await scene.add_flow(1000)
        await until(partial(scene.has_rows, rows))
        # Chance decides which kind of fetch comes last; an ordinary one locks what the server has freed.
        kinds = {fetch.kind for fetch in scene.recorder.of(PoolJobsFetched)}
        was_held = "held" in kinds and await scene.is_free(waiting)
        scene.assert_each_ran_once()
        scene.gate.open_one(waiting)
        scene.proxy.link(pid).flows.set()
        await scene.jobs.until_gone()
        scene.assert_each_ran_once()
        if was_held:
            return
    raise AssertionError("an ordinary fetch came last each time")


async def test_a_fetch_whose_answer_is_late_runs_nothing_again_that_was_settled_in_between(
    scene: LostScene,
) -> None:
    runner = await scene.start(LONG)
    waiting = await scene.hold()
    single = await scene.jobs.add("work")  # so that the next fetch holds nothing
    await until(lambda: scene.times[single] > 0)
    await scene.end_sessions(is_hidden=True)
    scene.forget_watermarks(runner)
    fetching = scene.proxy.link(scene.fetch_session(runner))
    fetching.flows.clear()
    await scene.jobs.add("work")
    await until(lambda: scene.is_locked(waiting))  # the worker does not know that yet
    for link in scene.proxy.links:
        if link is not fetching:
            link.flows.set()
    await until(lambda: scene.has_noticed(runner))
    scene.gate.open_one(waiting)
    with suppress(TimeoutError):
        # timing: it must not come to that; what would come later is seen below
        await until(lambda: scene.is_gone(waiting), timeout=1.0)
    fetching.flows.set()
    await scene.until_completed()
    scene.assert_each_completed_once()


# -- everything at once --------------------------------------------------------------------------------------


async def test_all_sessions_are_lost_at_once_while_jobs_run(scene: LostScene) -> None:
    await scene.start(SHORT)
    waiting = await scene.hold()
    assert await terminate_workers(scene.jobs.connection) > 3
    await until(lambda: scene.is_locked(waiting))
    scene.gate.open_one(waiting)
    await scene.until_completed()
    scene.assert_each_completed_once()


async def test_two_batches_are_lost_at_once(scene: LostScene) -> None:
    await scene.add_flow(
        BACKLOG
    )  # a worker that starts beside a backlog opens a third session, for all other jobs
    await scene.start(LONG)
    await scene.jobs.until_gone()
    first, second = await scene.hold(), await scene.hold()
    await scene.end_sessions(2)
    scene.gate.open_one(first)
    scene.gate.open_one(second)
    await scene.until_completed()
    scene.assert_each_completed_once()


async def test_a_batch_is_lost_while_the_lease_has_lapsed(scene: LostScene) -> None:
    runner = await scene.start(SHORT, **BRIEF)
    pool: Any = runner._pool
    waiting = await scene.hold()
    await scene.proxy.go_away()
    await until(lambda: scene.is_lost(runner, waiting))
    await until(lambda: not pool.lease.is_open)
    scene.proxy.is_away = False
    await until(lambda: scene.is_locked(waiting))
    scene.gate.open_one(waiting)
    await scene.until_completed()
    scene.assert_each_completed_once()
    await scene.add_flow(100)  # the worker goes on
    await scene.jobs.until_gone()


# -- what becomes of a job whose batch is lost ---------------------------------------------------------------


async def test_a_job_fails_while_its_batch_is_lost(scene: LostScene) -> None:
    runner = await scene.start(SHORT)
    waiting = await scene.hold()
    await scene.proxy.go_away()
    await until(lambda: scene.is_lost(runner, waiting))
    scene.gate.open_one(waiting, ValueError("not today"))
    await until(lambda: not scene.gate.inside)
    scene.proxy.is_away = False
    await scene.recorder.wait_for(JobErrored)
    await until(lambda: scene.has_rows(1))
    row = await scene.jobs.one()
    assert (row["id"], row["attempts"], headline(row)) == (waiting, 1, "ValueError: not today")
    scene.assert_each_ran_once()


async def test_the_end_of_a_job_whose_batch_is_lost_is_kept(scene: LostScene, utils: WorkerUtils) -> None:
    runner = await scene.start(SHORT)
    waiting = await scene.hold(keep=True)
    await scene.proxy.go_away()
    await until(lambda: scene.is_lost(runner, waiting))
    scene.gate.open_one(waiting)
    scene.proxy.is_away = False
    assert await utils.wait_for(waiting, timeout=60) == "done"
    await scene.until_completed()
    scene.assert_each_completed_once()


async def test_a_job_is_cancelled_while_its_batch_is_lost(scene: LostScene, utils: WorkerUtils) -> None:
    runner = await scene.start(SHORT)
    waiting = await scene.hold()
    await scene.proxy.go_away()
    await until(lambda: scene.is_lost(runner, waiting))
    report = await utils.jobs.cancel(waiting)
    assert report.removed or report.asked
    scene.proxy.is_away = False
    await until(lambda: not scene.gate.inside)
    assert waiting not in scene.gate.ended
    await scene.jobs.until_gone()
    scene.assert_each_ran_once()


# -- stopping ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_forced", [False, True], ids=["graceful", "forced"])
async def test_a_worker_stops_although_a_batch_is_lost_and_the_database_is_away(
    scene: LostScene, monkeypatch: pytest.MonkeyPatch, is_forced: bool
) -> None:
    monkeypatch.setattr(shutdown, "LAST_WRITE", 1.0)
    runner = await scene.start(LONG, grace=1.0)
    waiting = await scene.hold()
    await scene.proxy.go_away()
    if not is_forced:
        scene.gate.open_one(waiting)
    with pytest.raises(WorkerStoppedError, match=r"the database is unavailable: [1-9]\d* jobs could"):
        await (runner.kill() if is_forced else runner.stop())
    assert worker_tasks() == []
    scene.assert_each_ran_once()


@pytest.mark.parametrize("is_forced", [False, True], ids=["graceful", "forced"])
async def test_a_worker_that_stops_writes_a_lost_batch_as_soon_as_the_database_is_back(
    scene: LostScene, is_forced: bool
) -> None:
    runner = await scene.start(LONG)
    waiting = await scene.hold()
    await scene.proxy.go_away()
    stopping = asyncio.ensure_future(runner.kill() if is_forced else runner.stop())
    if is_forced:
        await until(lambda: not scene.gate.inside)
    else:
        scene.gate.open_one(waiting)
    await until(lambda: scene.is_lost(runner, waiting))
    scene.proxy.is_away = False
    await stopping
    assert worker_tasks() == []
    scene.assert_each_ran_once()
    rows = await scene.jobs.all()
    assert [(row["id"], row["locked_at"], row["attempts"]) for row in rows] == (
        [(waiting, None, 0)] if is_forced else []
    )


@pytest.mark.parametrize("has_ended", [False, True], ids=["while it runs", "while it ends"])
async def test_a_program_that_ends_writes_the_outcomes_of_an_open_batch(
    scene: LostScene, has_ended: bool
) -> None:
    """As `asyncio.run` does it: every task is cancelled, also one that has only just been started."""
    runner = await scene.start(LONG)
    waiting = await scene.hold()
    if has_ended:
        await until(lambda: not is_a_batch_ending())  # the one before
        scene.gate.open_one(waiting)
        await until(is_a_batch_ending, every=0)
    others = asyncio.all_tasks() - scene.own_tasks
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    with pytest.raises(asyncio.CancelledError):
        await runner.wait()
    rows = await scene.jobs.all()
    assert [(row["id"], row["locked_at"], row["attempts"]) for row in rows] == (
        [] if has_ended else [(waiting, None, 0)]
    )
    scene.assert_each_ran_once()


END_OF_BATCH = "graphile-worker end of a held batch"


def is_a_batch_ending() -> bool:
    return any(task.get_name() == END_OF_BATCH for task in worker_tasks())


def worker_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("graphile-worker")]

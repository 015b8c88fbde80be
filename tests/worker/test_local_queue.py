"""The local queue: its modes, and what it does with the jobs that it holds."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.hooks.events import (
    JobStarted,
    JobSucceeded,
    LocalQueueGetJobsComplete,
    LocalQueueInit,
    LocalQueueRefetchDelayAbort,
    LocalQueueRefetchDelayExpired,
    LocalQueueRefetchDelayStart,
    LocalQueueReturnJobs,
    LocalQueueSetMode,
    PoolListenNotification,
)
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from support.working import SELDOM, Gate, Jobs, Workers, until, until_listening


def modes(recorder: EventRecorder) -> list[str]:
    return [event.new_mode for event in recorder.of(LocalQueueSetMode)]


def fetched(recorder: EventRecorder) -> list[int]:
    return [len(event.jobs) for event in recorder.of(LocalQueueGetJobsComplete)]


def announcements(recorder: EventRecorder) -> list[str]:
    payloads = [event.payload for event in recorder.of(PoolListenNotification)]
    return [payload for payload in payloads if json.loads(payload)["count"] > 0]


async def listening(recorder: EventRecorder, jobs: Jobs) -> None:
    """Wait until the worker receives notifications and has made its first fetch."""
    await until_listening(recorder, jobs.connection)
    await recorder.wait_for(LocalQueueGetJobsComplete)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def tasks(gate: Gate) -> dict[str, Any]:
    async def step(payload: Any) -> None:
        await gate(payload)

    return {"step": step}


@pytest.mark.compat("LQ1", "LQ2")
async def test_it_locks_a_batch_waits_while_it_lasts_and_then_polls(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await jobs.add_many("step", 5)
    runner = await workers.start(tasks, local_queue={"size": 3}, events=recorder.events)
    await gate.until_inside(1)
    assert recorder.count(LocalQueueInit) == 1
    assert modes(recorder) == ["POLLING", "WAITING"]
    assert fetched(recorder) == [3]
    locked = [row["locked_by"] is not None for row in await jobs.all()]
    assert locked == [True, True, True, False, False]
    for n in range(1, 3):
        gate.open()
        await until(lambda n=n: len(gate.started) == n + 1)  # type: ignore[misc]
    # The last of the batch was handed out: the next one is fetched at once, though the slot is busy.
    await until(lambda: modes(recorder) == ["POLLING", "WAITING", "POLLING", "WAITING"])
    assert fetched(recorder) == [3, 2]
    for _ in range(3):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert modes(recorder)[-1] == "POLLING"
    await workers.stop(runner)
    assert modes(recorder)[-1] == "RELEASED"
    assert [payload["n"] for payload in gate.ended] == [0, 1, 2, 3, 4]


@pytest.mark.compat("LQ2")
@pytest.mark.parametrize(("size", "concurrency"), [(1, 1), (2, 2), (2, 5)])
async def test_full_fetches_follow_each_other_at_once_even_if_nothing_is_left_to_cache(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, size: int, concurrency: int
) -> None:
    async def quick() -> None:
        await asyncio.sleep(0.001)  # timing: the next fetch begins meanwhile; more is as good

    await jobs.add_many("quick", 21)
    await workers.start(
        {"quick": quick}, local_queue={"size": size}, concurrency=concurrency, events=recorder.events
    )
    await jobs.until_gone()  # before it polls
    assert sum(fetched(recorder)) == 21


@pytest.mark.compat("LQ4")
async def test_a_job_announced_while_it_polls_is_fetched_at_once(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await workers.start(tasks, local_queue={"size": 3}, concurrency=2, events=recorder.events)
    await listening(recorder, jobs)
    await jobs.add("step")
    await gate.until_inside(1)
    await jobs.add("step")
    await gate.until_inside(2)


@pytest.mark.compat("LQ4")
async def test_announcements_are_ignored_while_jobs_wait_here(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await jobs.add_many("step", 3)
    await workers.start(tasks, local_queue={"size": 3}, events=recorder.events)
    await gate.until_inside(1)
    await listening(recorder, jobs)
    for n in range(5):
        await jobs.add("step", {"n": 10 + n})
    await until(lambda: len(announcements(recorder)) >= 5)
    assert fetched(recorder) == [3]


@pytest.mark.compat("RT1")
async def test_jobs_that_wait_too_long_are_returned_and_fetched_again_when_a_slot_asks(
    never_slow: None, jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    await jobs.add_many("step", 4)
    await workers.start(tasks, local_queue={"size": 4, "ttl": 10}, events=recorder.events, clock=clock)
    await gate.until_inside(1)
    await clock.advance(10)
    event = await recorder.wait_for(LocalQueueReturnJobs)
    assert [job.payload["n"] for job in event.jobs] == [1, 2, 3]
    assert modes(recorder) == ["POLLING", "WAITING", "TTL_EXPIRED"]
    rows = await jobs.all()
    assert [(row["attempts"], row["locked_by"] is None) for row in rows] == [(1, False)] + [(0, True)] * 3
    gate.open()
    await until(lambda: len(gate.started) == 2 and len(modes(recorder)) == 5)  # the slot asked
    assert modes(recorder)[3:] == ["POLLING", "WAITING"]
    assert [payload["n"] for payload in gate.started] == [0, 1]


async def test_the_time_to_live_counts_from_the_last_time_it_began_to_wait(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    await jobs.add_many("step", 20)
    await workers.start(tasks, local_queue={"size": 5, "ttl": 10}, events=recorder.events, clock=clock)
    for _ in range(20):
        await gate.until_inside(1)
        await clock.advance(1.5)
        gate.open()
    await jobs.until_gone()  # took several times the time to live
    assert recorder.count(LocalQueueReturnJobs) == 0
    assert "TTL_EXPIRED" not in modes(recorder)


async def test_returned_jobs_are_run_by_another_worker(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await jobs.add_many("step", 4)
    await workers.start(tasks, local_queue={"size": 4, "ttl": 0.1})
    await gate.until_inside(1)
    await workers.start(tasks, concurrency=3, events=recorder.events)
    await gate.until_inside(4)
    assert recorder.count(JobStarted) == 3


@pytest.mark.compat("LQ5")
@pytest.mark.parametrize("flags", [["no"], []])
async def test_forbidden_flags_bypass_it(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any, flags: list[str]
) -> None:
    await jobs.add_many("step", 3)
    await workers.start(tasks, local_queue={"size": 3}, forbidden_flags=flags, events=recorder.events)
    await gate.until_inside(1)
    assert recorder.of(LocalQueueInit, LocalQueueGetJobsComplete) == []
    assert sum(row["locked_by"] is not None for row in await jobs.all()) == 1


@pytest.mark.compat("LQ7")
async def test_a_stop_returns_prefetched_jobs_and_finishes_running_ones(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await jobs.add_many("step", 6)
    await jobs.add_many("step", 3, queue="serial")
    runner = await workers.start(tasks, local_queue={"size": 20}, concurrency=2, events=recorder.events)
    await gate.until_inside(2)
    stopping = asyncio.create_task(workers.stop(runner))
    event = await recorder.wait_for(LocalQueueReturnJobs)
    assert len(event.jobs) == 5
    gate.open()
    gate.open()
    await stopping
    assert modes(recorder)[-1] == "RELEASED"
    assert await jobs.locked() == 0
    assert await jobs.count() == 7
    assert {row["attempts"] for row in await jobs.all()} == {0}


@pytest.mark.compat("LQ6")
async def test_after_an_error_it_fetches_again(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    await workers.start(
        tasks,
        local_queue={"size": 3, "refetch_delay": {"duration": 0.02}},
        events=recorder.events,
    )
    await listening(recorder, jobs)
    await jobs.connection.execute("alter table graphile_worker._private_jobs rename to gone")
    try:
        await jobs.connection.execute("select pg_notify('jobs:insert', '{\"count\": 1000}')")
        await until(lambda: "worker:getJob:error" in recorder.names)
    finally:
        await jobs.connection.execute("alter table graphile_worker.gone rename to _private_jobs")
    await jobs.add("step")
    await gate.until_inside(1)


class TestRefetchDelay:
    """LQ3: a delay after fetches that found few jobs."""

    @pytest.mark.compat("LQ3")
    async def test_it_starts_after_an_empty_fetch_and_expires(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, tasks: Any
    ) -> None:
        await workers.start(
            tasks,
            local_queue={"size": 3, "refetch_delay": {"duration": 0.04, "max_abort_threshold": 10**6}},
            events=recorder.events,
        )
        event = await recorder.wait_for(LocalQueueRefetchDelayStart)
        assert (event.job_count, event.threshold) == (0, 0)
        assert 0.02 <= event.delay <= 0.06
        assert 0 < event.abort_threshold <= 10**6
        await recorder.wait_for(LocalQueueRefetchDelayExpired)
        await until(lambda: recorder.count(LocalQueueRefetchDelayExpired) >= 1)
        assert recorder.count(LocalQueueRefetchDelayAbort) == 0

    @pytest.mark.compat("LQ3")
    async def test_a_job_announced_during_the_delay_is_fetched_when_it_expires(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
    ) -> None:
        clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
        await workers.start(
            tasks,
            local_queue={"size": 3, "refetch_delay": {"duration": 0.3, "max_abort_threshold": 10**6}},
            events=recorder.events,
            clock=clock,
        )
        await listening(recorder, jobs)
        await jobs.add("step")
        await until(lambda: len(announcements(recorder)) == 1)
        assert fetched(recorder) == [0]
        assert recorder.count(LocalQueueRefetchDelayExpired) == 0
        await clock.advance(1)
        await gate.until_inside(1)
        assert recorder.count(LocalQueueRefetchDelayExpired) == 1
        assert recorder.count(LocalQueueRefetchDelayAbort) == 0

    @pytest.mark.compat("LQ3")
    async def test_enough_announcements_end_it_early(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
    ) -> None:
        await workers.start(
            tasks,
            local_queue={"size": 30, "refetch_delay": {"duration": SELDOM, "max_abort_threshold": 5}},
            events=recorder.events,
            concurrency=8,
        )
        await listening(recorder, jobs)
        await jobs.add_many("step", 5)
        event = await recorder.wait_for(LocalQueueRefetchDelayAbort)
        assert event.count >= event.abort_threshold
        await gate.until_inside(1)

    @pytest.mark.compat("LQ3")
    async def test_a_fetch_that_found_more_than_the_threshold_is_not_followed_by_it(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
    ) -> None:
        await jobs.add_many("step", 2)
        await workers.start(
            tasks,
            local_queue={"size": 5, "refetch_delay": {"duration": SELDOM, "threshold": 1}},
            events=recorder.events,
            concurrency=8,
        )
        await gate.until_inside(2)
        await recorder.wait_for(LocalQueueRefetchDelayStart)  # after the next, empty fetch
        assert fetched(recorder)[0] == 2
        assert [event.job_count for event in recorder.of(LocalQueueRefetchDelayStart)] == [0]

    async def test_a_once_run_has_no_delay(self, jobs: Jobs, workers: Workers) -> None:
        done: list[int] = []

        async def quick(payload: Any) -> None:
            done.append(payload["n"])

        await jobs.add_many("quick", 4, queue="serial")
        await workers.once({"quick": quick}, local_queue={"size": 9, "refetch_delay": {"duration": SELDOM}})
        assert done == [0, 1, 2, 3]


async def test_a_queue_that_goes_on_while_all_slots_are_busy_is_returned_in_time(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, gate: Gate, tasks: Any
) -> None:
    async def quick() -> None:
        await asyncio.sleep(0)

    await jobs.add("quick", queue="serial", priority=1)
    await jobs.add("quick", queue="serial", priority=2)
    await jobs.add("step", priority=3)
    await workers.start(
        {**tasks, "quick": quick}, local_queue={"size": 5, "ttl": 0.1}, events=recorder.events
    )
    await gate.until_inside(1)
    # Whether the second job of the queue ran before the slow one or is behind it, it does not stay locked.
    other = EventRecorder()
    await workers.start({"quick": quick}, events=other.events)
    await until(lambda: recorder.count(JobSucceeded) + other.count(JobSucceeded) == 2)

"""The client's clock in the place of the server's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.hooks.events import JobSucceeded, WorkerGetJobEmpty
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from support.working import IN_ONE_MODE, Jobs, Workers

START = datetime(2021, 1, 1, 1, tzinfo=UTC)
DUE = datetime(2021, 1, 1, 3, tzinfo=UTC)


@IN_ONE_MODE
@pytest.mark.compat("TIME-1")
async def test_with_local_time_a_job_waits_until_our_clock_says_so(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    clock = FakeClock(START)
    ran: list[datetime] = []

    async def job1(payload: Any, helpers: Any) -> None:
        ran.append(clock.now())
        later = await helpers.add_job("job2")
        assert later.run_at == clock.now()

    async def job2() -> None:
        pass

    await jobs.add("job1", run_at=DUE)
    tasks = {"job1": job1, "job2": job2}
    await workers.once(tasks, use_local_time=True, clock=clock)
    clock.jump(DUE - clock.now() - timedelta(milliseconds=1))
    await workers.once(tasks, use_local_time=True, clock=clock)
    assert ran == []
    clock.jump(timedelta(milliseconds=2))
    await workers.once(tasks, use_local_time=True, clock=clock)
    assert ran == [DUE + timedelta(milliseconds=1)]
    assert await jobs.count() == 0


@pytest.mark.compat("TIME-1")
async def test_a_running_worker_finds_the_job_when_our_clock_gets_there(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    if mode == "local queue":
        pytest.skip("its batch delay would have to be moved by the fake clock too")
    clock = FakeClock(START)

    async def job1() -> None:
        pass

    await jobs.add("job1", run_at=DUE)
    await workers.start(
        {"job1": job1}, use_local_time=True, clock=clock, poll_interval=60, events=recorder.events
    )
    await recorder.wait_for(WorkerGetJobEmpty)
    clock.jump(DUE - START + timedelta(milliseconds=1))
    await clock.advance(60)  # the poll interval
    await recorder.wait_for(JobSucceeded)


@IN_ONE_MODE
@pytest.mark.compat("TIME-2")
async def test_without_it_the_server_decides(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    async def job1() -> None:
        ran.append(1)

    await jobs.add("job1", run_at=DUE)
    await workers.once({"job1": job1}, use_local_time=False, clock=FakeClock(START))
    assert ran == [1]


@IN_ONE_MODE
@pytest.mark.compat("TIME-1")
async def test_the_back_off_goes_by_the_server_even_then(jobs: Jobs, workers: Workers) -> None:
    async def job1() -> None:
        raise RuntimeError("no")

    await jobs.add("job1", run_at=START - timedelta(hours=1))
    await workers.once({"job1": job1}, use_local_time=True, clock=FakeClock(START))
    row = await jobs.one()
    assert row["attempts"] == 1
    assert row["run_at"] > datetime.now(UTC)

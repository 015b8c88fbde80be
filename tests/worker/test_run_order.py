"""The order in which jobs start: by priority, then by run_at, across named queues and jobs without one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from graphile_worker.hooks.events import JobCompleted, PoolListenNotification
from graphile_worker.testing.recorder import EventRecorder
from support.properties import examples
from support.working import SCHEMA, Gate, Jobs, Workers, until, until_listening

NOW = datetime.now(UTC) - timedelta(hours=1)


@dataclass(frozen=True)
class Planned:
    """A job that a test adds."""

    number: int
    queue: str | None
    priority: int
    seconds: int

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the run order; jobs with equal places may run in any order."""
        return self.priority, self.seconds


@st.composite
def mixtures(draw: st.DrawFn) -> list[Planned]:
    """Jobs of some queues and of none, of few priorities and times, so that many are next to each other."""
    kinds = st.tuples(
        st.sampled_from([None, None, "a", "b", "c"]),
        st.sampled_from([-32768, -10, 0, 0, 10, 32767]),
        st.integers(0, 5),
    )
    drawn = draw(st.lists(kinds, min_size=2, max_size=25))
    return [Planned(number, *kind) for number, kind in enumerate(drawn)]


async def add_all(jobs: Jobs, plan: Sequence[Planned]) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}.add_job('step', json_build_object('n', n), queue_name => queue, priority => p, "
        "run_at => $1::timestamptz + s * interval '1 second') "
        "from unnest($2::integer[], $3::text[], $4::integer[], $5::integer[]) as planned (n, queue, p, s)",
        NOW,
        [job.number for job in plan],
        [job.queue for job in plan],
        [job.priority for job in plan],
        [job.seconds for job in plan],
    )


several_examples = examples(25, HealthCheck.function_scoped_fixture)


@pytest.mark.parametrize("pause", [0.0, 0.002])
@several_examples
@given(plan=mixtures())
async def test_one_slot_runs_everything_in_the_order_of_one_sorted_list(
    jobs: Jobs, workers: Workers, pause: float, plan: list[Planned]
) -> None:
    started: list[Planned] = []

    async def step(payload: Any) -> None:
        started.append(plan[payload["n"]])
        if pause:
            await asyncio.sleep(pause)

    await add_all(jobs, plan)
    await workers.once({"step": step}, concurrency=1, prefetch=0)
    assert [job.place for job in started] == sorted(job.place for job in plan)


@several_examples
@given(plan=mixtures(), seed=st.integers(0, 2**32), slots=st.integers(1, 4))
async def test_a_free_slot_takes_the_first_of_all_jobs_that_can_run(
    jobs: Jobs, workers: Workers, plan: list[Planned], seed: int, slots: int
) -> None:
    choose = Random(seed).choice
    running: dict[int, asyncio.Future[None]] = {}
    started: list[Planned] = []

    async def step(payload: Any) -> None:
        job = plan[payload["n"]]
        started.append(job)
        running[job.number] = asyncio.get_running_loop().create_future()
        await running[job.number]

    def candidates() -> list[Planned]:
        busy = {plan[number].queue for number in running} - {None}
        return [job for job in plan if job not in started and job.queue not in busy]

    await add_all(jobs, plan)
    runner = await workers.start({"step": step}, concurrency=slots, prefetch=0)
    try:
        await until(lambda: len(running) == slots or not candidates())
        assert [job.place for job in started] == sorted(job.place for job in started)
        while running:
            running.pop(choose(sorted(running))).set_result(None)
            if expected := candidates():
                count = len(started)
                await until(lambda count=count: len(started) > count)  # type: ignore[misc]
                assert started[count].place == min(job.place for job in expected), started
    finally:
        await runner.kill()
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    assert len(started) == len(plan)


async def test_slow_jobs_are_not_prefetched_and_keep_the_order_of_one_sorted_list(
    jobs: Jobs, workers: Workers
) -> None:
    started: list[str] = []

    async def step(payload: Any) -> None:
        started.append(payload["kind"])
        await asyncio.sleep(0.002)  # longer than the prefetch

    for _ in range(15):
        await jobs.add("step", {"kind": "queued"}, queue="a", priority=-10)
        await jobs.add("step", {"kind": "plain"}, priority=10)
    await workers.once({"step": step}, concurrency=1, prefetch=0.001)
    assert started == ["queued"] * 15 + ["plain"] * 15


@pytest.mark.parametrize("slots", [1, 3])
async def test_an_urgent_job_waits_for_no_job_that_was_locked_after_it_was_added(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, slots: int
) -> None:
    started: list[Any] = []

    async def step(payload: Any) -> None:
        started.append(payload.get("n"))
        await asyncio.sleep(0)

    await workers.start({"step": step}, concurrency=slots, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await jobs.add_many("step", 20_000)
    await until(lambda: len(started) > 500)
    async with jobs.connection.transaction():
        # No fetch is in flight now, no batch is held, and none begins before the urgent job is visible.
        await jobs.connection.execute(f"lock table {SCHEMA}._private_jobs in exclusive mode")
        await jobs.add("step", {"n": "urgent"}, priority=-1)
        rows = await jobs.connection.fetch(
            f"select (payload ->> 'n')::integer from {SCHEMA}._private_jobs where locked_at is null"
            " and priority = 0"
        )
        unlocked = {row[0] for row in rows}
    assert unlocked  # otherwise it was the last job, and this proves nothing
    await until(lambda: "urgent" in started)
    assert not unlocked & set(started[: started.index("urgent")])


async def test_a_queue_that_goes_on_does_not_pass_jobs_that_come_first(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload["name"])

    await jobs.add("step", {"name": "head of the queue"}, queue="a", priority=-5)
    await jobs.add("step", {"name": "first"}, run_at=NOW)
    await jobs.add("step", {"name": "second"}, run_at=NOW + timedelta(seconds=1))
    await jobs.add("step", {"name": "next of the queue"}, queue="a", priority=10)
    await workers.start({"step": step}, concurrency=1, local_queue={"size": 4}, events=recorder.events)
    await gate.until_inside(1)
    for done in range(1, 5):
        gate.open()
        await recorder.wait_for(JobCompleted, count=done)
    assert gate.started == ["head of the queue", "first", "second", "next of the queue"]


async def test_a_job_announced_while_a_queue_goes_on_is_not_forgotten(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, database_url: str
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload["name"])

    for name in ("head of the queue", "next of the queue"):
        await jobs.add("step", {"name": name}, queue="a")
    await workers.start({"step": step}, concurrency=2, prefetch=0, events=recorder.events)
    await gate.until_inside(1)
    await until_listening(recorder, jobs.connection)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():  # the write that ends the first job has to wait
            await other.execute(f"select from {SCHEMA}._private_jobs where locked_at is not null for update")
            gate.open()
            await until(lambda: is_waiting_for_a_lock(jobs))
            received = recorder.count(PoolListenNotification)
            await jobs.add("step", {"name": "announced"})
            await until(lambda: recorder.count(PoolListenNotification) > received)
    finally:
        await other.close(timeout=60)
    await gate.until_inside(2)  # neither waits for the end of the other
    gate.open()
    gate.open()
    await jobs.until_gone()


async def is_waiting_for_a_lock(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval(
        "select count(*) > 0 from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'"
    )

"""Runs that end when nothing is left to do: what is called, what stays, and how."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.testing.results import EventRecorder
from support.working import IN_ONE_MODE, SCHEMA, Gate, Jobs, Workers, headline, until


class Calls:
    """Tasks that note with what they were called."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []

    async def __call__(self, payload: Any) -> None:
        self.payloads.append(payload)


def task_of(calls: Any) -> Any:
    async def job3(payload: Any) -> None:
        await calls(payload)

    return job3


@pytest.mark.compat("ONE-1")
async def test_a_job_in_a_queue_runs_once_and_only_its_task_is_called(jobs: Jobs, workers: Workers) -> None:
    job3, job2 = Calls(), Calls()
    await jobs.add("job3", {"a": 1}, queue="myqueue")
    before = await jobs.one()
    assert abs(before["run_at"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert [(row["queue_name"], row["job_count"], row["locked_at"]) for row in await jobs.queues()] == [
        ("myqueue", 1, None)
    ]
    await workers.once({"job3": task_of(job3), "job2": task_of(job2)})
    assert job3.payloads == [{"a": 1}]
    assert job2.payloads == []
    assert await jobs.count() == 0
    assert await jobs.locked() == 0


async def server_now(jobs: Jobs) -> datetime:
    return await jobs.connection.fetchval("select clock_timestamp()")


@IN_ONE_MODE
@pytest.mark.compat("ONE-2", "ONE-3", "FA1")
async def test_a_failed_job_waits_longer_each_time_and_is_not_run_before(
    jobs: Jobs, workers: Workers
) -> None:
    errors: list[str] = []

    async def job3() -> None:
        errors.append(f"TEST_ERROR{len(errors)}")
        raise RuntimeError(errors[-1])

    await jobs.add("job3", {"a": 1}, queue="myqueue")
    for attempt, seconds in ((1, 2.718), (2, 7.389)):
        start = await server_now(jobs)
        await workers.once({"job3": job3})
        end = await server_now(jobs)
        row = await jobs.one()
        assert (row["attempts"], row["max_attempts"]) == (attempt, 25)
        assert headline(row) == f"RuntimeError: TEST_ERROR{attempt - 1}"
        assert start + timedelta(seconds=seconds) <= row["run_at"] <= end + timedelta(seconds=seconds + 0.001)
        assert (row["locked_at"], row["locked_by"]) == (None, None)
        assert row["updated_at"] == row["created_at"]
        assert [(q["queue_name"], q["job_count"], q["locked_at"]) for q in await jobs.queues()] == [
            ("myqueue", 1, None)
        ]
        await jobs.postpone()
        await workers.once({"job3": job3})  # not due yet
        assert len(errors) == attempt
        await jobs.make_due()


@IN_ONE_MODE
@pytest.mark.compat("ONE-4")
async def test_a_job_for_later_waits_until_it_is_due(jobs: Jobs, workers: Workers) -> None:
    calls = Calls()
    await jobs.add("job3", {"a": "right"}, run_at=await server_now(jobs) + timedelta(seconds=30))
    await workers.once({"job3": task_of(calls)})
    await workers.once({"job3": task_of(calls)})
    assert calls.payloads == []
    await jobs.make_due()
    await workers.once({"job3": task_of(calls)})
    assert calls.payloads == [{"a": "right"}]
    assert await jobs.count() == 0
    assert await jobs.queues() == []


@IN_ONE_MODE
@pytest.mark.compat("ONE-5")
async def test_a_waiting_job_is_replaced_through_its_key(jobs: Jobs, workers: Workers) -> None:
    calls = Calls()
    first = await jobs.add(
        "job3", {"a": "wrong"}, key="abc", run_at=await server_now(jobs) + timedelta(minutes=1)
    )
    now = await server_now(jobs)
    second = await jobs.add("job3", {"a": "right"}, key="abc", run_at=now)
    row = await jobs.one()
    assert first == second == row["id"]
    assert row["run_at"] == now
    await workers.once({"job3": task_of(calls)})
    assert calls.payloads == [{"a": "right"}]


@IN_ONE_MODE
@pytest.mark.compat("ONE-6")
async def test_a_key_can_be_used_again_after_its_job_ran(jobs: Jobs, workers: Workers) -> None:
    calls = Calls()
    ids = []
    for order in ("first", "second"):
        ids.append(await jobs.add("job3", {"a": order}, key="abc"))
        await workers.once({"job3": task_of(calls)})
    assert calls.payloads == [{"a": "first"}, {"a": "second"}]
    assert ids[0] != ids[1]
    assert await jobs.count() == 0


@pytest.mark.compat("ONE-7")
async def test_a_keyed_job_added_while_it_runs_is_run_again_by_the_same_run(
    jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()
    await jobs.add("job3", {"a": "first"}, key="abc")
    running = asyncio.create_task(workers.once({"job3": task_of(gate)}))
    await gate.until_inside(1)
    await jobs.add("job3", {"a": "second"}, key="abc")
    assert await jobs.count() == 2
    gate.open()
    await gate.until_inside(1)
    await until(lambda: len(gate.started) == 2)
    gate.open()
    await running
    assert gate.ended == [{"a": "first"}, {"a": "second"}]
    assert await jobs.count() == 0


@IN_ONE_MODE
@pytest.mark.compat("ONE-8")
async def test_adding_a_failed_keyed_job_again_gives_it_a_fresh_start(jobs: Jobs, workers: Workers) -> None:
    succeeded: list[Any] = []

    async def job3(payload: Any) -> None:
        if not payload["succeed"]:
            raise RuntimeError("fail")
        succeeded.append(payload)

    first = await jobs.add("job3", {"succeed": False}, key="abc")
    await workers.once({"job3": job3})
    row = await jobs.one()
    assert (row["attempts"], headline(row)) == (1, "RuntimeError: fail")
    assert row["run_at"] > await server_now(jobs)
    await workers.once({"job3": job3})
    assert (await jobs.one())["attempts"] == 1
    assert await jobs.add("job3", {"succeed": True}, key="abc") == first
    row = await jobs.one()
    assert (row["attempts"], row["last_error"]) == (0, None)
    await workers.once({"job3": job3})
    assert succeeded == [{"succeed": True}]
    assert await jobs.count() == 0


@pytest.mark.compat("ONE-9")
async def test_adding_with_a_key_again_replaces_every_value(jobs: Jobs) -> None:
    soon = await server_now(jobs) + timedelta(minutes=1)
    first = await jobs.add("job1", {"a": 1}, key="abc", queue="queue1", run_at=soon, max_attempts=10)
    assert await jobs.add("job1", key="abc") == first
    row = await jobs.one()
    assert (row["max_attempts"], json.loads(row["payload"]), row["queue_name"], row["attempts"]) == (
        25,
        {},
        None,
        0,
    )
    later = await server_now(jobs) + timedelta(minutes=3)
    changed = await jobs.add("job2", {"a": 2}, key="abc", queue="queue2", run_at=later, max_attempts=100)
    row = await jobs.one()
    assert changed == first
    assert (row["identifier"], json.loads(row["payload"]), row["queue_name"], row["max_attempts"]) == (
        "job2",
        {"a": 2},
        "queue2",
        100,
    )
    assert row["run_at"] == later


@IN_ONE_MODE
@pytest.mark.compat("ONE-10")
async def test_a_waiting_job_can_be_removed_through_its_key(jobs: Jobs, workers: Workers) -> None:
    calls = Calls()
    await jobs.add("job3", key="abc")
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('abc')")
    assert await jobs.count() == 0
    await workers.once({"job3": task_of(calls)})
    assert calls.payloads == []


@IN_ONE_MODE
@pytest.mark.compat("ONE-11")
async def test_a_running_job_that_is_removed_ends_and_does_not_run_again(
    jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()
    await jobs.add("job3", key="abc")
    running = asyncio.create_task(workers.once({"job3": task_of(gate)}))
    await gate.until_inside(1)
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('abc')")
    assert await jobs.count() == 1
    gate.open()
    await running
    await workers.once({"job3": task_of(gate)})
    assert len(gate.ended) == 1
    assert await jobs.count() == 0


@pytest.mark.compat("ONE-12")
async def test_while_a_job_runs_its_queue_is_locked_by_the_pool(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    await jobs.add("job3", {"a": 1}, queue="myqueue")
    start = await server_now(jobs)
    running = asyncio.create_task(workers.once({"job3": task_of(gate)}))
    await gate.until_inside(1)
    end = await server_now(jobs)
    row, queue = await jobs.one(), (await jobs.queues())[0]
    assert row["attempts"] == 1
    assert row["locked_by"] == queue["locked_by"]
    assert row["locked_by"].startswith("otpool-")
    assert len(row["locked_by"]) == len("otpool-") + 18
    assert start <= queue["locked_at"] <= end
    assert not running.done()
    gate.open()
    await running
    assert len(gate.ended) == 1
    assert await jobs.count() == 0
    assert await jobs.locked() == 0


@pytest.mark.compat("ONE-13")
async def test_jobs_of_different_queues_run_side_by_side_in_different_runs(
    jobs: Jobs, workers: Workers, mode: str
) -> None:
    if mode == "local queue":
        pytest.skip("a local queue locks jobs ahead, so one run may hold the jobs of several")
    gate = Gate()
    for n in range(5):
        await jobs.add("job3", {"a": n}, queue=f"queue_{n}")
    runs = [asyncio.create_task(workers.once({"job3": task_of(gate)})) for _ in range(5)]
    await gate.until_inside(5)
    assert len({queue["locked_by"] for queue in await jobs.queues()}) == 5
    for _ in range(5):
        gate.open()
    await asyncio.gather(*runs)
    assert gate.most_at_once == 5
    assert await jobs.count() == 0


@pytest.mark.compat("ONE-14")
async def test_one_run_works_one_job_after_the_other_to_the_last(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    for n in range(5):
        await jobs.add("job3", {"a": n})
    running = asyncio.create_task(workers.once({"job3": task_of(gate)}))
    for _ in range(5):
        await gate.until_inside(1)
        assert not running.done()
        gate.open()
    await running
    assert gate.most_at_once == 1
    assert len(gate.ended) == 5
    assert await jobs.count() == 0


@pytest.mark.compat("ONE-15", "EXT-13")
async def test_several_runs_on_one_queue_never_run_two_jobs_at_once(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    for n in range(5):
        await jobs.add("job3", {"a": n}, queue="serial")
    runs = [asyncio.create_task(workers.once({"job3": task_of(gate)})) for _ in range(3)]
    for n in range(5):
        await until(lambda n=n: len(gate.started) == n + 1)  # type: ignore[misc]
        gate.open()
    await asyncio.gather(*runs)
    assert gate.most_at_once == 1
    assert [payload["a"] for payload in gate.ended] == [0, 1, 2, 3, 4]
    assert await jobs.count() == 0
    assert await jobs.locked() == 0


@pytest.mark.compat("EXT-13")
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_once_run_drains_a_serial_queue_completely(
    jobs: Jobs, workers: Workers, concurrency: int
) -> None:
    calls = Calls()
    await jobs.add_many("job3", 30, queue="serial")
    await jobs.add_many("job3", 5)
    await workers.once({"job3": task_of(calls)}, concurrency=concurrency)
    assert len(calls.payloads) == 35
    assert await jobs.count() == 0


async def test_jobs_that_jobs_add_are_run_by_the_same_run(jobs: Jobs, workers: Workers) -> None:
    depths: list[int] = []

    async def descend(payload: Any, helpers: Any) -> None:
        depths.append(payload["left"])
        if payload["left"]:
            await helpers.add_job("descend", {"left": payload["left"] - 1}, queue_name="down")

    await jobs.add("descend", {"left": 6})
    await workers.once({"descend": descend}, concurrency=2)
    assert depths == [6, 5, 4, 3, 2, 1, 0]
    assert await jobs.count() == 0


async def test_a_run_without_anything_to_do_ends_at_once_and_makes_its_tasks_known(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await workers.once({"job3": task_of(Calls()), "job4": task_of(Calls())}, events=recorder.events)
    known = await jobs.connection.fetch(f"select identifier from {SCHEMA}._private_tasks order by 1")
    assert [row["identifier"] for row in known] == ["job3", "job4"]
    assert (recorder.names[0], recorder.names[-1]) == ("pool:create", "stop")


@IN_ONE_MODE
async def test_jobs_of_other_tasks_are_left_alone(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("somebody elses", queue="serial")
    calls = Calls()
    await jobs.add("job3", queue="serial")
    await workers.once({"job3": task_of(calls)})
    assert len(calls.payloads) == 1
    row = await jobs.one()
    assert (row["identifier"], row["attempts"], row["locked_by"]) == ("somebody elses", 0, None)


@IN_ONE_MODE
@pytest.mark.compat("RUN-9")
async def test_only_runnable_jobs_are_done(jobs: Jobs, workers: Workers) -> None:
    calls = Calls()
    for n in range(3):
        await jobs.add("job3", {"run": n})
    later = await server_now(jobs) + timedelta(hours=1)
    selection = [await jobs.add("job3", {"a": n}, run_at=later) for n in range(1, 6)]
    table = f"{SCHEMA}._private_jobs"
    await jobs.connection.execute(
        f"update {table} set attempts = max_attempts, last_error = 'Failed forever' where id = $1",
        selection[0],
    )
    await jobs.connection.execute(
        f"update {table} set locked_by = 'test', locked_at = now() where id = $1", selection[2]
    )
    for n in range(3, 6):
        await jobs.add("job3", {"run": n})
    await workers.once({"job3": task_of(calls)})
    assert sorted(payload["run"] for payload in calls.payloads) == [0, 1, 2, 3, 4, 5]
    assert [row["id"] for row in await jobs.all()] == selection


@IN_ONE_MODE
async def test_a_due_job_that_has_no_attempts_left_stays(jobs: Jobs, workers: Workers) -> None:
    calls: list[Any] = []

    async def job3() -> None:
        calls.append(1)
        raise RuntimeError("no")

    await jobs.add("job3", max_attempts=1)
    await workers.once({"job3": job3})
    await jobs.make_due()
    await workers.once({"job3": job3})
    row = await jobs.one()
    assert (len(calls), row["attempts"], row["is_available"]) == (1, 1, False)
    assert headline(row) == "RuntimeError: no"

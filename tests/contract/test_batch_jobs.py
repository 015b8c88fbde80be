"""Jobs whose payload is an array: each item may succeed or fail by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphile_worker.errors import BatchFailureError
from graphile_worker.hooks.events import JobErrored, JobSucceeded
from graphile_worker.testing.recorder import EventRecorder
from support.working import Jobs, Workers, headline

ITEMS = [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.compat("BAT-1")
async def test_array_payloads_of_one_key_become_one_job(jobs: Jobs) -> None:
    for item in ITEMS:
        await jobs.add("job1", [item], key="mykey")
    row = await jobs.one()
    assert json.loads(row["payload"]) == ITEMS
    assert (row["attempts"], row["key"]) == (0, "mykey")
    assert await jobs.queues() == []


@pytest.mark.compat("BAT-2")
async def test_a_task_that_returns_nothing_completes_the_whole_batch(jobs: Jobs, workers: Workers) -> None:
    given: list[Any] = []

    async def job1(payload: Any) -> None:
        given.append(payload)

    for item in ITEMS:
        await jobs.add("job1", [item], key="mykey")
    await workers.once({"job1": job1})
    assert given == [ITEMS]
    assert await jobs.count() == 0


@pytest.mark.compat("BAT-3")
async def test_a_task_that_raises_keeps_the_whole_batch(jobs: Jobs, workers: Workers) -> None:
    async def job1(payload: Any) -> None:
        raise RuntimeError("all of it")

    await jobs.add("job1", ITEMS)
    await workers.once({"job1": job1})
    row = await jobs.one()
    assert json.loads(row["payload"]) == ITEMS
    assert (row["attempts"], headline(row)) == (1, "RuntimeError: all of it")


async def _later(item: Any) -> Any:
    if item["a"] != 2:
        raise RuntimeError(f"item {item['a']} failed")
    return item


@pytest.mark.compat("BAT-4", "BAT-5")
@pytest.mark.parametrize("kind", ["async", "plain", "exceptions"])
async def test_only_failed_items_stay_in_the_payload(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, kind: str
) -> None:
    async def in_coroutine(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    def in_thread(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    async def exceptions(payload: Any) -> list[Any]:
        return [None if item["a"] == 2 else RuntimeError(f"item {item['a']} failed") for item in payload]

    task = {"async": in_coroutine, "plain": in_thread, "exceptions": exceptions}[kind]
    await jobs.add("job1", ITEMS, queue="queue")
    await workers.once({"job1": task}, events=recorder.events)
    row = await jobs.one()
    assert json.loads(row["payload"]) == [{"a": 1}, {"a": 3}]
    assert row["attempts"] == 1
    assert [line.partition(" at ")[0] for line in row["last_error"].split("\n")] == [
        "Batch failures:",
        "RuntimeError: item 1 failed",
        "RuntimeError: item 3 failed",
    ]
    assert await jobs.locked() == 0
    (event,) = recorder.of(JobErrored)
    assert isinstance(event.error, BatchFailureError)
    assert [str(error) for error in event.batch_job_errors or ()] == ["item 1 failed", "item 3 failed"]


@pytest.mark.compat("BJ3")
async def test_a_list_of_another_length_completes_the_job(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def job1(payload: Any) -> list[Any]:
        return [_later({"a": 1})]

    await jobs.add("job1", ITEMS)
    await workers.once({"job1": job1}, events=recorder.events)
    assert await jobs.count() == 0
    assert recorder.count(JobSucceeded) == 1


@pytest.mark.parametrize("result", [42, "text", object(), {"a": 1}, [], range(3)])
async def test_whatever_else_a_task_returns_is_success(jobs: Jobs, workers: Workers, result: Any) -> None:
    async def job1(payload: Any) -> Any:
        return result

    await jobs.add("job1", ITEMS)
    await jobs.add("job1", {"a": 1})
    await workers.once({"job1": job1})
    assert await jobs.count() == 0

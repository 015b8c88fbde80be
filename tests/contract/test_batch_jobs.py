"""Jobs whose payload is an array: each item may succeed or fail by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphile_worker.errors import BatchFailureError
from graphile_worker.hooks.events import JobErrored, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.working import Jobs, Workers, headline

ITEMS = [{"a": 1}, {"a": 2}, {"a": 3}]


async def _later(item: Any) -> Any:
    if item["a"] != 2:
        raise RuntimeError(f"item {item['a']} failed")
    return item


@pytest.mark.compat("BAT-1")
async def test_array_payloads_of_one_key_become_one_job(jobs: Jobs) -> None:
    for item in ITEMS:
        await jobs.add("job1", [item], key="mykey")
    row = await jobs.one()
    assert json.loads(row["payload"]) == ITEMS
    assert (row["attempts"], row["key"]) == (0, "mykey")
    assert await jobs.queues() == []


@pytest.mark.compat("BAT-2", "BAT-3", "BAT-4", "BAT-5", "BJ3")
async def test_only_failed_items_stay_in_the_payload(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    given: list[Any] = []

    async def nothing(payload: Any) -> None:
        given.append(payload)

    async def too_few(payload: Any) -> list[Any]:
        return [None]

    async def raises(payload: Any) -> None:
        raise RuntimeError("all of it")

    async def some(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    def some_in_thread(payload: Any) -> list[Any]:
        return [_later(item) for item in payload]

    for item in ITEMS:
        await jobs.add("nothing", [item], key="mykey")
    await jobs.add("too_few", ITEMS)
    await jobs.add("raises", ITEMS, max_attempts=1)  # a retry may be due within the run
    await jobs.add("some", ITEMS, queue="queue", max_attempts=1)
    await jobs.add("some_in_thread", ITEMS, max_attempts=1)
    await workers.once([nothing, too_few, raises, some, some_in_thread], events=recorder.events)
    assert given == [ITEMS]
    rows = {row["identifier"]: row for row in await jobs.all()}
    assert rows.keys() == {"raises", "some", "some_in_thread"}
    assert {row["attempts"] for row in rows.values()} == {1}
    assert json.loads(rows["raises"]["payload"]) == ITEMS
    assert headline(rows["raises"]) == "RuntimeError: all of it"
    for name in ("some", "some_in_thread"):
        assert json.loads(rows[name]["payload"]) == [{"a": 1}, {"a": 3}]
        assert [line.partition(" at ")[0] for line in rows[name]["last_error"].split("\n")] == [
            "Batch failures:",
            "RuntimeError: item 1 failed",
            "RuntimeError: item 3 failed",
        ]
    assert await jobs.locked() == 0
    assert {event.job.task_identifier for event in recorder.of(JobSucceeded)} == {"nothing", "too_few"}
    events = [event for event in recorder.of(JobErrored) if event.job.task_identifier != "raises"]
    for event in events:
        assert isinstance(event.error, BatchFailureError)
        assert [str(error) for error in event.batch_job_errors or ()] == ["item 1 failed", "item 3 failed"]
    assert len(events) == 2

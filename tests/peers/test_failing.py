"""What fails in one runtime goes on in another: the same back-off, and only the failed items of a batch."""

from __future__ import annotations

import json
import math
from datetime import timedelta

from peers.directions import of_three, of_two
from peers.protocol import Peers
from peers.shared import Shared

SLACK = timedelta(milliseconds=2)  # exp() is rounded


@of_three("{} fails", "{} fails again", "{} succeeds")
async def test_back_off(peers: Peers, shared: Shared, direction: tuple[str, str, str]) -> None:
    job_id = await (await peers.start(direction[0])).add("echo", {"gate": "go", "fail_before": 3})
    for attempt, runtime in enumerate(direction[:2], 1):
        async with peers.worker(runtime):
            await shared.until_runs(attempt, ended=False)
            before = await shared.now()
            await shared.open("go")
            row = await shared.until_failed(job_id, attempt)
            delay = timedelta(seconds=math.exp(attempt))
            assert before + delay - SLACK <= row["run_at"] <= await shared.now() + delay + SLACK
            assert f"attempt {attempt} fails" in row["last_error"]
        await shared.close("go")
        await shared.make_due()
    await shared.open("go")
    async with peers.worker(direction[2]):
        await shared.until_gone()
    assert [(run.runtime, run.attempt, run.outcome) for run in await shared.runs()] == [
        (direction[0], 1, "failed"),
        (direction[1], 2, "failed"),
        (direction[2], 3, "done"),
    ]


@of_two("the last attempt in {}", "{} leaves it")
async def test_last_attempt(peers: Peers, shared: Shared, direction: tuple[str, str]) -> None:
    first, second = direction
    client = await peers.start(first)
    job_id = await client.add("echo", {"fail_before": 99}, max_attempts=1, queue_name="q")
    async with peers.worker(first):
        await shared.until_failed(job_id, 1)
    await shared.make_due()
    async with peers.worker(second):
        await shared.until_gone(await client.add("echo", {}, queue_name="q"))
    assert [(run.runtime, run.outcome) for run in await shared.runs()] == [
        (first, "failed"),
        (second, "done"),
    ]


@of_three("{} adds", "{} runs all items", "{} those that failed")
async def test_batch(peers: Peers, shared: Shared, direction: tuple[str, str, str]) -> None:
    adder, first, second = direction
    client = await peers.start(adder)
    job_id = await client.add("batch", [{"n": 1}, {"n": 2, "fail_before": 2}], job_key="b", queue_name="q")
    more = [{"n": 3}, {"n": 4, "fail_before": 2}]
    assert await client.add("batch", more, job_key="b", queue_name="q") == job_id, "items are appended"
    async with peers.worker(first):
        row = await shared.until_failed(job_id, 1)
        assert [item["n"] for item in json.loads(row["payload"])] == [2, 4]
    await shared.make_due()
    async with peers.worker(second):
        await shared.until_gone()
    runs = await shared.runs()
    assert [(run.runtime, [item["n"] for item in run.payload], run.outcome) for run in runs] == [
        (first, [1, 2, 3, 4], "failed"),
        (second, [2, 4], "done"),
    ]

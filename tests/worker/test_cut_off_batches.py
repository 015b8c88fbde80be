"""A batch job whose key is reused while it runs: arrays are joined, not replaced, so no item is lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from graphile_worker.hooks.events import JobErrored, JobFailed, JobRecovered, WorkerRecovered
from graphile_worker.testing.results import EventRecorder
from recovery.dead import Graveyard
from support.working import SCHEMA, Gate, Jobs, Workers, until


async def add_one(jobs: Jobs, payload: Any) -> None:
    await jobs.add("batch", payload, key="k")


async def add_many(jobs: Jobs, payload: Any) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}.add_jobs(array[row('batch', $1::json, null, null, null, 'k', null, null)"
        f"::{SCHEMA}.job_spec])",
        json.dumps(payload),
    )


ADDING = pytest.mark.parametrize("add", [add_one, add_many], ids=["add_job", "add_jobs"])


@ADDING
async def test_items_that_fail_are_retried_although_others_were_added(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, add: Any
) -> None:
    gate = Gate()
    done: Counter[int] = Counter()
    failing = {2}

    async def batch(payload: list[int]) -> Any:
        if 1 in payload:
            await gate(payload)
        done.update(item for item in payload if item not in failing)
        return [ValueError(f"not {item}") if item in failing else None for item in payload]

    await jobs.add("batch", [1, 2], key="k")
    await workers.start({"batch": batch}, concurrency=2, events=recorder.events)
    await gate.until_inside(1)
    await add(jobs, [3])
    await until(lambda: 3 in done)
    gate.open()
    assert (await recorder.wait_for(JobErrored)).will_retry
    row = await jobs.one()
    assert (json.loads(row["payload"]), row["is_available"], row["attempts"]) == ([2], True, 1)
    failing.clear()
    await jobs.make_due()
    await jobs.connection.execute("select pg_notify('jobs:insert', '')")
    await jobs.until_gone()
    assert done == Counter({1: 1, 2: 1, 3: 1})
    assert recorder.count(JobFailed) == 0


@ADDING
@pytest.mark.parametrize("attempts", [1, 25], ids=["first attempt", "last attempt"])
async def test_items_of_a_dead_worker_are_run_by_another(
    jobs: Jobs, connection: Any, workers: Workers, recorder: EventRecorder, add: Any, attempts: int
) -> None:
    graveyard = Graveyard(connection)
    old = await jobs.add("batch", [1, 2], key="k")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", old, attempts=attempts)
    await add(jobs, [3])
    done: list[Any] = []

    async def batch(payload: list[int]) -> None:
        done.append(payload)

    await workers.start({"batch": batch}, events=recorder.events, sweep_interval=0.2)
    await until(lambda: sorted(done) == [[1, 2], [3]])
    assert recorder.of(JobRecovered)[0].is_returned
    assert list(recorder.of(WorkerRecovered)[0].returned) == [old]


async def test_a_removed_batch_does_not_come_back(
    jobs: Jobs, connection: Any, workers: Workers, recorder: EventRecorder
) -> None:
    graveyard = Graveyard(connection)
    old = await jobs.add("batch", [1, 2], key="k")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", old)
    await connection.execute(f"select {SCHEMA}.remove_job('k')")
    await jobs.add("batch", [3], key="k")
    done: list[Any] = []

    async def batch(payload: list[int]) -> None:
        done.append(payload)

    await workers.start({"batch": batch}, events=recorder.events, sweep_interval=0.2)
    recovered = await recorder.wait_for(WorkerRecovered)
    assert (list(recovered.returned), list(recovered.failed)) == ([], [old])
    recovered_job = recorder.of(JobRecovered)[0]
    assert not recovered_job.is_returned
    assert (
        recovered_job.last_error
        == "Not run again: its worker died after its key had been used again or removed"
    )
    await jobs.until_left(old)
    assert done == [[3]]


@ADDING
@pytest.mark.parametrize(("old", "new"), [({"a": 1}, [1]), ([1], {"a": 1}), ({"a": 1}, {"a": 2})], ids=str)
async def test_anything_else_is_replaced_and_not_retried(
    jobs: Jobs, connection: Any, add: Any, old: Any, new: Any
) -> None:
    first = await jobs.add("batch", old, key="k")
    await Graveyard(connection).give("pool", first)
    await add(jobs, new)
    row = (await jobs.all())[0]
    assert (row["id"], row["attempts"], row["key"]) == (first, row["max_attempts"], None)


async def test_a_permanently_failed_batch_stays_so(jobs: Jobs, connection: Any) -> None:
    first = await jobs.add("batch", [1], key="k", max_attempts=2)
    await connection.execute(f"update {SCHEMA}._private_jobs set attempts = 2")
    await jobs.add("batch", [2], key="k")
    rows = await jobs.all()
    assert [(row["id"] == first, row["is_available"]) for row in rows] == [(True, False), (False, True)]

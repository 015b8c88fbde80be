"""A Node worker and a Python worker on one database: they share the work and do not disturb each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from graphile_worker import JobSpec, make_worker_utils, run, run_once
from interop.conftest import SharedDatabase
from interop.python_tasks import record
from support.working import PATIENCE

pytestmark = pytest.mark.interop

POLL_MILLISECONDS = 50
LOCAL_QUEUE = {"localQueue": {"size": 20}, "completeJobBatchDelay": 0, "failJobBatchDelay": 0}
ENDED = "count(*) >= $1 FROM public.interop_runs WHERE ended IS NOT NULL"
FAILED_ONCE = "EXISTS (SELECT FROM {jobs} WHERE last_error IS NOT NULL AND locked_at IS NULL)"


def python_worker(database: SharedDatabase, *tasks: str, **options: Any) -> Any:
    """Our worker, with the recording task under these names."""
    options = {"concurrency": 4, "poll_interval": POLL_MILLISECONDS / 1000, "handle_signals": False} | options
    return run(connection_string=database.url, task_list=dict.fromkeys(tasks, record), **options)


def node_worker(database: SharedDatabase, *tasks: str, **options: Any) -> Any:
    return database.node.worker(*tasks, **{"concurrency": 4, "pollInterval": POLL_MILLISECONDS} | options)


@pytest.mark.parametrize("node_preset", [{}, LOCAL_QUEUE], ids=["node direct", "node with local queue"])
async def test_they_drain_one_database_together_and_no_queue_runs_twice_at_once(
    either_database: SharedDatabase, node_preset: dict[str, Any]
) -> None:
    specs = [
        JobSpec("echo", {"n": n, "pause": n % 4}, queue_name=f"queue-{n % 20}" if n % 3 else None)
        for n in range(450)
    ]
    options = {"preset": {"worker": node_preset}} if node_preset else {}
    async with (
        make_worker_utils(connection_string=either_database.url) as utils,
        node_worker(either_database, "echo", **options) as node,
        python_worker(either_database, "echo"),
    ):
        jobs = await utils.add_jobs(specs[:300])
        added_by_node = await either_database.node.call(
            [
                "addJobs",
                [
                    {"identifier": "echo", "payload": spec.payload, "queueName": spec.queue_name}
                    for spec in specs[300:]
                ],
            ]
        )
        await either_database.runs.wait_until(ENDED, len(specs))
        await either_database.runs.wait_until_idle()
    runs = await either_database.runs.all()
    expected = [job.id for job in jobs] + [int(job["id"]) for job in added_by_node[0]]
    assert sorted(run.job_id for run in runs) == sorted(expected), "every job ran exactly once"
    assert await either_database.runs.overlaps() == []
    assert set(Counter(run.worker for run in runs)) == {"node", "python"}
    assert await either_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0
    if (
        not node_preset
    ):  # with a local queue Node reports an error of its own when it is stopped while waiting
        assert node.output == ["ready\n", ""]


async def test_jobs_added_by_one_run_in_the_other(our_database: SharedDatabase) -> None:
    """A chain of jobs that goes back and forth: each worker knows only one of the two tasks."""
    payload: dict[str, Any] = {"hop": 6}
    for hop in range(5, 0, -1):
        name = "in_python" if (hop + 1) % 2 == 0 else "in_node"
        payload = {"hop": hop, "add": [name, payload]}
    async with (
        node_worker(our_database, "in_node", pollInterval=3_600_000),
        python_worker(our_database, "in_python"),
        make_worker_utils(connection_string=our_database.url) as utils,
    ):
        await our_database.runs.wait_until_listening()  # Node hardly ever polls here: our adds must wake it
        await utils.add_job("in_node", payload)
        await our_database.runs.wait_until(ENDED, 6)
        await our_database.runs.wait_until_idle()
    runs = await our_database.runs.all()
    assert [(run.payload["hop"], run.worker) for run in runs] == [
        (1, "node"), (2, "python"), (3, "node"), (4, "python"), (5, "node"), (6, "python"),
    ]  # fmt: skip


async def test_the_last_payload_of_a_key_runs_whoever_adds_and_runs(
    our_database: SharedDatabase,
) -> None:
    keys = [f"key-{number}" for number in range(5)]
    rounds = 20
    async with (
        node_worker(our_database, "keyed"),
        python_worker(our_database, "keyed"),
        make_worker_utils(connection_string=our_database.url) as utils,
    ):
        for number in range(rounds):
            for key in keys:
                await utils.add_job("keyed", {"key": key, "n": number, "pause": 2}, job_key=key)
        await our_database.node.call(
            *(["addJob", "keyed", {"key": key, "n": rounds}, {"jobKey": key}] for key in keys)
        )
        await our_database.runs.wait_until_idle()
    ran = {(run.payload["key"], run.payload["n"]) for run in await our_database.runs.all()}
    assert {(key, rounds) for key in keys} <= ran
    assert await our_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0


@pytest.mark.parametrize("first", ["node", "python"])
async def test_what_failed_in_one_is_taken_up_by_the_other(our_database: SharedDatabase, first: str) -> None:
    workers = {"node": node_worker, "python": python_worker}
    second = "python" if first == "node" else "node"
    items = [{"n": 1}, {"n": 2, "fail": "two"}, {"n": 3}, {"n": 4, "fail": "four"}]
    async with make_worker_utils(connection_string=our_database.url) as utils:
        job = await utils.add_job("batch", items[:2], job_key="b", queue_name="q")
        assert (await utils.add_job("batch", items[2:], job_key="b", queue_name="q")).id == job.id
        async with workers[first](our_database, "batch"):
            await our_database.runs.wait_until(FAILED_ONCE)
        (rescheduled,) = await utils.reschedule_jobs([job.id], run_at=job.run_at)
        assert rescheduled.attempts == 1
        assert rescheduled.last_error is not None
        # Node has the messages alone, we have type and place besides; one line each in both.
        lines = rescheduled.last_error.splitlines()[1:]
        assert [word for word, line in zip(("two", "four"), lines, strict=True) if word in line] == [
            "two",
            "four",
        ]
        async with workers[second](our_database, "batch"):
            await our_database.runs.wait_until(
                "count(*) > 0 FROM {jobs} WHERE attempts = 2 AND locked_at IS NULL"
            )
    runs = await our_database.runs.all()
    assert [(run.worker, run.attempt, [item["n"] for item in run.payload]) for run in runs] == [
        (first, 1, [1, 2, 3, 4]),
        (second, 2, [2, 4]),
    ]
    assert {run.queue for run in runs} == {"q"}


async def test_a_queue_held_by_a_running_node_job_is_not_entered_by_python(
    our_database: SharedDatabase,
) -> None:
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        node_worker(our_database, "slow"),
        python_worker(our_database, "quick"),
    ):
        await utils.add_job("slow", {"pause": 700}, queue_name="held")
        await our_database.runs.wait_until("count(*) = 1 FROM public.interop_runs")
        await utils.add_job("quick", {}, queue_name="held", priority=-10)
        await utils.add_job("quick", {}, queue_name="free")
        await our_database.runs.wait_until(ENDED, 3)
    runs = await our_database.runs.all()
    assert [(run.worker, run.queue) for run in runs] == [
        ("node", "held"),
        ("python", "free"),
        ("python", "held"),
    ]
    assert await our_database.runs.overlaps() == []


async def test_a_once_run_in_python_finishes_the_queue_that_node_began(our_database: SharedDatabase) -> None:
    async with make_worker_utils(connection_string=our_database.url) as utils:
        async with node_worker(our_database, "step", concurrency=1):
            await utils.add_jobs(
                [JobSpec("step", {"n": n, "pause": 5}, queue_name="steps") for n in range(30)]
            )
            await our_database.runs.wait_until(ENDED, 5)
        # Node may stop before it wrote its last completion back; such a lock is ours to remove here.
        await release_leftovers(our_database)
        await asyncio.wait_for(
            run_once(connection_string=our_database.url, task_list={"step": record}), timeout=PATIENCE
        )
    runs = await our_database.runs.all()
    assert {run.payload["n"] for run in runs} == set(range(30))
    assert await our_database.runs.overlaps() == []
    assert await our_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0


async def release_leftovers(database: SharedDatabase) -> None:
    await database.connection.execute("""
        SELECT graphile_worker.force_unlock_workers(array_agg(locked_by))
        FROM graphile_worker._private_job_queues WHERE locked_by IS NOT NULL
    """)

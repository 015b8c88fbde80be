"""A paused queue is left alone by a real Node worker, for longer than it takes Node to reset stale locks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from admin.conftest import client_of
from graphile_worker import JobSpec, make_worker_utils, run
from graphile_worker.admin import admin_app, everyone_may
from interop.conftest import SharedDatabase
from interop.python_tasks import record

pytestmark = pytest.mark.interop

RESET_MILLISECONDS = 1000
"""Node clears stale locks at random intervals; these are the shortest."""
RESETS = {"minResetLockedInterval": RESET_MILLISECONDS, "maxResetLockedInterval": RESET_MILLISECONDS}
LOCAL_QUEUE = {"localQueue": {"size": 20}, "completeJobBatchDelay": 0, "failJobBatchDelay": 0}
ENDED = "count(*) >= $1 FROM public.interop_runs WHERE ended IS NOT NULL"
HELD = "SELECT count(*) FROM graphile_worker._private_job_queues WHERE locked_by = 'py:hold'"


def node_worker(database: SharedDatabase, *tasks: str, preset: dict[str, Any] | None = None) -> Any:
    options = {"concurrency": 4, "pollInterval": 50, "preset": {"worker": RESETS | (preset or {})}}
    return database.node.worker(*tasks, **options)


def python_worker(database: SharedDatabase, *tasks: str) -> Any:
    return run(
        connection_string=database.url,
        task_list=dict.fromkeys(tasks, record),
        concurrency=4,
        poll_interval=0.05,
        handle_signals=False,
    )


async def ask_dashboard(database: SharedDatabase, action: str, queue: str) -> None:
    """Pause or resume a queue as the dashboard does."""
    app = admin_app(connection_string=database.url, authorize=everyone_may)
    async with client_of(app) as client:
        answer = await client.post(f"/api/v1/queues/{action}", json={"name": queue})
        assert answer.status_code == 200, answer.text
    await app.aclose()


async def until_node_has_reset_locks(database: SharedDatabase, times: int) -> None:
    """Plant a stale lock and wait until Node has cleared it, this many times."""
    for _ in range(times):
        await database.connection.execute(
            "UPDATE graphile_worker._private_jobs "
            "SET locked_by = 'gone', locked_at = now() - interval '5 hours' WHERE key = 'planted'"
        )
        await database.runs.wait_until("locked_at IS NULL FROM {jobs} WHERE key = 'planted'")


@pytest.mark.parametrize("preset", [{}, LOCAL_QUEUE], ids=["direct", "local queue"])
async def test_node_leaves_a_paused_queue_alone_and_takes_it_up_after_the_resume(
    our_database: SharedDatabase, preset: dict[str, Any]
) -> None:
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        node_worker(our_database, "echo", preset=preset),
    ):
        await utils.add_job("of no worker", job_key="planted")
        await ask_dashboard(our_database, "pause", "paused")
        await utils.add_jobs([JobSpec("echo", {"n": n}, queue_name="paused") for n in range(5)])
        await utils.add_jobs([JobSpec("echo", {"n": n}, queue_name="other") for n in range(5)])
        await our_database.runs.wait_until(ENDED, 5)
        await until_node_has_reset_locks(our_database, times=3)
        await utils.add_job("echo", {"n": 9}, queue_name="other")
        await our_database.runs.wait_until(ENDED, 6)
        assert {run.queue for run in await our_database.runs.all()} == {"other"}
        await our_database.node.call(["cleanup", {"tasks": ["GC_JOB_QUEUES"]}])
        assert await our_database.connection.fetchval(HELD) == 1

        await ask_dashboard(our_database, "resume", "paused")
        await our_database.runs.wait_until(ENDED, 11)
    assert Counter(run.queue for run in await our_database.runs.all()) == {"paused": 5, "other": 6}
    assert await our_database.runs.overlaps() == []


async def test_a_queue_that_is_resumed_while_node_runs_a_job_of_it_stays_serial(
    our_database: SharedDatabase,
) -> None:
    """First Node alone, which holds the queue when it is paused and resumed; then Python joins."""
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        node_worker(our_database, "echo"),
    ):
        await utils.add_jobs([JobSpec("echo", {"pause": 1500}, queue_name="q") for _ in range(3)])
        await our_database.runs.wait_until("EXISTS (SELECT FROM public.interop_runs)")
        async with python_worker(our_database, "echo"):
            await utils.queues.pause("q")
            assert await utils.queues.resume("q")
            await our_database.runs.wait_until(ENDED, 3)
    assert await our_database.runs.overlaps() == []
    assert len(await our_database.runs.all()) == 3


async def test_under_load_no_runtime_starts_a_job_of_a_paused_queue(our_database: SharedDatabase) -> None:
    queues = [f"q{n}" for n in range(10)]
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        node_worker(our_database, "echo", preset=LOCAL_QUEUE),
        python_worker(our_database, "echo"),
    ):
        await utils.add_jobs(
            [JobSpec("echo", {"n": n}, queue_name=name) for n in range(60) for name in queues]
        )
        await our_database.runs.wait_until(ENDED, 100)
        await utils.queues.pause("q3")
        await our_database.runs.wait_until(
            "NOT EXISTS (SELECT FROM {jobs} job JOIN graphile_worker._private_job_queues queue "
            "ON queue.id = job.job_queue_id WHERE queue_name = 'q3' AND job.locked_at IS NOT NULL)"
        )
        started = sum(run.queue == "q3" for run in await our_database.runs.all())
        assert started < 60, "the pause came too late to show anything"
        await our_database.runs.wait_until(ENDED, 60 * 9 + started)
        assert sum(run.queue == "q3" for run in await our_database.runs.all()) == started
        await utils.queues.resume("q3")
        await our_database.runs.wait_until(ENDED, 600)
    assert await our_database.runs.overlaps() == []

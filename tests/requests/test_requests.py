"""What operators ask of one worker: to pause, to stop, and where a job is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.errors import StackUnavailableError, WorkerNotFoundError
from support.working import MODES, PATIENCE, Jobs, Workers, until

SCHEMA = "graphile_worker"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def held_back(entered: asyncio.Event, release: asyncio.Event) -> None:
    entered.set()
    await release.wait()


@pytest.mark.parametrize("mode", MODES)
async def test_a_paused_worker_starts_no_job_until_it_is_resumed(
    utils: WorkerUtils, workers: Workers, database_url: str, mode: str
) -> None:
    ran: dict[str, list[int]] = {"paused": [], "other": []}

    def tasks(name: str) -> dict[str, Any]:
        async def work(payload: Any) -> None:
            ran[name].append(payload["n"])

        return {"work": work}

    paused = await workers.start(tasks("paused"), connection_string=database_url, **MODES[mode])
    await utils.workers.pause(paused.pool_id, reason="looking at it")
    pool = paused._running_pool
    await until(lambda: pool._commands.is_paused)
    await workers.start(tasks("other"), connection_string=database_url)
    for n in range(20):
        await utils.add_job("work", {"n": n})
    await until(lambda: len(ran["other"]) == 20)
    assert ran["paused"] == []

    assert await utils.workers.resume(paused.pool_id)
    assert not await utils.workers.resume(paused.pool_id)
    await until(lambda: not pool._commands.is_paused)

    async def has_run() -> bool:
        await utils.add_job("work", {"n": -1})  # one of the two takes it
        return bool(ran["paused"])

    await until(has_run)


async def test_a_worker_that_is_asked_to_stop_ends_gracefully(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    runner = await workers.start(
        {"work": lambda: held_back(entered, release)}, connection_string=database_url
    )
    job = await utils.add_job("work")
    await asyncio.wait_for(entered.wait(), PATIENCE)
    await utils.workers.stop(runner.pool_id, reason="too much memory")
    await until(lambda: runner._running_pool._shutdown.has_begun)
    assert not runner.is_stopped
    release.set()
    await asyncio.wait_for(runner.wait(), PATIENCE)
    assert await utils.jobs.get(job.id) is None  # it was completed, not interrupted
    with pytest.raises(WorkerNotFoundError, match="no running Python worker"):
        await utils.workers.stop(runner.pool_id)


async def test_the_stack_of_a_coroutine_shows_where_it_waits(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def inner() -> None:
        await held_back(entered, release)

    async def work() -> None:
        await asyncio.gather(inner(), asyncio.sleep(0))

    runner = await workers.start({"work": work}, connection_string=database_url)
    job = await utils.add_job("work")
    await asyncio.wait_for(entered.wait(), PATIENCE)
    found = await utils.jobs.get_stack(job, timeout=PATIENCE)
    assert (found.kind, found.worker_id, found.task_identifier) == ("coroutine", runner.pool_id, "work")
    assert "in work" in found.stack
    assert "await release.wait()" in found.stack
    assert "graphile_worker/worker" not in found.stack
    assert found.running_for is not None
    release.set()
    await until_gone(utils, job.id)
    with pytest.raises(StackUnavailableError, match="no such job"):
        await utils.jobs.get_stack(job)
    assert await count_requests(utils) == 0


async def test_the_stack_of_a_thread_shows_what_it_does(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    entered, release = threading.Event(), threading.Event()

    def compute() -> None:
        entered.set()
        release.wait(PATIENCE)

    def work() -> None:
        compute()

    await workers.start({"work": work}, connection_string=database_url)
    job = await utils.add_job("work")
    await asyncio.to_thread(entered.wait, PATIENCE)
    try:
        found = await utils.jobs.get_stack(job.id, timeout=timedelta(seconds=PATIENCE))
    finally:
        release.set()
    assert found.kind == "thread"
    assert "in compute" in found.stack
    assert "release.wait(PATIENCE)" in found.stack


async def test_a_job_that_does_not_run_has_no_stack(utils: WorkerUtils, jobs: Jobs) -> None:
    job = await utils.add_job("work")
    with pytest.raises(StackUnavailableError, match="it is not running, it is ready"):
        await utils.jobs.get_stack(job)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'node-pool', locked_at = now()"
    )
    with pytest.raises(StackUnavailableError, match="locked by node-pool, which is not a Python worker"):
        await utils.jobs.get_stack(job)


async def test_a_blocked_worker_is_named_as_the_reason(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    """The loop of this test is the worker's, so another client asks, in a thread."""
    from graphile_worker import make_sync_worker_utils

    await workers.start({"work": lambda: asyncio.sleep(3600)}, connection_string=database_url)
    job = await utils.add_job("work")
    await until_running(utils, job.id)
    answers: list[BaseException] = []

    def ask() -> None:
        with make_sync_worker_utils(connection_string=database_url) as client:
            try:
                client.jobs.get_stack(job.id, timeout=0.2)
            except StackUnavailableError as error:
                answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        time.sleep(0.01)  # blocks the loop until the client has given up
    assert "did not answer" in str(answers[0]) or "blocked" in str(answers[0])


async def test_workers_tell_versions_lanes_and_whether_they_listen(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    async def work() -> None: ...

    for version in ("1.4.1", "1.4.2", "1.4.2"):
        await workers.start(
            {"work": work},
            connection_string=database_url,
            app_version=version,
            concurrency=3,
            heartbeat_interval=0.2,
        )

    async def all_listen() -> bool:
        return all(each.is_listening and each.clock is not None for each in await utils.list_workers())

    await until(all_listen)
    found = await utils.list_workers()
    assert sorted(each.app_version or "" for each in found) == ["1.4.1", "1.4.2", "1.4.2"]
    lanes = found[0].lanes
    assert lanes is not None
    assert [(lane.name, lane.slots, lane.tasks) for lane in lanes] == [("main", 3, ["work"])]
    assert abs(found[0].clock or 0.0) < 5
    deploys = await utils.workers.list_deploys(since=timedelta(hours=1))
    assert [(deploy.version, deploy.starts) for deploy in deploys] == [("1.4.2", 2), ("1.4.1", 1)]


async def until_gone(utils: WorkerUtils, job_id: int) -> None:
    async def is_gone() -> bool:
        return await utils.jobs.get(job_id) is None

    await until(is_gone)


async def until_running(utils: WorkerUtils, job_id: int) -> None:
    async def is_running() -> bool:
        job = await utils.jobs.get(job_id)
        return job is not None and job.state == "running"

    await until(is_running)


async def count_requests(utils: WorkerUtils) -> int:
    async with utils.with_pg_client() as connection:
        count: int = await connection.fetchval(f"select count(*) from {SCHEMA}._private_py_requests")
        return count

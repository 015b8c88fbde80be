"""The concurrency of a running worker: more slots start at once, and fewer let running jobs end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from executors import heavy_tasks
from graphile_worker import Lane, Limit, Runner, WorkerUtils, make_sync_worker_utils, task
from graphile_worker.errors import InvalidArgumentError, WorkerNotFoundError, WorkerRequestError
from graphile_worker.hooks.events import PoolGracefulShutdownWorkerError, WorkerCreated, WorkerStopped
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.control import watch
from graphile_worker.worker.fetch.adaptive import AdaptiveSource
from support.held_load import Holding
from support.working import MODES, PATIENCE, SCHEMA, Gate, Jobs, Workers, until


async def set_concurrency(utils: WorkerUtils, runner: Runner, concurrency: int, lane: str = "main") -> int:
    change = await utils.workers.set_concurrency(runner.pool_id, concurrency, lane=lane, timeout=PATIENCE)
    assert (change.worker_id, change.lane, change.concurrency) == (runner.pool_id, lane, concurrency)
    return change.before


async def registered(utils: WorkerUtils) -> tuple[int | None, dict[str, int]]:
    """What the row of the only worker says: all slots, and those of each lane. It may be missing."""
    workers = await utils.workers.list()
    if not workers:
        return None, {}
    (worker,) = workers
    return worker.concurrency, {lane.name: lane.slots for lane in worker.lanes or ()}


async def passed_by(gate: Gate, jobs: int, at_once: int) -> None:
    """Let so many jobs pass, and see that never more than `at_once` are inside."""
    gate.most_at_once = gate.inside
    while len(gate.ended) < jobs:
        await gate.until_inside(1)
        assert gate.inside <= at_once
        gate.open()
        await asyncio.sleep(0)
    assert gate.most_at_once <= at_once


@pytest.mark.parametrize("mode", MODES)
async def test_more_slots_start_at_once(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate, database_url: str, mode: str
) -> None:
    await jobs.add_many("work", 20)
    options = MODES[mode] if mode != "local queue" else {"local_queue": {"size": 20}}
    runner = await workers.start({"work": gate.__call__}, concurrency=2, **options)
    await gate.until_inside(2)
    assert gate.inside == 2
    assert await set_concurrency(utils, runner, 6) == 2
    await gate.until_inside(6)
    assert await registered(utils) == (6, {"main": 6})
    assert runner._running_pool.concurrency == 6
    await passed_by(gate, 20, 6)
    await jobs.until_gone()


@pytest.mark.parametrize("mode", MODES)
async def test_fewer_slots_cancel_no_job_and_start_none_above_the_number(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate, recorder: EventRecorder, mode: str
) -> None:
    await jobs.add_many("work", 20)
    runner = await workers.start(
        {"work": gate.__call__}, concurrency=6, events=recorder.events, **MODES[mode]
    )
    await gate.until_inside(6)
    assert await set_concurrency(utils, runner, 2) == 6
    assert gate.inside == 6
    for left in (5, 4, 3, 2):  # those above the number end, and nothing takes their place
        gate.open()
        await until(lambda: gate.inside + len(gate.ended) == 6)
        await utils.add_job("other")  # the worker has been notified, and still starts nothing
        assert gate.inside == left
    await until(lambda: recorder.names.count("worker:stop") == 4)
    await passed_by(gate, 20, 2)
    assert len(gate.started) == 20  # none was interrupted and run again
    assert await registered(utils) == (2, {"main": 2})
    assert len(recorder.of(WorkerCreated)) - len(recorder.of(WorkerStopped)) == 2


async def test_idle_slots_end_at_once_and_are_replaced_when_asked_for(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate
) -> None:
    runner = await workers.start({"work": gate.__call__}, concurrency=5)
    slots = runner._running_pool._lanes._all[0].slots
    await until(lambda: slots.is_idle)
    slots.resize(4)
    async with asyncio.timeout(PATIENCE):
        await slots.idle()  # the slot that ends is the last that is not idle
    await set_concurrency(utils, runner, 1)
    await until(lambda: len(slots._all) == 1 and slots.is_idle)
    await jobs.add_many("work", 4)
    await gate.until_inside(1)
    await set_concurrency(utils, runner, 3)
    await gate.until_inside(3)
    await passed_by(gate, 4, 3)


async def test_a_change_while_surplus_jobs_still_run(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate
) -> None:
    await jobs.add_many("work", 12)
    runner = await workers.start({"work": gate.__call__}, concurrency=4)
    await gate.until_inside(4)
    assert await set_concurrency(utils, runner, 1) == 4
    assert await set_concurrency(utils, runner, 3) == 1
    gate.open()
    await until(lambda: len(gate.ended) == 1)
    await passed_by(gate, 6, 4)
    assert await set_concurrency(utils, runner, 5) == 3
    await gate.until_inside(5)
    await passed_by(gate, 12, 5)


async def test_jobs_that_are_prefetched_beyond_the_number_are_returned(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate
) -> None:
    """Short jobs let the worker prefetch; then slow ones take all slots."""

    async def quick() -> None: ...

    runner = await workers.start({"quick": quick, "work": gate.__call__}, concurrency=4, prefetch=600, hold=0)
    await jobs.add_many("quick", 200)
    await jobs.until_gone()
    await jobs.add_many("work", 30)
    await gate.until_inside(4)
    await until(lambda: jobs_locked(jobs, above=4))
    source = runner._running_pool._lanes._all[0].source
    assert isinstance(source, AdaptiveSource)
    source._run_time = 600.0  # as slow as these jobs are
    await set_concurrency(utils, runner, 2)
    await until(lambda: jobs_locked(jobs, above=-1, exactly=4))
    await passed_by(gate, 30, 4)


async def jobs_locked(jobs: Jobs, above: int, exactly: int | None = None) -> bool:
    found = await jobs.locked()
    return found == exactly if exactly is not None else found > above


async def test_lanes_are_changed_one_by_one(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate
) -> None:
    video = Gate()
    runner = await workers.start(
        {"work": gate.__call__, "transcode": video.__call__},
        lanes=[Lane("video", tasks=["transcode"], concurrency=1)],
        concurrency=2,
    )
    await jobs.add_many("work", 5)
    await jobs.add_many("transcode", 5)
    await gate.until_inside(2)
    await video.until_inside(1)
    assert await set_concurrency(utils, runner, 3, "video") == 1
    await video.until_inside(3)
    assert (gate.inside, video.inside) == (2, 3)
    assert await registered(utils) == (5, {"main": 2, "video": 3})
    with pytest.raises(InvalidArgumentError, match="has no lane 'audio'; it has 'main', 'video'"):
        await utils.workers.set_concurrency(runner.pool_id, 3, lane="audio", timeout=PATIENCE)
    await passed_by(video, 5, 3)
    await passed_by(gate, 5, 2)


async def test_a_limit_still_holds(utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate) -> None:
    @task(limit=Limit("api", concurrency=2))
    async def call_api(payload: Any) -> None:
        await gate(payload)

    await jobs.add_many("call_api", 8)
    runner = await workers.start([call_api], concurrency=1)
    await gate.until_inside(1)
    await set_concurrency(utils, runner, 4, "limit api")
    await gate.until_inside(2)
    await passed_by(gate, 8, 2)


async def test_held_batches_go_on_after_a_change(
    utils: WorkerUtils, holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 8))
    await gate.until_inside(8)
    await set_concurrency(utils, runner, 2)
    assert gate.inside == 8
    await passed_by(gate, 8, 8)
    await holding.warm_up()  # batches are held by two slots
    assert len(gate.started) == len(ids) == 8
    await set_concurrency(utils, runner, 6)
    await jobs.add_many("step", 12)
    await gate.until_inside(6)
    await passed_by(gate, 20, 6)
    await jobs.until_gone()


async def test_a_run_once_can_be_changed_and_still_ends(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_INTERVAL", 0.1)  # it does not listen
    await jobs.add_many("work", 12)
    running = asyncio.create_task(workers.once({"work": gate.__call__}, concurrency=2))
    await gate.until_inside(2)
    (worker,) = await utils.workers.list()
    await utils.workers.set_concurrency(worker.id, 5, timeout=PATIENCE)
    await gate.until_inside(5)
    await utils.workers.set_concurrency(worker.id, 1, timeout=PATIENCE)
    await passed_by(gate, 12, 5)
    await asyncio.wait_for(running, PATIENCE)
    assert await jobs.count() == 0


async def test_threads_follow(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait(PATIENCE)

    runner = await workers.start({"work": work}, concurrency=2)
    await jobs.add_many("work", 6)
    await until(lambda: barrier.n_waiting == 2)
    await set_concurrency(utils, runner, 6)
    await jobs.until_gone()  # six threads have met
    threads = runner._running_pool._threads
    await until(lambda: threads.count == 6)
    await set_concurrency(utils, runner, 2)
    await until(lambda: threads.count == 2)


async def test_processes_follow(
    utils: WorkerUtils,
    workers: Workers,
    jobs: Jobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphile_worker.runner.executors.processor_count", lambda: 3)
    file = tmp_path / "notes"
    file.touch()
    runner = await workers.start([heavy_tasks.meet], concurrency=1)
    for n in range(3):
        await jobs.add("meet", {"file": str(file), "n": n, "after": 3})
    await until(lambda: len(file.read_text().splitlines()) == 1)
    await set_concurrency(utils, runner, 3)
    await jobs.until_gone()  # three processes have met
    assert sorted(file.read_text().splitlines()) == ["0", "1", "2"]
    await set_concurrency(utils, runner, 1)

    async def has_one_process() -> bool:
        return len(runner._builder.executors.places()) == 1  # type: ignore[union-attr]

    await until(has_one_process)
    await jobs.add("meet", {"file": str(file), "n": 3, "after": 3})
    await jobs.until_gone()


@pytest.mark.parametrize(("before", "after"), [(6, 2), (2, 6)])
async def test_a_stop_during_the_change_ends_gracefully(
    utils: WorkerUtils,
    workers: Workers,
    jobs: Jobs,
    gate: Gate,
    recorder: EventRecorder,
    before: int,
    after: int,
) -> None:
    await jobs.add_many("work", 20)
    runner = await workers.start({"work": gate.__call__}, concurrency=before, events=recorder.events)
    await gate.until_inside(before)
    await set_concurrency(utils, runner, after)
    stopping = asyncio.create_task(workers.stop(runner))
    await until(lambda: runner._running_pool.is_stopping)
    inside = gate.inside
    gate.open_all()
    await stopping
    assert len(gate.ended) == inside
    assert await jobs.locked() == 0
    assert await jobs.count() == 20 - inside
    assert not recorder.of(PoolGracefulShutdownWorkerError)


async def test_a_stopping_worker_says_so(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, gate: Gate
) -> None:
    await jobs.add_many("work", 1)
    runner = await workers.start({"work": gate.__call__}, concurrency=1)
    await gate.until_inside(1)
    await utils.workers.stop(runner.pool_id)
    await until(lambda: runner._running_pool.is_stopping)
    with pytest.raises(WorkerRequestError, match=f"worker {runner.pool_id} (is stopping|did not answer)"):
        await utils.workers.set_concurrency(runner.pool_id, 3, timeout=6.0)
    gate.open()
    await asyncio.wait_for(runner.wait(), PATIENCE)


async def test_a_worker_that_does_not_know_the_request_does_not_answer(
    utils: WorkerUtils, workers: Workers, jobs: Jobs
) -> None:
    """A row without a worker behind it, as one of an earlier version is."""
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace) values "
        "('old', 'here', 1, '0', '{}', 2, 'heartbeat', '1 hour', '1 hour')"
    )
    with pytest.raises(WorkerRequestError, match=r"worker old did not answer within 0\.2 s"):
        await utils.workers.set_concurrency("old", 3, timeout=0.2)
    assert not await jobs.connection.fetchval(f"select exists (select from {SCHEMA}._private_py_requests)")
    with pytest.raises(WorkerNotFoundError):
        await utils.workers.set_concurrency("none", 3)


@pytest.mark.parametrize("number", [0, -1, 10_001, True, "3", 2.5])
async def test_what_is_no_number_of_slots_is_refused(utils: WorkerUtils, number: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="concurrency"):
        await utils.workers.set_concurrency("pool", number)


async def test_the_number_survives_a_lost_row(
    utils: WorkerUtils, workers: Workers, jobs: Jobs, database_url: str
) -> None:
    """A sweep of another worker may delete it; the worker registers again with the next heartbeat."""

    async def work() -> None: ...

    runner = await workers.start({"work": work}, concurrency=2, heartbeat_interval=0.2)
    await set_concurrency(utils, runner, 7)
    await jobs.connection.execute(f"delete from {SCHEMA}._private_py_workers")

    async def is_back() -> bool:
        return bool(await utils.workers.list())

    await until(is_back)

    async def is_described() -> bool:
        return await registered(utils) == (7, {"main": 7})

    await until(is_described)


async def test_the_blocking_client_asks_too(workers: Workers, database_url: str, utils: WorkerUtils) -> None:
    async def work() -> None: ...

    runner = await workers.start({"work": work}, concurrency=2)

    def ask() -> int:
        with make_sync_worker_utils(connection_string=database_url) as client:
            return client.workers.set_concurrency(runner.pool_id, 4, timeout=PATIENCE).before

    assert await asyncio.to_thread(ask) == 2
    assert runner._running_pool.slots == {"main": 4}

"""Queues that may run several jobs at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import JobHelpers, JobSpec, task
from graphile_worker.client import WorkerUtils
from graphile_worker.errors import GraphileWorkerError, InvalidArgumentError, TaskLoadError
from graphile_worker.options import JobFilter
from graphile_worker.worker.fetch import wide_queues
from support.working import PATIENCE, SCHEMA, Gate, Jobs, Workers, until

TRACKS = f"""
    select queue.queue_name, track.is_closed, queue.locked_by from {SCHEMA}._private_py_tracks track
    left join {SCHEMA}._private_job_queues queue on queue.id = track.queue_id order by 1
"""


async def tracks(connection: Any) -> list[tuple[str, bool]]:
    return [(row["queue_name"], row["is_closed"]) for row in await connection.fetch(TRACKS)]


async def make_due(jobs: Jobs) -> None:
    await jobs.make_due()
    await jobs.connection.execute("select pg_notify('jobs:insert', $1)", '{"count": 1}')


async def test_as_many_jobs_run_as_the_queue_is_wide(jobs: Jobs, any_workers: Workers) -> None:
    gate = Gate()

    @task("sync", queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await jobs.add_many("sync", 9, queue="tenant:7")
    await jobs.add_many("sync", 2, queue="tenant:8")
    await any_workers.start([sync], concurrency=10)
    await gate.until_inside(5)
    for _ in range(11):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert len(gate.ended) == 11
    assert gate.most_at_once == 5  # three and two
    assert await tracks(jobs.connection) == [
        ("tenant:7 [2]", False), ("tenant:7 [3]", False), ("tenant:8 [2]", False), ("tenant:8 [3]", False),
    ]  # fmt: skip


@pytest.mark.usefixtures("look_often")
async def test_a_concurrency_that_was_set_by_hand_counts_first(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_queues, "LOOK_AGAIN_AFTER", 0.5)
    gate = Gate()

    @task("sync", queue_concurrency=2)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await utils.queues.set_concurrency("q", 4)
    await jobs.add_many("sync", 12, queue="q")
    await workers.start([sync], concurrency=10)
    await gate.until_inside(4)
    await utils.queues.set_concurrency("q", 1)
    for _ in range(4):
        gate.open()
    await gate.until_inside(1)
    for _ in range(8):
        await gate.until_inside(1)
        assert gate.inside == 1
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 4
    await utils.queues.set_concurrency("q", None)
    await jobs.add_many("sync", 4, queue="q")
    await gate.until_inside(2)
    for _ in range(4):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()


async def test_a_failed_job_of_a_track_runs_again(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()

    @task("sync", queue_concurrency=2)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload["n"])

    await jobs.add_many("sync", 2, queue="q", max_attempts=2)
    await workers.start([sync], concurrency=4)
    await gate.until_inside(2)
    for _ in range(2):
        gate.open(ValueError("once"))

    async def are_waiting() -> bool:
        return all(row["locked_at"] is None and row["attempts"] == 1 for row in await jobs.all())

    await until(are_waiting)
    await make_due(jobs)
    await gate.until_inside(2)
    for _ in range(2):
        gate.open()
    await jobs.until_gone()


async def test_a_job_of_a_closed_track_comes_back_to_its_queue(
    jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    gate = Gate()

    @task("sync", max_attempts=2)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload["n"])

    await utils.queues.set_concurrency("q", 2)
    await jobs.add_many("sync", 3, queue="q", max_attempts=2)
    await workers.start([sync], concurrency=4)
    await gate.until_inside(2)
    await utils.queues.set_concurrency("q", 1)
    assert await tracks(jobs.connection) == [("q [2]", True)]
    for _ in range(2):
        gate.open(ValueError("once"))
    await make_due(jobs)
    for _ in range(3):
        await gate.until_inside(1)
        assert gate.inside == 1
        gate.open()
        await make_due(jobs)
    await jobs.until_gone()
    await utils.queues.set_concurrency("q", 2)
    assert await tracks(jobs.connection) == [("q [2]", False)]


async def test_only_the_name_of_the_queue_is_shown(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    gate = Gate()
    names: list[str | None] = []

    @task("sync", queue_concurrency=3)
    async def sync(payload: dict[str, Any], helpers: JobHelpers) -> None:
        names.append(await helpers.get_queue_name())
        await gate(payload)

    await jobs.add_many("sync", 5, queue="tenant:7")
    await workers.start([sync], concurrency=10)
    await gate.until_inside(3)
    assert names == ["tenant:7"] * 3
    [queue] = await utils.queues.list()
    assert (queue.queue_name, queue.concurrency, queue.jobs) == ("tenant:7", 3, 5)
    listed = await utils.jobs.list(JobFilter(queue_name="tenant:7"))
    assert [job.queue_name for job in listed] == ["tenant:7"] * 5
    assert (await utils.statistics.jobs()).queues == 1
    for _ in range(5):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()


async def test_a_paused_queue_holds_its_tracks(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    gate = Gate()

    @task("sync", queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    @task("other")
    async def other() -> None:
        pass

    await jobs.add_many("sync", 8, queue="q")
    await workers.start([sync, other], concurrency=10)
    await gate.until_inside(3)
    await utils.queues.pause("q")
    assert [pause.queue_name for pause in await utils.queues.list_pauses()] == ["q"]
    for _ in range(3):
        gate.open()
    await utils.queues.set_concurrency("q", 5)  # tracks that are made meanwhile are held too
    barrier = await jobs.add("other")

    async def is_done() -> bool:
        ids = [row["id"] for row in await jobs.all()]
        return barrier not in ids and len(ids) == 5

    await until(is_done)
    assert len(gate.started) == 3
    [queue] = await utils.queues.list()
    assert (queue.concurrency, queue.pause is not None) == (5, True)
    await utils.queues.resume("q")
    await gate.until_inside(5)
    for _ in range(5):
        gate.open()
    await jobs.until_gone()
    assert await jobs.locked() == 0


async def test_tracks_that_were_deleted_are_made_again(
    jobs: Jobs, workers: Workers, utils: WorkerUtils
) -> None:
    gate = Gate()

    @task("sync", queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await workers.start([sync], concurrency=10)
    for _ in range(2):
        await jobs.add_many("sync", 3, queue="q")
        await gate.until_inside(3)
        for _ in range(3):
            gate.open()
        await jobs.until_gone()
        await until(lambda: _is_unlocked(jobs))
        report = await utils.cleanup(["GC_JOB_QUEUES"])
        assert report.job_queues == 3
    assert gate.most_at_once == 3


async def _is_unlocked(jobs: Jobs) -> bool:
    return await jobs.locked() == 0


async def test_deleted_tracks_of_a_queue_in_use_are_replaced(connection: Any, utils: WorkerUtils) -> None:
    from graphile_worker.database.statements.limits import set_tracks

    await utils.queues.set_concurrency("q", 3)
    [home] = await connection.fetch(f"select id from {SCHEMA}._private_job_queues where queue_name = 'q'")
    await connection.execute(f"delete from {SCHEMA}._private_job_queues where queue_name like 'q [%'")
    assert await set_tracks(connection, utils.schema, {home["id"]: None}) == 2
    assert await tracks(connection) == [("q [2]", False), ("q [3]", False)]
    await connection.execute(f"delete from {SCHEMA}._private_job_queues where queue_name = 'q'")
    job = await utils.add_job("any", queue_name="q")
    assert job.job_queue_id is not None
    assert await set_tracks(connection, utils.schema, {job.job_queue_id: None}) == 2
    assert await set_tracks(connection, utils.schema, {job.job_queue_id: None}) == 0
    homes = await connection.fetch(f"select distinct home_id from {SCHEMA}._private_py_tracks")
    assert [row["home_id"] for row in homes] == [job.job_queue_id]


async def test_numbers_are_checked(utils: WorkerUtils, connection: Any) -> None:
    for concurrency in (0, 1001, True, "3"):
        with pytest.raises(InvalidArgumentError, match="concurrency: "):
            await utils.queues.set_concurrency("q", concurrency)  # type: ignore[arg-type]
        with pytest.raises(TaskLoadError, match="queue_concurrency"):
            task(queue_concurrency=concurrency)(any_task)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="reserved for tracks of queues"):
        await utils.queues.set_concurrency("q [2]", 3)
    with pytest.raises(InvalidArgumentError, match="with a concurrency it may have 120"):
        await utils.queues.set_concurrency("q" * 121, 3)
    await connection.execute(f"drop function {SCHEMA}._private_py_set_tracks")
    with pytest.raises(GraphileWorkerError, match="graphile-worker migrate"):
        await utils.queues.set_concurrency("q", 3)


async def any_task() -> None:
    pass


async def test_plain_jobs_and_serial_queues_go_on_beside_wide_queues(
    jobs: Jobs, any_workers: Workers, utils: WorkerUtils
) -> None:
    running: dict[str, int] = {}
    most: dict[str, int] = {}

    @task("step")
    async def step(payload: dict[str, Any]) -> None:
        name = payload["queue"]
        running[name] = running.get(name, 0) + 1
        most[name] = max(most.get(name, 0), running[name])
        await asyncio.sleep(0)
        running[name] -= 1

    await utils.queues.set_concurrency("wide", 3)
    names = ("wide", "serial", "", "late")
    await utils.add_jobs(
        JobSpec("step", {"queue": name}, queue_name=name or None, priority=n % 3)
        for n in range(200)
        for name in names
    )
    await utils.add_job("step", {"queue": "later"}, queue_name="wide", run_at=timedelta(hours=1))
    await any_workers.start([step], concurrency=10)

    async def is_one_left() -> bool:
        return await jobs.count() == 1

    await until(is_one_left, timeout=PATIENCE)
    assert most["serial"] == most["late"] == 1
    assert most["wide"] <= 3
    await until(lambda: _is_unlocked(jobs))

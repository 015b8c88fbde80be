"""Results have the type that the task returns; a status has the result or the error."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pytest

from graphile_worker import (
    Job,
    JobHandle,
    JobHelpers,
    SyncJobHandle,
    Task,
    WorkerUtils,
    make_sync_worker_utils,
    make_worker_utils,
    task,
)
from graphile_worker.errors import JobFailedError, JobGoneError, ResultError
from support.working import PATIENCE, Workers

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Receipt:
    number: int
    on: date


class Order(TypedDict):
    number: int


class Measure(msgspec.Struct):
    value: float


@task(keep=True)
async def pay(payload: int) -> Receipt:
    return Receipt(payload, date(2026, 11, 18))


@task(keep=True)
def measure(payload: float) -> list[Measure]:
    return [Measure(payload)]


@task(keep=True)
async def order(payload: int) -> tuple[Order, datetime]:
    return {"number": payload}, datetime(2026, 11, 18, tzinfo=UTC)


@task(keep=True)
async def unresolved(payload: str) -> Decimal:
    return payload  # type: ignore[return-value]


@task(keep=True)
async def unannotated(payload: int):  # type: ignore[no-untyped-def]
    return Receipt(payload, date(2026, 11, 18))


@task(keep=True)
async def wrong(payload: str) -> Receipt:
    return payload  # type: ignore[return-value]


@task(keep=True)
async def fail(payload: str) -> Receipt:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError(payload) from error


@task
async def forget() -> int:
    return 1


TASKS = [pay, measure, order, unresolved, unannotated, wrong, fail, forget]


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def test_a_result_has_the_type_that_the_task_returns(utils: WorkerUtils, workers: Workers) -> None:
    paid = await utils.add_job(pay, 1)
    measured = await utils.add_job(measure, 1.5)
    ordered = await utils.add_job(order, 2)
    await workers.start(TASKS)
    receipt = Receipt(1, date(2026, 11, 18))
    assert await paid.result(timeout=PATIENCE) == receipt
    assert await utils.wait_for(paid, timeout=PATIENCE) == receipt
    assert await utils.jobs.handle(paid).result(timeout=PATIENCE) == receipt
    assert await measured.result(timeout=PATIENCE) == [Measure(1.5)]
    assert await ordered.result(timeout=PATIENCE) == ({"number": 2}, datetime(2026, 11, 18, tzinfo=UTC))


async def test_it_is_plain_json_where_the_type_is_not_known(utils: WorkerUtils, workers: Workers) -> None:
    plain = {"number": 1, "on": "2026-11-18"}
    named = await utils.add_job("pay", 1)
    bare = await utils.add_job(unannotated, 1)
    unknown = await utils.add_job(unresolved, "1.5")
    await workers.start(TASKS)
    assert await named.result(timeout=PATIENCE) == plain
    assert await utils.wait_for(named.id, timeout=PATIENCE) == plain
    assert await utils.jobs.handle(named.id).result(timeout=PATIENCE) == plain
    assert await utils.wait_for(utils.jobs.handle(named.id), timeout=PATIENCE) == plain
    assert await bare.result(timeout=PATIENCE) == plain
    assert await unknown.result(timeout=PATIENCE) == "1.5"


async def test_a_result_of_another_type_is_an_error_that_says_so(
    utils: WorkerUtils, workers: Workers
) -> None:
    handle = await utils.add_job(wrong, "a")
    await workers.start(TASKS)
    with pytest.raises(ResultError) as caught:
        await handle.result(timeout=PATIENCE)
    assert str(caught.value) == (
        f"the result of job {handle.id} does not fit Receipt: Expected `object`, got `str`"
    )


async def test_a_task_inside_a_function_has_typed_results_too(utils: WorkerUtils, workers: Workers) -> None:
    @dataclass
    class Own:
        number: int

    @task(keep=True)
    async def local() -> Own:
        return Own(3)

    handle = await utils.add_job(local)
    await workers.start([local])
    assert await handle.result(timeout=PATIENCE) == Own(3)
    renamed = local.with_identifier("other")
    assert renamed.decode_result('{"number":4}') == Own(4)


async def test_every_add_gives_a_handle(utils: WorkerUtils, workers: Workers) -> None:
    handle = await utils.add_job(forget)
    assert type(handle) is type(await utils.add_job("forget")) is JobHandle
    assert type(await utils.add_job(forget.spec(None))) is JobHandle
    await workers.once(TASKS)
    with pytest.raises(JobGoneError):
        await handle.result(timeout=PATIENCE)


async def test_a_handle_is_equal_to_its_job(utils: WorkerUtils) -> None:
    handle = await utils.add_job("forget", job_key="k")
    job = await utils.remove_job("k")
    assert type(job) is Job
    assert handle == job
    assert job == handle
    assert hash(handle) == hash(job)
    assert handle != await utils.add_job("forget", job_key="k")
    assert handle != handle.id
    assert type(pickle.loads(pickle.dumps(handle))) is Job
    assert pickle.loads(pickle.dumps(handle)) == handle


async def test_a_task_waits_for_a_typed_result(utils: WorkerUtils, workers: Workers) -> None:
    @task(keep=True)
    async def parent(helpers: JobHelpers) -> list[Any]:
        child = await helpers.add_job(pay, 4)
        typed = await helpers.wait_for(child, timeout=PATIENCE)
        return [repr(typed), await helpers.wait_for(child.id, timeout=PATIENCE)]

    handle = await utils.add_job(parent, max_attempts=1)
    await workers.start([parent, pay], concurrency=4, poll_interval=0.1)
    assert await handle.result(timeout=PATIENCE) == [
        repr(Receipt(4, date(2026, 11, 18))),
        {"number": 4, "on": "2026-11-18"},
    ]


async def test_a_task_in_a_thread_follows_the_job_that_it_added(utils: WorkerUtils, workers: Workers) -> None:
    @task(keep=True)
    def parent(helpers: JobHelpers) -> list[Any]:
        child = helpers.sync.add_job(pay, 5)
        assert type(child) is SyncJobHandle
        typed = child.result(timeout=PATIENCE)
        assert helpers.sync.wait_for(child, timeout=PATIENCE) == typed
        return [repr(typed), child.status().state, list(child.watch()), child.cancel()]

    handle = await utils.add_job(parent, max_attempts=1)
    await workers.start([parent, pay], concurrency=4, poll_interval=0.1)
    assert await handle.result(timeout=PATIENCE) == [
        repr(Receipt(5, date(2026, 11, 18))),
        "completed",
        [],
        False,
    ]


async def test_the_blocking_client_has_typed_results(
    utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    def wait() -> list[Any]:
        with make_sync_worker_utils(connection_string=database_url) as blocking:
            handle = blocking.add_job(pay, 6)
            assert type(handle) is SyncJobHandle
            return [
                handle.result(timeout=PATIENCE),
                blocking.wait_for(handle, timeout=PATIENCE),
                blocking.wait_for(handle.id, timeout=PATIENCE),
                blocking.jobs.handle(handle).result(timeout=PATIENCE),
            ]

    await workers.start(TASKS)
    receipt = Receipt(6, date(2026, 11, 18))
    assert await asyncio.to_thread(wait) == [receipt, receipt, {"number": 6, "on": "2026-11-18"}, receipt]


async def test_a_status_has_the_result_or_the_error(utils: WorkerUtils, workers: Workers) -> None:
    paid = await utils.add_job(pay, 1)
    failed = await utils.add_job(fail, "two\nlines", max_attempts=1)
    waiting = await paid.status()
    assert (waiting.state, waiting.result, waiting.error) == ("ready", None, None)
    await workers.once(TASKS)
    completed = await paid.status()
    assert (completed.state, completed.result, completed.error) == (
        "completed",
        {"number": 1, "on": "2026-11-18"},
        None,
    )
    ended = await failed.status()
    assert (ended.state, ended.result, ended.error) == ("failed", None, "ValueError: two\nlines")
    with pytest.raises(JobFailedError) as caught:
        await failed.result(timeout=PATIENCE)
    assert caught.value.message == "ValueError: two\nlines"
    assert caught.value.error is not None
    assert "test_typed_results.py, line" in caught.value.error


def test_the_parameters_of_a_call_can_be_left_out_at_run_time() -> None:
    assert Task[int, Receipt] == Task[int, Receipt, ..., Any]
    assert isinstance(pay, Task)

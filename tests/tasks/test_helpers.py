"""JobHelpers, with a real database."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphile_worker.client import make_worker_utils
from graphile_worker.errors import ExtensionMissingError, JobInterruptedError
from graphile_worker.tasks import AbortSignal, Extensions, JobHelpers, task
from graphile_worker.tasks.call import call_task
from graphile_worker.tasks.services import QueueNames, WorkerServices
from graphile_worker.tasks.threads import TaskThreads
from graphile_worker.values.spec import JobSpec
from support.working import PATIENCE


@pytest.fixture
async def services(database_url: str) -> AsyncIterator[dict[str, Any]]:
    """The services of a worker: a client and connections of one pool."""

    async def look_up(queue_ids: Any) -> list[str | None]:
        return [f"queue {queue_id}" for queue_id in queue_ids]

    async with make_worker_utils(connection_string=database_url) as utils:
        names = QueueNames(look_up, delay=0)
        yield {"client": utils, "acquire": utils.with_pg_client, "queue_names": names}
        await names.close()


async def added(connection: Any) -> list[tuple[str, str]]:
    rows = await connection.fetch(
        "select task_identifier, coalesce(key, '') from graphile_worker.jobs order by id"
    )
    return [tuple(row) for row in rows]


# -- jobs and the database ---------------------------------------------------------------------------------


async def test_a_task_adds_jobs(make_helpers: Any, services: Any, connection: Any) -> None:
    @task(queue_name="mail")
    def send(payload: dict[str, str]) -> None: ...

    helpers = make_helpers(**services)
    job = await helpers.add_job("other", {"a": 1}, job_key="k")
    assert job.payload == {"a": 1}
    assert (await helpers.add_job(send, {"to": "a"})).job_queue_id is not None
    jobs = await helpers.add_jobs([JobSpec("many", 1), send.spec({"to": "b"})])
    assert [one.task_identifier for one in jobs] == ["many", "send"]
    assert await added(connection) == [("other", "k"), ("send", ""), ("many", ""), ("send", "")]


async def test_jobs_added_in_a_transaction_go_with_it(
    make_helpers: Any, services: Any, connection: Any
) -> None:
    helpers = make_helpers(**services)
    async with helpers.with_pg_client() as own:
        transaction = own.transaction()
        await transaction.start()
        await helpers.add_job("a", connection=own)
        await helpers.add_jobs([JobSpec("b")], connection=own)
        await transaction.rollback()
    assert await added(connection) == []


async def test_a_task_asks_the_database(make_helpers: Any, services: Any) -> None:
    helpers = make_helpers(**services)
    rows = await helpers.query("select $1::int + 1 as sum", 41)
    assert [row["sum"] for row in rows] == [42]


async def test_the_name_of_the_own_queue_is_asked_for_unless_another_is_given(
    make_helpers: Any, make_job: Any, services: Any
) -> None:
    helpers = make_helpers(make_job(job_queue_id=5), **services)
    assert await helpers.get_queue_name() == "queue 5"
    assert await helpers.get_queue_name(6) == "queue 6"


async def test_a_plain_function_uses_all_of_it_through_the_blocking_form(
    make_helpers: Any, make_job: Any, services: Any, connection: Any
) -> None:
    @task
    def work(payload: Any, helpers: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        job = helpers.sync.add_job("one", {"a": 1})
        jobs = helpers.sync.add_jobs([JobSpec("two"), JobSpec("three")])
        rows = helpers.sync.query("select count(*)::int as count from graphile_worker.jobs")
        own = helpers.sync.run(asyncio.sleep(0, "ran on the loop"))
        return job.payload, len(jobs), rows[0]["count"], helpers.sync.get_queue_name(), own

    threads = TaskThreads(1)
    try:
        helpers = make_helpers(make_job(job_queue_id=5), **services)
        result = await call_task(work, None, helpers, threads)
    finally:
        threads.close()
    assert result == ({"a": 1}, 2, 3, "queue 5", "ran on the loop")
    assert len(await added(connection)) == 3


async def test_an_error_of_a_blocking_call_reaches_the_thread(make_helpers: Any, services: Any) -> None:
    @task
    def work(payload: Any, helpers: Any) -> None:
        helpers.sync.query("select 1 / 0")

    threads = TaskThreads(1)
    try:
        with pytest.raises(Exception, match="division by zero"):
            await call_task(work, None, make_helpers(**services), threads)
    finally:
        threads.close()


async def test_the_blocking_form_refuses_to_block_the_loop(make_helpers: Any) -> None:
    with pytest.raises(RuntimeError, match="must not be used in an async task"):
        make_helpers().sync.query("select 1")


def test_the_blocking_form_says_so_when_the_loop_is_gone(make_job: Any) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    nothing: Any = None
    services = WorkerServices(client=nothing, acquire=nothing, queue_names=nothing, loop=loop)
    with pytest.raises(RuntimeError, match="closed"):
        JobHelpers(make_job(), services, "worker-1").sync.query("select 1")


# -- logging and state -------------------------------------------------------------------------------------


async def test_log_records_say_where_they_belong(make_helpers: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "graphile_worker.job")
    helpers = make_helpers()
    helpers.logger.info("sent %d", 3)
    helpers.logger.warning("slow", extra={"seconds": 2})
    first, second = (vars(record) for record in caplog.records)
    scope = {"label": "job", "worker_id": "worker-1", "task_identifier": "hello", "job_id": 7}
    assert (first["pool_id"], first["attempt"], first["max_attempts"]) == (helpers.job.locked_by, 1, 25)
    assert (first["filename"], first["funcName"]) == (
        "test_helpers.py",
        "test_log_records_say_where_they_belong",
    )
    assert first["message"] == "task hello (job 7): sent 3"
    assert {name: first[name] for name in scope} == scope
    assert {name: second[name] for name in scope} == scope
    assert second["seconds"] == 2
    assert helpers.logger is helpers.logger


async def test_application_state_is_asked_for_by_type(make_helpers: Any) -> None:
    class Mailer: ...

    mailer = Mailer()
    helpers = make_helpers(extensions=Extensions([mailer]))
    assert helpers.extension(Mailer) is mailer
    assert helpers.extensions.get(Mailer) is mailer
    with pytest.raises(ExtensionMissingError):
        helpers.extension(dict)


async def test_helpers_name_their_job(make_helpers: Any) -> None:
    assert repr(make_helpers()) == "<JobHelpers of job 7 (hello)>"


# -- ending ------------------------------------------------------------------------------------------------


async def test_a_loop_can_ask_whether_to_go_on(make_helpers: Any) -> None:
    signal = AbortSignal()
    helpers = make_helpers(abort_signal=signal)
    helpers.raise_if_aborted()
    signal.set("the worker is stopping due to SIGTERM")
    with pytest.raises(JobInterruptedError, match="the worker is stopping due to SIGTERM"):
        helpers.raise_if_aborted()
    assert helpers.abort_signal.is_set()
    assert helpers.abort_signal.reason == signal.reason


async def test_an_abortable_wait_gives_its_result_or_its_error(make_helpers: Any) -> None:
    helpers = make_helpers()

    async def fails() -> None:
        raise ValueError("no")

    assert await helpers.abortable(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="no"):
        await helpers.abortable(fails())


async def test_an_abortable_wait_is_cancelled_and_may_clean_up(make_helpers: Any) -> None:
    signal = AbortSignal()
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    waiting = asyncio.ensure_future(make_helpers(abort_signal=signal).abortable(waits()))
    await started.wait()
    signal.set("stopping")
    with pytest.raises(JobInterruptedError, match="stopping"):
        await asyncio.wait_for(waiting, PATIENCE)
    assert cleaned.is_set()


async def test_an_abortable_wait_does_not_begin_once_the_signal_is_set(make_helpers: Any) -> None:
    signal = AbortSignal()
    signal.set("stopping")
    began = []

    async def begins() -> None:
        began.append(True)

    with pytest.raises(JobInterruptedError):
        await make_helpers(abort_signal=signal).abortable(begins())
    assert began == []


async def test_cancelling_an_abortable_wait_cancels_what_it_waits_for(make_helpers: Any) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    waiting = asyncio.ensure_future(make_helpers().abortable(waits()))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cleaned.is_set()


async def test_an_exit_inside_an_abortable_wait_comes_out_of_it_and_not_out_of_the_loop(
    make_helpers: Any,
) -> None:
    async def exits() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        await make_helpers().abortable(exits())

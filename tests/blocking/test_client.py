"""The blocking client on its own thread."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from graphile_worker import (
    JobHelpers,
    JobSpec,
    SyncJobHandle,
    SyncWorkerUtils,
    make_sync_worker_utils,
    run,
    task,
)
from graphile_worker.client.background import Background
from graphile_worker.errors import (
    ConfigError,
    ConnectionFailedError,
    GraphileWorkerError,
    InvalidArgumentError,
    JobCancelledError,
    NoDatabaseError,
    SchemaMissingError,
)
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobsAdded
from graphile_worker.options import JobFilter, WorkerOptions
from support.working import IS_LOCKED_OUT, wait_until

Count = Callable[[], int]
LATER = datetime(2200, 1, 2, tzinfo=UTC)


@task(max_attempts=1)
async def double(payload: int, helpers: JobHelpers) -> int:
    await helpers.progress(0.5, "half")
    return 2 * payload


# -- adding and managing -----------------------------------------------------------------------------------


def test_jobs_are_added_managed_and_listed(utils: SyncWorkerUtils) -> None:
    assert not utils.migrate().changed
    job = utils.add_job("one", {"a": [1, "ü"]}, queue_name="q", job_key="k", run_at=LATER, flags=["f"])
    assert (type(job), job.payload, job.key, job.run_at) == (SyncJobHandle, {"a": [1, "ü"]}, "k", LATER)
    two, three = utils.add_jobs([JobSpec("two"), JobSpec(double, 3)])
    found = utils.jobs.get(job.id)
    assert found is not None
    assert (found.queue_name, found.state) == ("q", "scheduled")
    assert [each.id for each in utils.jobs.list(JobFilter(task_identifier="two"))] == [two.id]
    assert utils.statistics.jobs(exact=True).jobs.total == 3
    assert [queue.queue_name for queue in utils.queues.list()] == ["q"]
    assert [each.id for each in utils.complete_jobs([two.id])] == [two.id]
    assert utils.permanently_fail_jobs([three.id], "because")[0].last_error == "because"
    assert utils.jobs.retry("double").changed == 1
    assert utils.reschedule_jobs([job.id], priority=-3)[0].priority == -3
    assert [each.id for each in utils.cancel_jobs([three.id]).removed] == [three.id]
    removed = utils.remove_job("k")
    assert removed is not None
    assert removed.id == job.id
    assert utils.cleanup().job_queues == 1
    assert utils.list_workers(all=True) == []
    assert utils.sweep_stale_workers().recovered == []
    assert len(utils.statistics.tasks(since=timedelta(hours=1))) <= 1
    assert utils.history.list_errors() == []


def test_a_job_may_be_added_in_the_transaction_of_a_connection(
    utils: SyncWorkerUtils, database_url: str, count: Count
) -> None:
    with psycopg.connect(database_url) as mine:
        job = utils.add_job("mine", connection=mine)
        assert utils.jobs.get(job.id) is None
        assert utils.jobs.get(job.id, connection=mine) is not None
        mine.rollback()
        assert count() == 0
        utils.add_jobs((JobSpec("mine", number) for number in range(3)), connection=mine)
        mine.commit()
    assert count() == 3


def test_options_and_errors_are_those_of_the_other_client(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="unknown option 'conection_string'; did you mean"):
        make_sync_worker_utils(conection_string="x")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"pg_pool: .* a pool belongs to an event loop"):
        make_sync_worker_utils(pg_pool=None)  # type: ignore[call-arg]
    for wrong in (0, -1.0, "5", True):
        with pytest.raises(InvalidArgumentError, match="call_timeout: expected seconds"):
            make_sync_worker_utils(call_timeout=wrong)  # type: ignore[arg-type]
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("PGDATABASE", raising=False)
    with make_sync_worker_utils() as nowhere, pytest.raises(NoDatabaseError):
        nowhere.add_job("never")
    options = WorkerOptions(connection_string=database_url, schema="not_there")
    with make_sync_worker_utils(options=options) as utils:
        assert utils.schema.name == "not_there"
        with pytest.raises(SchemaMissingError, match=r'the schema "not_there" .* `utils.migrate'):
            utils.add_job("never")
        with pytest.raises(InvalidArgumentError, match="queue_name"):
            utils.add_job("never", queue_name=1)  # type: ignore[call-overload]


def test_an_unreachable_server_is_tried_again_by_the_next_call(database_url: str) -> None:
    with make_sync_worker_utils(connection_string="postgres://127.0.0.1:1/nothing") as utils:
        for _ in range(2):
            with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1"):
                utils.add_job("never")


def test_a_misspelt_task_is_reported(
    utils: SyncWorkerUtils, session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    utils.add_jobs([JobSpec("send_invoice_now")])
    session.execute("update graphile_worker._private_jobs set attempts = 1")
    with caplog.at_level(logging.WARNING):
        utils.add_job("send_invioce_now")
        utils.release()  # it lets checks in progress end
    assert "send_invioce_now" in caplog.text


# -- hooks and generators ----------------------------------------------------------------------------------

request_id: ContextVar[str] = ContextVar("request_id", default="")


def test_hooks_see_the_context_of_the_caller(database_url: str) -> None:
    hooks = Hooks()
    added: list[JobsAdded] = []
    hooks.events.on(JobsAdded, added.append)

    @hooks.before_add
    def tag(spec: JobSpec) -> JobSpec:
        return spec.replace(payload={"request": request_id.get()})

    with make_sync_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        request_id.set("r-1")
        assert utils.add_job("tagged").payload == {"request": "r-1"}
    assert [event.source for event in added] == ["client"]


def test_interceptors_must_be_plain_functions(database_url: str) -> None:
    hooks = Hooks()

    @hooks.before_add
    async def slow(spec: JobSpec) -> None: ...

    with (
        pytest.raises(ConfigError, match=r"before_add: .*slow is a coroutine function; a blocking client"),
        make_sync_worker_utils(connection_string=database_url, hooks=hooks),
    ):
        pass
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(ConfigError, match="is a coroutine function"),
    ):
        SyncWorkerUtils.bound(connection, hooks=hooks)


def test_generators_run_in_the_callers_thread(utils: SyncWorkerUtils, count: Count) -> None:
    """They may use a connection of the caller's library, which belongs to this thread."""
    threads: set[int] = set()

    def noted(values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            threads.add(threading.get_ident())
            yield value

    jobs = utils.add_jobs(noted(JobSpec("many", number) for number in range(2500)))
    assert [job.payload for job in jobs] == list(range(2500))
    assert len(utils.complete_jobs(noted(job.id for job in jobs))) == 2500
    assert threads == {threading.get_ident()}
    assert count() == 0


def test_a_hook_that_calls_its_own_client_gets_an_error(database_url: str) -> None:
    """It would wait for itself."""
    hooks = Hooks()

    @hooks.before_add
    def recursive(spec: JobSpec) -> None:
        utils.add_job("inner")

    with (
        make_sync_worker_utils(connection_string=database_url, hooks=hooks) as utils,
        pytest.raises(GraphileWorkerError, match="called on its own thread"),
    ):
        utils.add_job("outer")


# -- changes in batches ------------------------------------------------------------------------------------


def test_a_change_in_batches_may_use_the_client_and_be_stopped(utils: SyncWorkerUtils, count: Count) -> None:
    utils.add_jobs([JobSpec("bulk", number) for number in range(30)])
    stop = threading.Event()
    seen: list[int] = []

    def on_step(report: Any, ids: list[int]) -> None:
        seen.append(utils.statistics.jobs(exact=True).jobs.total)
        stop.set()

    report = utils.complete_jobs(
        filter=JobFilter(task_identifier="bulk"),
        jobs_per_second=0.001,  # one job per batch; a pause lasts minutes unless the stop ends it
        on_step=on_step,
        stop=stop,
    )
    assert (report.changed, report.is_complete, seen, count()) == (1, False, [29], 29)


def test_a_bound_client_changes_in_batches_too(database_url: str, count: Count) -> None:
    with psycopg.connect(database_url, autocommit=True) as mine:
        utils = SyncWorkerUtils.bound(mine)
        utils.add_jobs([JobSpec("bulk", number) for number in range(30)])
        seen: list[int] = []
        report = utils.cancel_jobs(
            filter=JobFilter(task_identifier="bulk"),
            step_size=10,
            jobs_per_second=1000,
            on_step=lambda _, ids: seen.append(utils.statistics.jobs(exact=True).jobs.total),
            stop=threading.Event(),
        )
    assert (report.changed, report.is_complete, seen, count()) == (30, True, [20, 10, 0], 0)


def test_what_needs_an_event_loop_is_refused(utils: SyncWorkerUtils) -> None:
    async def on_step(report: Any, ids: list[int]) -> None: ...

    with pytest.raises(InvalidArgumentError, match="on_step: is a coroutine function; give a plain function"):
        utils.complete_jobs(filter=JobFilter(), all=True, on_step=on_step)
    with pytest.raises(InvalidArgumentError, match=r"stop: is an asyncio.Event.*give a threading.Event"):
        utils.complete_jobs(filter=JobFilter(), all=True, stop=asyncio.Event())


# -- following jobs ----------------------------------------------------------------------------------------


async def test_the_result_of_a_job_is_waited_for(utils: SyncWorkerUtils, database_url: str) -> None:
    def follow() -> tuple[Any, ...]:
        handle = utils.add_job(double, 21, keep=True)
        assert type(handle) is SyncJobHandle
        with psycopg.connect(database_url) as mine:
            bound = SyncWorkerUtils.bound(mine)
            other = bound.add_job(double, 4, keep=True)
            mine.commit()
            results = handle.result(timeout=120), other.result(timeout=120), bound.wait_for(handle)
            assert list(bound.jobs.watch(handle)) == []
        assert list(handle.watch()) == []
        return *results, handle.status().state, utils.jobs.handle(handle.id).result()

    async with run(connection_string=database_url, task_list=[double], handle_signals=False):
        async with asyncio.timeout(240):
            assert await asyncio.to_thread(follow) == (42, 8, 42, "completed", 42)


async def test_progress_is_watched(utils: SyncWorkerUtils, database_url: str) -> None:
    may_end = threading.Event()

    @task(max_attempts=1)
    def slow(payload: object, helpers: JobHelpers) -> None:
        helpers.sync.progress(0.5, "half")
        assert may_end.wait(240)

    def follow(bound: bool) -> list[str | None]:
        notes = []
        with psycopg.connect(database_url, autocommit=True) as mine:
            client = SyncWorkerUtils.bound(mine) if bound else utils
            for progress in client.jobs.watch(client.add_job(slow, keep=True)):
                notes.append(progress.note)
                may_end.set()
        return notes

    async with run(connection_string=database_url, task_list=[slow], handle_signals=False):
        for bound in (False, True):
            may_end.clear()
            async with asyncio.timeout(240):
                assert await asyncio.to_thread(follow, bound) == ["half"]


def test_waiting_ends_with_the_timeout_or_the_jobs_end(utils: SyncWorkerUtils, database_url: str) -> None:
    handle = utils.add_job("nothing runs this", keep=True)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    with psycopg.connect(database_url, autocommit=True) as mine:
        with pytest.raises(TimeoutError):
            SyncWorkerUtils.bound(mine).wait_for(handle, timeout=timedelta(seconds=0.01))
        assert handle.cancel("no longer needed")
        with pytest.raises(JobCancelledError, match="no longer needed"):
            SyncWorkerUtils.bound(mine).wait_for(handle)
    with pytest.raises(JobCancelledError):
        handle.result()


# -- connections -------------------------------------------------------------------------------------------


def test_a_connection_is_lent(utils: SyncWorkerUtils) -> None:
    with utils.with_pg_client() as connection:
        connection.execute("create table notes (id integer)")
        connection.executemany("insert into notes values ($1)", ((number,) for number in range(3)))
        with suppress(ZeroDivisionError), connection.transaction():
            assert connection.is_in_transaction()
            connection.execute("delete from notes where id < $1", 2)
            raise ZeroDivisionError
        assert not connection.is_in_transaction()
        with connection.transaction():
            connection.execute("set application_name to mine")
            connection.execute("insert into notes values (3)")
        assert [row["id"] for row in connection.fetch("select id from notes order by id")] == [0, 1, 2, 3]
        assert connection.fetchval("select count(*) from notes") == 4
        row = connection.fetchrow("select current_setting('application_name') as name")
        assert row is not None
        assert row["name"] == "mine"
    with utils.with_pg_client() as connection:  # the session was reset
        assert connection.fetchval("select current_setting('application_name')") == "graphile_worker"


def test_a_bound_client_has_no_connection_to_lend(database_url: str) -> None:
    with psycopg.connect(database_url) as mine, SyncWorkerUtils.bound(mine) as utils:
        with pytest.raises(GraphileWorkerError, match="bound to your connection"), utils.with_pg_client():
            pass
        utils.release()
        assert not utils.is_released
        utils.add_job("still works")


# -- threads -----------------------------------------------------------------------------------------------


def client_threads() -> int:
    return sum(thread.name == "graphile-worker client" for thread in threading.enumerate())


def test_many_threads_share_a_client(utils: SyncWorkerUtils, count: Count) -> None:
    """Also before it is open."""

    def add(number: int) -> list[int]:
        return [utils.add_job("many", [number, each]).id for each in range(200)]

    with ThreadPoolExecutor(16) as threads:
        ids = [job_id for ids in threads.map(add, range(16)) for job_id in ids]
    assert len(set(ids)) == count() == 16 * 200
    assert client_threads() == 1


def test_release_ends_the_thread_and_later_calls(utils: SyncWorkerUtils, session: Any) -> None:
    utils.add_job("one")
    utils.release()
    utils.release()
    assert utils.is_released
    assert client_threads() == 0
    with pytest.raises(GraphileWorkerError, match="has been released; open a new one"):
        utils.add_job("two")
    with pytest.raises(GraphileWorkerError, match="has been released; open a new one"):
        utils.wait_for(1)


def test_a_client_that_is_never_used_starts_nothing(database_url: str) -> None:
    with make_sync_worker_utils(connection_string=database_url):
        assert client_threads() == 0


def test_a_forgotten_client_ends_by_itself(database_url: str) -> None:
    utils = make_sync_worker_utils(connection_string=database_url)
    utils.add_job("one")
    [thread] = [each for each in threading.enumerate() if each.name == "graphile-worker client"]
    del utils
    gc.collect()
    thread.join(120)
    assert not thread.is_alive()


def test_calls_in_progress_end_when_the_client_is_released(
    utils: SyncWorkerUtils, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them waits for a thread that is gone."""
    monkeypatch.setattr("graphile_worker.client.background.CLOSE_WITHIN", 0.2)
    handle = utils.add_job("nothing runs this", keep=True)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(handle.result) for _ in range(4)]
        background = utils._calls.background
        assert background is not None
        assert background._serving is not None
        client = background._serving._client
        assert client is not None
        while client._connections.job_waiter._waiting.keys() != {handle.id}:
            time.sleep(0.01)
        utils.release()
        for each in waiting:
            assert isinstance(each.exception(timeout=120), GraphileWorkerError)


def test_a_call_that_was_accepted_is_run_before_the_thread_ends(
    utils: SyncWorkerUtils, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, another thread could release the client before the call reaches its loop."""
    utils.add_job("one")
    released = threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def submit_late(*arguments: Any) -> Any:
        threads.submit(utils.release).add_done_callback(lambda _: released.set())
        released.wait(0.5)  # timing: must run out while the lock is held
        return submit(*arguments)

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submit_late)
        utils.add_job("two")
    assert utils.is_released
    assert count() == 2


async def test_in_a_running_event_loop_it_works_with_a_warning(database_url: str) -> None:
    with make_sync_worker_utils(connection_string=database_url) as utils:
        with pytest.warns(RuntimeWarning, match="blocks the event loop") as caught:
            utils.add_job("one")
        assert caught[0].filename == __file__
        utils.complete_jobs([1])
    with psycopg.connect(database_url) as mine:
        SyncWorkerUtils.bound(mine).add_job("two")


# -- a server that does not answer -------------------------------------------------------------------------


def test_a_call_waits_for_call_timeout_at_most(database_url: str, session: Any) -> None:
    with make_sync_worker_utils(connection_string=database_url, call_timeout=timedelta(seconds=30)) as utils:
        utils.add_job("one")  # connected
        assert isinstance(utils._calls.background, Background)
        utils._calls.background._call_timeout = 0.3
        with session.transaction():
            session.execute("lock table graphile_worker._private_jobs in access exclusive mode")
            with pytest.raises(
                ConnectionFailedError, match=r"did not answer within 0\.3 seconds \(call_timeout\)"
            ):
                utils.add_job("two")
            # It is cancelled in the background, and must not get the lock before that.
            wait_until(lambda: not session.execute(IS_LOCKED_OUT).fetchone()[0])
        utils._calls.background._call_timeout = 120
        utils.add_job("three")
    names = session.execute("select task_identifier from graphile_worker.jobs order by id").fetchall()
    assert names == [("one",), ("three",)], "the statement was cancelled"


def test_a_member_keeps_the_connections_of_a_client_that_is_gone(database_url: str) -> None:
    jobs = make_sync_worker_utils(connection_string=database_url).jobs
    gc.collect()
    assert jobs.list() == []
    thread: Background = vars(jobs._calls)["background"]
    del jobs
    gc.collect()
    assert thread.is_closed

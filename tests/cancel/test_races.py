"""A job is cancelled while something else becomes of it: it never comes back, and the answer is true.

The cancel is held in a transaction that has locked the row. Whatever the worker writes waits for it, and is
on the way before the worker can know. Then the cancel is committed. The other order, in which the cancel
waits for the write, is in `test_asking` and at the end here.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import GiveUp, Snooze, WorkerUtils, make_worker_utils, task
from graphile_worker.database.sql import load
from graphile_worker.database.statements.control import CancelledJob, end_statement
from graphile_worker.errors import JobCancelledError
from graphile_worker.hooks.events import JobCancelled, JobFailed, JobInterrupted, JobRecovered, JobSnoozed
from graphile_worker.options import JobFilter
from graphile_worker.recovery.cancelled_jobs import NotifyFailureHandlers
from graphile_worker.results import CancelReport
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.outcome import FailureHandler
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from recovery.history import History
from support.worker_process import Start, starting
from support.working import PATIENCE, SCHEMA, Gate, Jobs, Workers, until

CANCELS = f"{SCHEMA}._private_py_cancels"
HISTORY = f"{SCHEMA}._private_py_history"
TASKS = Path(__file__).parent.parent / "recovery" / "tasks_to_lose.py"
REASON = "obsolete"

FAILURES: dict[str, BaseException] = {
    "fails": ValueError("boom"),
    "gives up": GiveUp("no"),
    "snoozes": Snooze(0),
}


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


@asynccontextmanager
async def cancel_in_flight(utils: WorkerUtils, job_id: int) -> AsyncIterator[CancelReport]:
    """Cancels the job, and commits that after the body, once another session waits for the row."""
    async with utils.with_pg_client() as connection:
        transaction = connection.transaction()
        await transaction.start()
        report = await utils.cancel_jobs([job_id], reason=REASON, connection=connection)
        yield report
        await until_waiting(connection)
        await transaction.commit()


async def until_waiting(connection: Any) -> None:
    async def waits() -> bool:
        return bool(
            await connection.fetchval(
                # Within a transaction, pg_stat_activity does not change: it has no session that came later.
                "select exists (select from pg_locks where not granted "
                "and pg_backend_pid() = any (pg_blocking_pids(pid)))"
            )
        )

    await until(waits)


async def until_settled(jobs: Jobs) -> None:
    async def is_settled() -> bool:
        left: int = await jobs.connection.fetchval(
            f"select (select count(*) from {SCHEMA}._private_jobs where task_id in "
            f"(select id from {SCHEMA}._private_tasks where identifier <> 'alert')) "
            f"+ (select count(*) from {CANCELS})"
        )
        return left == 0

    await until(is_settled)


async def end_of(jobs: Jobs) -> list[tuple[Any, ...]]:
    rows = await jobs.connection.fetch(f"select state, error, job_key, queue_name, attempts from {HISTORY}")
    return [tuple(row) for row in rows]


# -- the worker's own outcome ------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["none", "failed"])
@pytest.mark.parametrize("max_attempts", [1, None])
@pytest.mark.parametrize("ending", FAILURES)
async def test_a_task_that_does_not_complete_is_cancelled(
    utils: WorkerUtils,
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    ending: str,
    max_attempts: int | None,
    history: str,
) -> None:
    gate = Gate()

    @task
    async def alert(payload: Any) -> None:
        raise AssertionError

    @task(on_failure=alert if ending == "gives up" else None)
    async def work(payload: Any) -> None:
        await gate()

    job_id = await jobs.add("work", queue="q", key="k", max_attempts=max_attempts)
    await workers.start([work], events=recorder.events, history=history)
    await gate.until_inside(1)
    async with cancel_in_flight(utils, job_id) as report:
        assert [job.id for job in report.asked] == [job_id]
        gate.open(FAILURES[ending])
    await until_settled(jobs)
    assert await jobs.count() == 0  # no job of on_failure
    assert await jobs.locked() == 0
    assert len(gate.started) == 1
    assert await end_of(jobs) == ([("cancelled", REASON, "k", "q", 1)] if history == "failed" else [])
    await until(lambda: len(recorder.of(JobCancelled)) == 1)
    assert recorder.of(JobCancelled)[0].reason == REASON
    assert not recorder.of(JobFailed)
    assert not recorder.of(JobSnoozed)


async def test_the_queue_that_goes_on_stays_locked(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """The write of the failure locks the queue's next job; ending the first one must not free the queue."""
    gate = Gate()
    first, second = [await jobs.add("work", {"n": n}, queue="q", max_attempts=1) for n in range(2)]
    await workers.start({"work": gate}, events=recorder.events)
    await gate.until_inside(1)
    async with cancel_in_flight(utils, first):
        gate.open(ValueError("boom"))
    await until(lambda: len(recorder.of(JobCancelled)) == 1)
    await until(lambda: len(gate.started) == 2)
    (queue,) = await jobs.queues()
    assert queue["locked_by"] == (await jobs.one())["locked_by"] is not None
    gate.open()
    await until_settled(jobs)
    assert await jobs.locked() == 0
    assert second != first


@pytest.mark.parametrize("pool_id", [None, "pool-x"])
async def test_only_the_queue_of_a_locked_job_is_freed(
    utils: WorkerUtils, jobs: Jobs, pool_id: str | None
) -> None:
    """The queue of a job that its worker has written before may run the next job by now."""
    first, second = [await jobs.add("work", queue="q") for _ in range(2)]
    await Graveyard(jobs.connection).give("pool-x", first, second)
    await utils.cancel_jobs([first])
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null where id = $1", first
    )
    job = await utils.jobs.get(first)
    assert job is not None
    statement, arguments = end_statement(pool_id, SCHEMA, [CancelledJob(job=job)])
    rows = await jobs.connection.fetch(load(statement, SchemaName()), *arguments)
    assert [row["id"] for row in rows] == [first]
    assert [queue["locked_by"] for queue in await jobs.queues()] == ["pool-x"]


async def test_a_task_that_completes_has_completed(utils: WorkerUtils, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()

    @task
    async def work() -> str:
        await gate()
        return "done"

    handle = await utils.add_job(work, keep=True, job_key="k")
    await workers.start([work])
    await gate.until_inside(1)
    async with cancel_in_flight(utils, handle.id) as report:
        assert [job.id for job in report.asked] == [handle.id]
        gate.open()
    assert await handle.result(timeout=PATIENCE) == "done"
    assert await jobs.count() == 0
    await until_settled(jobs)  # a later look forgets the cancel


async def test_those_who_wait_learn_that_it_was_cancelled(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    """However soon they look: they are told of the failure before the worker knows better."""
    for _ in range(5):
        gate = Gate()
        handle = await utils.add_job("work", keep=True, max_attempts=1)
        runner = await workers.start({"work": gate})
        waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
        await gate.until_inside(1)
        async with cancel_in_flight(utils, handle.id):
            gate.open(ValueError("boom"))
        with pytest.raises(JobCancelledError, match=f"was cancelled: {REASON}"):
            await waiting
        await workers.stop(runner)


@pytest.mark.parametrize("how", ["graceful", "forced"])
async def test_a_worker_that_stops_does_not_return_it(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder, how: str
) -> None:
    gate = Gate()
    job_id = await jobs.add("work", queue="q", flags=["py:keep"])
    runner = await workers.start(
        {"work": gate}, events=recorder.events, graceful_shutdown_abort_timeout=0, grace=0
    )
    await gate.until_inside(1)
    async with cancel_in_flight(utils, job_id):
        stopping = asyncio.ensure_future(runner.stop() if how == "graceful" else runner.kill())
    await asyncio.wait_for(asyncio.gather(stopping, return_exceptions=True), PATIENCE)
    await until_settled(jobs)
    assert await jobs.locked() == 0
    assert await end_of(jobs) == [("cancelled", REASON, None, "q", 1)]
    assert recorder.of(JobInterrupted) == []


async def test_a_prefetched_job_that_is_returned_does_not_come_back(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    """The worker stops, mostly before it knows; the next one deletes the job."""
    gate, more = Gate(), Gate()
    ids = [await jobs.add("work", {"n": n}, flags=["py:keep"], max_attempts=1) for n in range(2)]
    runner = await workers.start({"work": gate}, concurrency=1, local_queue={"size": 5})
    await gate.until_inside(1)

    async def are_locked() -> bool:
        return await jobs.locked() == 2

    await until(are_locked)
    async with cancel_in_flight(utils, ids[1]):
        stopping = asyncio.ensure_future(runner.stop())
    gate.open()
    await asyncio.wait_for(stopping, PATIENCE)
    # The first worker deletes it if it hears of the cancel while it stops.
    assert [(row["id"], row["is_available"]) for row in await jobs.all()] in ([], [(ids[1], False)])
    await workers.start({"work": more})
    await until_settled(jobs)
    assert more.started == []
    assert (await utils.history.of_job(ids[1]))[0].state == "cancelled"


# -- recovery ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["cancel first", "recovery waits"])
@pytest.mark.parametrize("by", ["worker", "client"])
async def test_recovery_deletes_it(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder, order: str, by: str
) -> None:
    graveyard, gate = Graveyard(jobs.connection), Gate()

    @task
    async def alert(payload: Any) -> None:
        raise AssertionError

    @task(on_failure=alert)
    async def work(payload: Any) -> None:
        await gate()

    cancelled, other = [await jobs.add("work", queue=f"q{n}", flags=["py:keep"]) for n in range(2)]
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", cancelled, other)
    sweeping: asyncio.Future[Any] | None = None
    if order == "cancel first":
        await utils.cancel_jobs([cancelled], reason=REASON)
    async with make_worker_utils(connection_string=workers.options["connection_string"]) as another:
        if order == "recovery waits":
            async with cancel_in_flight(utils, cancelled):
                sweeping = await sweep(by, workers, another, work, recorder)
        else:
            sweeping = await sweep(by, workers, another, work, recorder)
        if sweeping is not None:
            (report,) = (await sweeping).recovered
            assert (report.returned, report.failed, report.cancelled) == ([other], [], [cancelled])
        else:
            await until(lambda: len(recorder.of(JobRecovered)) == 2)
            flags = {event.job.id: event.is_cancelled for event in recorder.of(JobRecovered)}
            assert flags == {cancelled: True, other: False}
            await gate.until_inside(1)
    assert [row["id"] for row in await jobs.all()] == [other]
    assert await jobs.connection.fetchval(f"select count(*) from {CANCELS}") == 0
    (end,) = await utils.history.of_job(cancelled)
    assert (end.state, end.error, end.queue_name) == ("cancelled", REASON, "q0")
    with pytest.raises(JobCancelledError, match=REASON):
        await utils.wait_for(cancelled, timeout=PATIENCE)


async def sweep(
    by: str, workers: Workers, utils: WorkerUtils, work: Any, recorder: EventRecorder
) -> asyncio.Future[Any] | None:
    if by == "client":
        return asyncio.ensure_future(utils.sweep_stale_workers())
    await workers.start([work], events=recorder.events, **QUICK)
    return None


async def test_a_worker_that_is_killed_before_it_hears(
    utils: WorkerUtils, jobs: Jobs, start: Start, database_url: str
) -> None:
    """It is stopped first, so that it cannot hear; then it is killed, and another one recovers its jobs."""
    history = await History(jobs.connection).made()
    cancelled = await jobs.add("work", key="k", flags=["py:keep"])
    other = await jobs.add("work")
    first = start("-j", 2, url=database_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT)
    await history.until_count("start", 2)
    first.send(signal.SIGSTOP)
    report = await utils.jobs.cancel(job_key="k", reason=REASON)
    assert [job.id for job in report.asked] == [cancelled]
    first.send(signal.SIGKILL)
    assert first.ended() == 137
    await history.release()
    second = start(url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT)
    second.wait_for("is dead; returned 1 job to the queue, deleted 1 cancelled job")
    await until_settled(jobs)
    assert [event for event, _ in await history.events(cancelled)] == ["start"]
    assert [event for event, _ in await history.events(other)] == ["start", "start", "end"]
    (end,) = await utils.history.of_job(cancelled)
    assert (end.state, end.error) == ("cancelled", REASON)


async def test_a_process_that_hears(utils: WorkerUtils, jobs: Jobs, start: Start, database_url: str) -> None:
    history = await History(jobs.connection).made()
    job_id = await jobs.add("work")
    worker = start(url=database_url, tasks=TASKS, WAIT="1").ready()
    await history.until_count("start", 1)
    await utils.cancel_jobs([job_id], reason=REASON)
    worker.wait_for("cancelled")
    worker.wait_for(f"s: {REASON}; deleted")
    await until_settled(jobs)
    assert [event for event, _ in await history.events(job_id)] == ["start"]


# -- leftovers ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("look_often")
async def test_what_is_left_is_ended_by_the_next_look(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    """Jobs that failed in other runtimes, even if they were retried, and cancels of jobs that are gone."""
    gate = Gate()
    failed, retried, gone = [await jobs.add("work", flags=["py:keep"]) for _ in range(3)]
    await Graveyard(jobs.connection).give("pool-of-node", failed, retried, gone)
    await utils.cancel_jobs([failed, retried, gone], reason=REASON)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null, last_error = 'boom'"
    )
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs where id = $1", gone)
    await utils.jobs.retry("work", all=True)
    assert (await jobs.count()) == 2
    await workers.start({"other": gate})
    await until_settled(jobs)
    assert [row[:2] for row in await end_of(jobs)] == [("cancelled", REASON)] * 2


async def test_no_handler_is_told_of_a_cancelled_job(utils: WorkerUtils, jobs: Jobs) -> None:
    """A Node worker has failed both; a maintenance task tells the handlers of such failures."""
    handlers = NotifyFailureHandlers(SchemaName(), {"work": FailureHandler("alert", {})})
    await handlers.run(jobs.connection)  # from now on
    cancelled, failed = [await jobs.add("work", {"n": n}) for n in range(2)]
    await Graveyard(jobs.connection).give("pool-of-node", cancelled, failed, attempts=25)
    await utils.cancel_jobs([cancelled])
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null, last_error = 'boom', "
        "updated_at = now()"
    )
    await handlers.run(jobs.connection)
    (told,) = [json.loads(row["payload"]) for row in await jobs.all() if row["identifier"] == "alert"]
    assert told["job_id"] == failed


# -- the other order ---------------------------------------------------------------------------------------


async def test_a_job_that_has_failed_before_is_removed(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()
    job_id = await jobs.add("work")
    await workers.start({"work": gate})
    await gate.until_inside(1)
    gate.open(ValueError("boom"))

    async def has_failed() -> bool:
        return (await jobs.one())["last_error"] is not None

    await until(has_failed)
    assert [job.id for job in (await utils.cancel_jobs([job_id])).removed] == [job_id]
    assert await jobs.count() == 0


async def test_many_cancels_beside_many_workers(
    utils: WorkerUtils, jobs: Jobs, database_url: str, start: Start
) -> None:
    """Every job is cancelled while processes fetch, run and write. None is left, none starts twice."""
    history = await History(jobs.connection).made()
    ids = await jobs.add_many("work", 400, max_attempts=3)
    for _ in range(2):
        start("-j", 10, url=database_url, tasks=TASKS)
    await history.until_count("start", 50)
    asked: set[int] = set()
    removed: set[int] = set()
    for start_at in range(0, len(ids), 20):
        report = await utils.cancel_jobs(ids[start_at : start_at + 20])
        asked |= {job.id for job in report.asked}
        removed |= {job.id for job in report.removed}
    await until_settled(jobs)
    rows = await jobs.connection.fetch("select job_id, event, count(*) from history group by 1, 2")
    started = {row["job_id"]: row["count"] for row in rows if row["event"] == "start"}
    assert max(started.values()) == 1
    assert not removed & started.keys()
    assert (await utils.cancel_jobs(filter=JobFilter(), all=True)).changed == 0
    assert asked.isdisjoint(removed)

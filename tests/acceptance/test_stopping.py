"""A worker inside a program shuts down in order, however it is stopped."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, Runner, make_worker_utils, run, run_once
from graphile_worker.errors import WorkerStoppedError
from graphile_worker.hooks.events import (
    ForcefulShutdown,
    GracefulShutdown,
    PoolReleased,
    Stopped,
)
from graphile_worker.options import NodeOptions
from graphile_worker.runner.signals import SIGNALS, SignalHandling
from graphile_worker.testing.results import EventRecorder
from support.worker_process import until_disconnected
from support.working import PATIENCE, SELDOM, Gate, Jobs, Workers, until

LOOPS = ["asyncio", "uvloop"]


@pytest.fixture(params=LOOPS)
def run_program(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """`asyncio.run`, with each kind of event loop."""
    factory = asyncio.new_event_loop
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def run_(program: Any) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(program)

    return run_


@pytest.fixture
def own_handlers() -> Iterator[dict[int, Any]]:
    """Handlers for every signal, so that a signal the worker does not handle cannot end the test."""

    def own_handler(*_: object) -> None:
        raise AssertionError("the signal was not caught by the worker")

    before = {number: signal.signal(number, own_handler) for number in SIGNALS}
    try:
        yield dict.fromkeys(SIGNALS, own_handler)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in SIGNALS}


def stop_in_time(runner: Runner) -> Awaitable[None]:
    return asyncio.wait_for(runner.stop(), PATIENCE)


# -- signals inside a program ----------------------------------------------------------------------------


@pytest.mark.compat("MAIN-1")
def test_signal_handlers_are_there_while_workers_run_and_gone_afterwards(
    database_url: str, run_program: Callable[[Any], Any], own_handlers: dict[int, Any]
) -> None:
    async def program() -> None:
        before = handlers()
        first = await run(connection_string=database_url, task_list={"wait": Gate()})
        during = handlers()
        assert all(during[number] is not before[number] for number in SIGNALS)
        second = await run(connection_string=database_url, task_list={"wait": Gate()})
        await stop_in_time(first)
        assert handlers() == during  # the second worker still needs them
        await stop_in_time(second)
        assert handlers() == before

    run_program(program())
    assert handlers() == own_handlers


def test_a_signal_stops_every_worker_of_the_program_and_each_says_which_signal_it_was(
    database_url: str, run_program: Callable[[Any], Any], own_handlers: dict[int, Any]
) -> None:
    async def program() -> None:
        recorder, gate = EventRecorder(), Gate()
        runners = [
            await run(
                connection_string=database_url,
                task_list={"wait": gate},
                events=recorder.events,
                poll_interval=SELDOM,
            )
            for _ in range(2)
        ]
        await runners[0].add_job("wait")
        await gate.until_inside(1)
        signal.raise_signal(signal.SIGTERM)
        event = await recorder.wait_for(GracefulShutdown)
        assert event.signal == "SIGTERM"
        with pytest.raises(WorkerStoppedError, match="no worker can start now"):  # SD9
            await run(connection_string=database_url, task_list={"wait": gate})
        gate.open()
        for runner in runners:
            await asyncio.wait_for(runner.wait(), PATIENCE)
            assert runner.signal == signal.SIGTERM
        assert recorder.count(GracefulShutdown) == 1
        assert recorder.count(PoolReleased) == 2
        later = await run(connection_string=database_url, task_list={"wait": gate})
        await stop_in_time(later)
        assert later.signal is None  # the signal belonged to the earlier workers

    run_program(program())
    assert handlers() == own_handlers


def test_a_second_signal_counts_only_after_a_while(
    database_url: str,
    run_program: Callable[[Any], Any],
    own_handlers: dict[int, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def program() -> None:
        recorder, gate = EventRecorder(), Gate()
        runner = await run(connection_string=database_url, task_list={"wait": gate}, events=recorder.events)
        await runner.add_job("wait")
        await gate.until_inside(1)
        signal.raise_signal(signal.SIGINT)
        await recorder.wait_for(GracefulShutdown)
        signal.raise_signal(signal.SIGINT)
        await until(lambda: "SIGINT ignored: the worker is stopping already" in caplog.text)
        assert recorder.count(ForcefulShutdown) == 0
        assert gate.inside == 1
        monkeypatch.setattr(SignalHandling, "ignore_for", 0.0)
        signal.raise_signal(signal.SIGHUP)
        event = await recorder.wait_for(ForcefulShutdown)
        assert event.signal == "SIGHUP"
        await asyncio.wait_for(runner.wait(), PATIENCE)

    run_program(program())
    assert handlers() == own_handlers


def test_workers_leave_signals_alone_when_told_to(database_url: str, own_handlers: dict[int, Any]) -> None:
    async def program() -> None:
        async with run(connection_string=database_url, task_list={"wait": Gate()}, handle_signals=False):
            assert handlers() == before

    with asyncio.Runner() as runner:
        before = handlers()
        runner.run(program())


def test_a_worker_outside_the_main_thread_works_without_handlers(
    database_url: str, run_program: Callable[[Any], Any], own_handlers: dict[int, Any]
) -> None:
    seen: list[Any] = []

    async def program() -> None:
        gate = Gate()
        async with run(connection_string=database_url, task_list={"wait": gate}) as runner:
            seen.append(handlers())
            await runner.add_job("wait")
            await gate.until_inside(1)
            gate.open()
        seen.append(len(gate.ended))

    thread = threading.Thread(target=run_program, args=(program(),))
    thread.start()
    thread.join(PATIENCE)
    assert seen == [own_handlers, 1]


def test_once_passes_the_signal_on_to_the_program_when_it_has_stopped(
    database_url: str, run_program: Callable[[Any], Any], own_handlers: dict[int, Any]
) -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    ended: list[Any] = []

    async def program() -> None:
        async def stop_myself(payload: Any) -> None:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.05)  # timing: gives the signal time to do harm; more is as good
            ended.append(payload)

        runner = await run(connection_string=database_url, task_list={"other": Gate()}, handle_signals=False)
        await runner.add_job("stop_myself")
        await runner.add_job("stop_myself")
        await stop_in_time(runner)
        await run_once(connection_string=database_url, task_list={"stop_myself": stop_myself})

    run_program(program())
    assert received == [signal.SIGTERM]
    assert len(ended) == 1


# -- stop, kill, leaving, cancelling ---------------------------------------------------------------------


async def test_stop_waits_for_the_running_job_and_cannot_be_asked_twice(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    await jobs.add("wait")
    runner = await workers.start({"wait": gate})
    await gate.until_inside(1)
    stopping = asyncio.ensure_future(runner.stop())
    await until(lambda: runner.is_stopping)
    with pytest.raises(WorkerStoppedError, match="stopped already"):
        await runner.stop()
    assert not stopping.done()
    gate.open()
    await asyncio.wait_for(stopping, PATIENCE)
    await runner.wait()
    assert await jobs.count() == 0
    await until_disconnected(jobs)


async def test_kill_waits_half_a_second_and_then_gives_the_job_back(
    workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add("wait", queue="named")
    runner = await workers.start({"wait": gate}, grace=SELDOM, events=recorder.events)
    await gate.until_inside(1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.wait_for(runner.kill("enough"), PATIENCE)
    assert loop.time() - began >= 0.5
    job = await jobs.one()
    assert (job["attempts"], job["last_error"], job["locked_by"]) == (0, "enough", None)
    assert await jobs.locked() == 0
    assert recorder.count(Stopped) == recorder.count(PoolReleased) == 1
    await until_disconnected(jobs)


async def test_kill_may_follow_a_stop_that_takes_too_long(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    await jobs.add("wait")
    runner = await workers.start({"wait": gate})
    await gate.until_inside(1)
    stopping = asyncio.ensure_future(runner.stop())
    await until(lambda: runner.is_stopping)
    await asyncio.wait_for(runner.kill("enough"), PATIENCE)
    await asyncio.wait_for(stopping, PATIENCE)
    assert (await jobs.one())["last_error"] == "enough"


@pytest.mark.parametrize("error", [None, ValueError("mine"), KeyboardInterrupt()])
async def test_leaving_the_block_stops_gracefully_whatever_happens_in_it(
    workers: Workers, jobs: Jobs, error: BaseException | None
) -> None:
    gate = Gate()
    await jobs.add("wait")
    caught: BaseException | None = None
    try:
        async with run(task_list={"wait": gate}, **workers.options):
            await gate.until_inside(1)
            asyncio.get_running_loop().call_later(0.05, gate.open)
            if error is not None:
                raise error
    except BaseException as raised:
        caught = raised
    assert caught is error
    assert await jobs.count() == 0
    assert len(gate.ended) == 1
    await until_disconnected(jobs)


async def test_cancelling_the_task_that_waits_inside_the_block_stops_gracefully(
    workers: Workers, jobs: Jobs
) -> None:
    gate = Gate()
    await jobs.add("wait")

    async def program() -> None:
        async with run(task_list={"wait": gate}, **workers.options) as runner:
            await runner.wait()

    task = asyncio.ensure_future(program())
    await gate.until_inside(1)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, gate.open)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert await jobs.count() == 0
    await until_disconnected(jobs)


async def test_cancelling_a_run_once_gives_back_what_runs(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    await jobs.add_many("wait", 3)
    task = asyncio.ensure_future(run_once(task_list={"wait": gate}, **workers.options))
    await gate.until_inside(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert {(row["attempts"], row["locked_by"]) for row in await jobs.all()} == {(0, None)}
    await until_disconnected(jobs)


def jobs_after(database_url: str) -> list[Any]:
    """The jobs that a worker left behind, read by another event loop."""

    async def read() -> list[Any]:
        connection = await asyncpg.connect(database_url)
        try:
            jobs = Jobs(connection)
            await until_disconnected(jobs)
            assert await jobs.locked() == 0
            return await jobs.all()
        finally:
            await connection.close()

    return asyncio.run(read())


def test_a_program_that_ends_without_stopping_its_worker_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any]
) -> None:
    async def program() -> None:
        gate = Gate()
        runner = await run(
            connection_string=database_url, task_list={"wait": gate}, concurrency=2, handle_signals=False
        )
        for _ in range(5):
            await runner.add_job("wait", queue_name="named")
            await runner.add_job("wait")
        await gate.until_inside(2)

    run_program(program())
    rows = jobs_after(database_url)
    assert [(row["attempts"], row["locked_by"]) for row in rows] == [(0, None)] * 10
    assert sum(row["last_error"] is not None for row in rows) == 2


def test_ctrl_c_without_signal_handling_stops_the_worker_in_an_orderly_way(
    database_url: str, run_program: Callable[[Any], Any]
) -> None:
    """`asyncio.run` cancels the main task and raises KeyboardInterrupt at the end."""
    gate = Gate()

    async def program() -> None:
        async with run(
            connection_string=database_url, task_list={"wait": gate}, handle_signals=False, grace=0.1
        ) as runner:
            await runner.add_job("wait")
            await gate.until_inside(1)
            signal.raise_signal(signal.SIGINT)
            await runner.wait()

    with pytest.raises(KeyboardInterrupt):
        run_program(program())
    (job,) = jobs_after(database_url)
    assert (job["attempts"], job["locked_by"]) == (0, None)
    assert job["last_error"].startswith("Interrupted")


def test_a_second_ctrl_c_without_signal_handling_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any]
) -> None:
    """`asyncio.run` raises it inside the event loop, then cancels every task, the shutdown too."""
    gate = Gate()

    async def interrupts(payload: Any, helpers: JobHelpers) -> None:
        await helpers.abort_signal.wait()
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await gate()

    async def program() -> None:
        async with run(
            connection_string=database_url,
            task_list={"wait": gate, "interrupts": interrupts},
            concurrency=2,
            handle_signals=False,
            grace=20,
            graceful_shutdown_abort_timeout=0,
        ) as runner:
            for task in ("interrupts", "wait", "wait", "wait"):
                await runner.add_job(task)
            await gate.until_inside(1)
            signal.raise_signal(signal.SIGINT)
            await runner.wait()

    with pytest.raises(KeyboardInterrupt):
        run_program(program())
    rows = jobs_after(database_url)
    assert [row["attempts"] for row in rows] == [0] * 4


# -- an exit in a child task, which asyncio lets out of the event loop -----------------------------------

Prepare = Callable[[Runner, JobHelpers], Awaitable[Any]]


async def nothing(runner: Runner, helpers: JobHelpers) -> None:
    pass


async def stop_and_wait_for_abort(runner: Runner, helpers: JobHelpers) -> None:
    """The stop has begun and waits for the running tasks."""
    runner._signal_target.stop_by_signal("stop")
    await helpers.abort_signal.wait()


async def stop_before_cancellations_arrive(runner: Runner, helpers: JobHelpers) -> None:
    """The next turn of the loop begins with this; `asyncio.run` makes it when it has cancelled everything."""
    asyncio.get_running_loop().call_soon(runner._signal_target.stop_by_signal, "stop")


class Exits:
    """A program whose worker runs a task with a child task that raises SystemExit or KeyboardInterrupt.

    One job has ended and its outcome is not written yet, one runs, and two wait.
    """

    def __init__(self, database_url: str, error: BaseException, prepare: Prepare = nothing) -> None:
        self._database_url = database_url
        self._error = error
        self._prepare = prepare
        self._gate = Gate()
        self._all_added = asyncio.Event()
        self._runner: Runner | None = None
        self.has_closed_pool = False

    async def run(self) -> None:
        await self._run(connection_string=self._database_url)

    async def run_with_own_pool(self) -> None:
        """Closing the pool waits for every connection that the worker holds."""
        pool = await asyncpg.create_pool(
            self._database_url, server_settings={"application_name": "graphile_worker"}
        )
        try:
            await self._run(pg_pool=pool)
        finally:
            await asyncio.wait_for(pool.close(), PATIENCE)
            self.has_closed_pool = True  # an error here is lost: `asyncio.run` raises the exit

    async def _run(self, **options: Any) -> None:
        async with run(
            task_list={"end": lambda: None, "wait": self._gate, "leaves": self._leaves},
            concurrency=2,
            handle_signals=False,
            node=NodeOptions(complete_job_batch_delay=SELDOM),
            grace=20,
            graceful_shutdown_abort_timeout=0,
            **options,
        ) as self._runner:
            for task in ("end", "leaves", "wait", "wait", "wait"):
                await self._runner.add_job(task)
            self._all_added.set()
            await self._runner.wait()

    async def _leaves(self, payload: Any, helpers: JobHelpers) -> None:
        assert self._runner is not None
        await self._all_added.wait()
        await self._gate.until_inside(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leave(self._runner, helpers))

    async def _leave(self, runner: Runner, helpers: JobHelpers) -> None:
        await self._prepare(runner, helpers)
        raise self._error


def assert_all_given_back(database_url: str) -> None:
    rows = jobs_after(database_url)
    assert sorted(row["identifier"] for row in rows) == ["leaves", "wait", "wait", "wait"]
    assert {row["attempts"] for row in rows if row["identifier"] == "wait"} == {0}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_child_task_ends_the_program_and_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any], error: BaseException
) -> None:
    """`asyncio.run` raises it and cancels everything else, the worker too."""
    with pytest.raises(type(error)):
        run_program(Exits(database_url, error).run())
    assert_all_given_back(database_url)


@pytest.mark.parametrize("prepare", [stop_and_wait_for_abort, stop_before_cancellations_arrive])
def test_an_exit_in_a_child_task_while_the_worker_stops_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any], prepare: Prepare
) -> None:
    with pytest.raises(SystemExit):
        run_program(Exits(database_url, SystemExit(3), prepare).run())
    assert_all_given_back(database_url)


@pytest.mark.parametrize("prepare", [stop_and_wait_for_abort, stop_before_cancellations_arrive])
def test_an_exit_in_a_child_task_while_the_worker_stops_gives_back_connections_of_the_callers_pool(
    database_url: str, run_program: Callable[[Any], Any], prepare: Prepare
) -> None:
    program = Exits(database_url, SystemExit(3), prepare)
    with pytest.raises(SystemExit):
        run_program(program.run_with_own_pool())
    assert program.has_closed_pool
    assert_all_given_back(database_url)


def test_an_exit_in_a_child_task_while_a_worker_finds_out_what_it_holds_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any]
) -> None:
    """Writes wait for the eviction check, and that is cancelled too."""

    async def doubt(runner: Runner, helpers: JobHelpers) -> None:
        """Announce a migration while the tables are locked; the lock ends with the program."""
        blocker = await asyncpg.connect(database_url)
        helpers.abort_signal.on_set(blocker.terminate)
        await blocker.execute("begin; lock table graphile_worker._private_jobs in access exclusive mode")
        watcher = await asyncpg.connect(database_url)
        await watcher.execute("""select pg_notify('worker:migrate', '{"migrationNumber":1}')""")

        async def is_blocked() -> bool:
            return await watcher.fetchval(
                "select count(*) > 0 from pg_stat_activity where datname = current_database() "
                "and wait_event_type = 'Lock' and query like '%locked_by = $1%'"
            )

        await until(is_blocked)
        await watcher.close()

    with pytest.raises(SystemExit):
        run_program(Exits(database_url, SystemExit(3), doubt).run())
    assert_all_given_back(database_url)


def test_an_exit_in_a_child_task_of_a_run_once_leaves_no_job_locked(
    database_url: str, run_program: Callable[[Any], Any]
) -> None:
    gate = Gate()

    async def leave() -> None:
        raise SystemExit(3)

    async def leaves() -> None:
        await gate.until_inside(1)
        await asyncio.gather(leave())

    async def program() -> None:
        async with make_worker_utils(connection_string=database_url) as utils:
            for task in ("leaves", "wait", "wait", "wait"):
                await utils.add_job(task)
        await run_once(
            connection_string=database_url,
            task_list={"wait": gate, "leaves": leaves},
            concurrency=2,
            handle_signals=False,
            grace=20,
        )

    with pytest.raises(SystemExit):
        run_program(program())
    assert_all_given_back(database_url)


# -- returned jobs and released connections --------------------------------------------------------------


@pytest.mark.parametrize("mode", [{"prefetch": 5.0}, {"local_queue": {"size": 20}}])
async def test_jobs_locked_ahead_go_back_at_once_although_a_task_still_runs(
    workers: Workers, jobs: Jobs, mode: dict[str, Any]
) -> None:
    gate = Gate()

    async def task(payload: Any) -> None:
        if payload["n"] >= 5:
            await gate(payload["n"])

    await jobs.add_many("task", 30)
    runner = await workers.start({"task": task}, **mode)
    await gate.until_inside(1)
    if "prefetch" in mode:
        await until(lambda: ahead(jobs, 2))
    stopping = asyncio.ensure_future(workers.stop(runner))
    await until(lambda: ahead(jobs, 1, exactly=True))
    assert gate.inside == 1
    gate.open()
    await stopping
    assert {(row["attempts"], row["locked_by"]) for row in await jobs.all()} == {(0, None)}


async def ahead(jobs: Jobs, count: int, *, exactly: bool = False) -> bool:
    locked = await jobs.locked()
    return locked == count if exactly else locked >= count


async def test_a_pool_of_the_caller_is_left_as_it_was(
    workers: Workers, jobs: Jobs, database_url: str
) -> None:
    async with asyncpg.create_pool(database_url, min_size=0, max_size=4) as pool:
        runner = await workers.start({"wait": Gate()}, pg_pool=pool)
        assert pool.get_idle_size() < pool.get_size()
        await workers.stop(runner)
        assert pool.get_idle_size() == pool.get_size()
        borrowed = [await pool.acquire() for _ in range(4)]
        for connection in borrowed:
            assert await connection.fetchval("show enable_seqscan") == "on"
            assert await connection.fetch("select pg_listening_channels()") == []
            await pool.release(connection)


async def test_a_small_pool_of_the_caller_is_enough(workers: Workers, jobs: Jobs, database_url: str) -> None:
    """With two connections the worker only polls, and tasks can use the second one."""
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2) as pool:
        done: list[Any] = []

        async def ask(payload: Any, helpers: Any) -> None:
            done.append(await helpers.query("select 1"))

        await jobs.add("ask")
        runner = await workers.start({"ask": ask}, pg_pool=pool, poll_interval=0.05)
        await until(lambda: len(done) == 1)
        await jobs.add("ask")
        await until(lambda: len(done) == 2)
        await workers.stop(runner)
    assert await jobs.count() == 0

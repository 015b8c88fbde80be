"""Calling tasks: on the loop, in threads, and access to their job."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from types import CoroutineType
from typing import Any

import pytest

from graphile_worker.tasks import get_current_helpers, get_current_job, task
from graphile_worker.tasks.call import call_task
from graphile_worker.tasks.helpers import current_helpers
from graphile_worker.tasks.threads import TaskThreads
from support.working import PATIENCE

request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id")


@pytest.fixture
def threads() -> Iterator[TaskThreads]:
    made = TaskThreads(2)
    yield made
    made.close()


async def test_an_async_task_gives_its_own_coroutine(make_helpers: Any, threads: TaskThreads) -> None:
    @task
    async def double(payload: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        return 2 * payload

    called = call_task(double, 21, make_helpers(), threads)
    assert asyncio.iscoroutine(called)
    assert isinstance(called, CoroutineType)
    assert called.cr_code is double.function.__code__
    assert await called == 42
    assert threads.count == 0


async def test_a_plain_function_runs_in_a_thread_and_does_not_block_the_loop(
    make_helpers: Any, threads: TaskThreads
) -> None:
    loop_went_on = threading.Event()

    @task
    def blocks(payload: Any, helpers: Any) -> str:
        assert loop_went_on.wait(PATIENCE)
        return threading.current_thread().name

    running = asyncio.ensure_future(call_task(blocks, None, make_helpers(), threads))
    await asyncio.sleep(0)
    loop_went_on.set()
    assert (await running).startswith("graphile-worker task")


def start(made: Any, payload: Any, helpers: Any, threads: TaskThreads) -> Any:
    """Calls a task as the worker does, with the current helpers in the context."""
    current_helpers.set(helpers)
    return call_task(made, payload, helpers, threads)


async def test_both_kinds_see_the_context_and_the_current_job(
    make_helpers: Any, make_job: Any, threads: TaskThreads
) -> None:
    @task
    async def on_loop(payload: Any) -> Any:
        return get_current_job().id, request_id.get(), get_current_helpers()

    @task
    def in_thread(payload: Any) -> Any:
        return get_current_job().id, request_id.get(), get_current_helpers()

    request_id.set("r1")
    for number, made in enumerate((on_loop, in_thread)):
        helpers = make_helpers(make_job(id=number))
        assert await start(made, None, helpers, threads) == (number, "r1", helpers)


async def test_jobs_that_run_at_once_each_see_their_own_job(
    make_helpers: Any, make_job: Any, threads: TaskThreads
) -> None:
    barrier = asyncio.Barrier(5)

    @task
    async def job_id() -> int:
        await barrier.wait()
        return get_current_job().id

    async def slot(number: int) -> Any:
        return await start(job_id, None, make_helpers(make_job(id=number)), threads)

    assert await asyncio.gather(*(slot(number) for number in range(5))) == [0, 1, 2, 3, 4]


def test_outside_a_task_there_is_no_current_job() -> None:
    with pytest.raises(LookupError, match="not called from a task"):
        contextvars.Context().run(get_current_job)
    assert contextvars.Context().run(current_helpers.get, None) is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_any_exception_in_a_thread_reaches_the_caller_and_the_thread_survives(
    make_helpers: Any, threads: TaskThreads, error: BaseException
) -> None:
    @task
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await call_task(fails, None, make_helpers(), threads)
    assert caught.value is error
    assert await threads.submit("again", lambda: 1) == 1
    assert threads.count == 1


async def test_stop_iteration_becomes_an_error_that_a_future_can_carry(
    make_helpers: Any, threads: TaskThreads
) -> None:
    @task
    def stops() -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await call_task(stops, None, make_helpers(), threads)


async def test_threads_are_reused_and_added_only_when_none_is_free(threads: TaskThreads) -> None:
    for _ in range(5):
        await threads.submit("quick", lambda: None)
    assert threads.count == 1
    barrier = threading.Barrier(5)
    await asyncio.gather(*(threads.submit("slow", barrier.wait, PATIENCE) for _ in range(5)))
    await threads.submit("quick", lambda: None)
    assert threads.running == []


async def test_no_more_threads_than_the_size_stay_when_the_work_is_done(
    threads: TaskThreads, until: Any
) -> None:
    barrier = threading.Barrier(6)
    await asyncio.gather(*(threads.submit("slow", barrier.wait, PATIENCE) for _ in range(6)))
    await until(lambda: threads.count == 2)


async def test_a_cancelled_call_leaves_its_thread_which_says_what_it_is_doing(
    make_helpers: Any, threads: TaskThreads, until: Any
) -> None:
    started, may_end = threading.Event(), threading.Event()

    @task("slow/one")
    def stuck() -> None:
        started.set()
        may_end.wait(PATIENCE)

    running = asyncio.ensure_future(call_task(stuck, None, make_helpers(), threads))
    await asyncio.to_thread(started.wait, PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert threads.running == ["slow/one (job 7)"]
    assert await threads.submit("other", lambda: "another thread") == "another thread"
    may_end.set()
    await until(lambda: not threads.running)


async def test_closed_threads_end_and_take_no_more_work(until: Any) -> None:
    threads = TaskThreads(3)
    await threads.submit("quick", lambda: None)
    threads.close()
    await until(lambda: threads.count == 0)
    with pytest.raises(RuntimeError, match="the worker has stopped"):
        threads.submit("late", lambda: None)


async def test_a_thread_at_rest_keeps_nothing_of_its_last_task_alive(
    threads: TaskThreads, until: Any
) -> None:
    class Big: ...

    big = Big()
    gone = weakref.ref(big)
    await threads.submit("uses it", lambda thing: None, big)
    del big
    await until(lambda: gc.collect() >= 0 and gone() is None)


async def test_a_thread_that_is_stuck_does_not_keep_the_process_from_ending() -> None:
    program = (
        "import asyncio, threading\n"
        "from graphile_worker.tasks.threads import TaskThreads\n"
        "async def main():\n"
        "    threads, started = TaskThreads(1), threading.Event()\n"
        "    threads.submit('stuck', lambda: (started.set(), threading.Event().wait()))\n"
        "    await asyncio.to_thread(started.wait)\n"
        "    print(threads.running)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, stdout.strip(), stderr) == (0, b"['stuck']", b"")


async def test_a_call_that_is_cancelled_before_it_begins_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = TaskThreads(1)
    called: list[int] = []
    start_thread = threads._start_thread
    monkeypatch.setattr(threads, "_start_thread", lambda: None)
    try:
        threads.submit("first", called.append, 1).cancel()
        start_thread()
        monkeypatch.undo()
        await threads.submit("second", called.append, 2)
        assert called == [2]
    finally:
        threads.close()

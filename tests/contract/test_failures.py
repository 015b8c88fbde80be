"""Whatever a task does, the worker goes on: the job fails with a message that can be read."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker.errors.text import MAX_MESSAGE
from graphile_worker.hooks.events import JobCompleted, JobErrored, JobFailed, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.working import IN_ONE_MODE, Jobs, Workers, headline


class OddError(BaseException):
    """Neither an Exception nor an exit."""


RAISED: list[tuple[BaseException, str]] = [
    (RuntimeError("plain"), "RuntimeError: plain"),
    (RuntimeError("a\0b"), r"RuntimeError: a\x00b"),
    (RuntimeError("lone \ud800 surrogate"), r"RuntimeError: lone \ud800 surrogate"),
    (RuntimeError("ümläut 🙂"), "RuntimeError: ümläut 🙂"),
    (RuntimeError("x" * 5_000_000), f"RuntimeError: {'x' * 86}"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (OddError("base"), f"{__name__}.OddError: base"),
    (asyncio.CancelledError(), "the task was cancelled, but not by the worker"),
    (StopAsyncIteration("stop"), "StopAsyncIteration: stop"),
]
"""Those that may harm what runs the task or writes the error; `tests/worker/test_executor.py` has more."""


async def test_whatever_a_task_raises_fails_its_job_only(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    async def in_coroutine(payload: Any) -> None:
        await asyncio.sleep(0)
        raise RAISED[payload["n"]][0].with_traceback(None)

    def in_thread(payload: Any) -> None:
        raise RAISED[payload["n"]][0].with_traceback(None)

    async def between(payload: Any) -> None:
        ran.append(payload["n"])

    for n in range(len(RAISED)):
        for name in ("in_coroutine", "between", "in_thread"):
            await jobs.add(name, {"n": n}, priority=n, max_attempts=1)
    await workers.once([in_coroutine, in_thread, between])
    assert ran == list(range(len(RAISED)))
    rows = await jobs.all()
    for name in ("in_coroutine", "in_thread"):
        texts = [headline(row)[:100] for row in rows if row["identifier"] == name]
        assert texts == [text for _, text in RAISED]
    assert len(rows) == 2 * len(RAISED)
    assert max(len(row["last_error"]) for row in rows) == MAX_MESSAGE
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(1, None)}


@IN_ONE_MODE
async def test_a_child_task_that_closes_its_parent_fails_the_job_only(jobs: Jobs, workers: Workers) -> None:
    """Awaiting a future that fails with GeneratorExit closes every coroutine on the way, the worker's too."""
    ran: list[int] = []

    async def child() -> None:
        await asyncio.sleep(0)
        raise GeneratorExit

    async def parent(payload: Any) -> None:
        ran.append(payload["n"])
        if payload["n"] == 0:
            await asyncio.create_task(child())

    (first, _) = await jobs.add_many("parent", 2)
    await workers.once({"parent": parent})
    assert ran == [0, 1]
    row = await jobs.one()
    assert (row["id"], headline(row), row["attempts"]) == (first, "GeneratorExit", 1)
    assert await jobs.locked() == 0


@IN_ONE_MODE
async def test_a_task_that_cancels_itself_harms_neither_the_slot_nor_the_next_job(
    jobs: Jobs, workers: Workers
) -> None:
    ran: list[int] = []

    async def cancels_itself(payload: Any) -> None:
        current = asyncio.current_task()
        assert current is not None
        if payload["how"] == "and waits":
            current.cancel()
            await asyncio.sleep(0)
        elif payload["how"] == "and returns":
            current.cancel()
        else:  # by a timer that outlives the job
            asyncio.get_running_loop().call_later(0.02, current.cancel)

    async def innocent(payload: Any) -> None:
        await asyncio.sleep(0.03)  # timing: the timer of the last job goes off meanwhile, or later
        ran.append(payload["n"])

    priority = 0
    for n, how in enumerate(["and waits", "and returns", "later"]):
        await jobs.add("cancels_itself", {"how": how}, priority=(priority := priority + 1))
        await jobs.add("innocent", {"n": n}, priority=(priority := priority + 1))
    await workers.once({"cancels_itself": cancels_itself, "innocent": innocent}, concurrency=1)
    assert ran[:2] == [0, 1]  # the timer of the third hits whatever runs in that slot by then
    left = {(row["identifier"], row["last_error"]) for row in await jobs.all()}
    assert ("cancels_itself", "the task was cancelled, but not by the worker") in left
    # And there is still a slot to run jobs in.
    await jobs.connection.execute("delete from graphile_worker._private_jobs")
    await jobs.add("innocent", {"n": 7})
    await workers.once({"cancels_itself": cancels_itself, "innocent": innocent})
    assert ran[-1] == 7


async def test_events_of_a_failure_come_after_it_was_written(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, database_url: str
) -> None:
    seen: list[tuple[str, Any]] = []

    async def fails() -> None:
        raise RuntimeError("no")

    async def look(event: Any) -> None:
        seen.append((event.name, headline(await jobs.one())))

    recorder.events.on(JobErrored, look)
    await jobs.add("fails", max_attempts=1)
    await workers.once({"fails": fails}, events=recorder.events)
    assert seen == [("job:error", "RuntimeError: no")]
    assert [event.name for event in recorder.of(JobErrored, JobFailed, JobCompleted)] == [
        "job:error",
        "job:failed",
        "job:complete",
    ]
    assert str(recorder.of(JobCompleted)[0].error) == "no"


@IN_ONE_MODE
async def test_only_the_last_attempt_counts_as_failed(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    await jobs.add("fails", max_attempts=2)
    for attempt in (1, 2):
        await jobs.make_due()
        await workers.once({"fails": fails}, events=recorder.events)
        assert recorder.count(JobErrored) == attempt
        assert recorder.count(JobFailed) == attempt - 1
    assert recorder.count(JobSucceeded) == 0

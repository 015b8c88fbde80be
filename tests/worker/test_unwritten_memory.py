"""Failures that are written more slowly than jobs run do not fill the memory, and nothing gets stuck."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from graphile_worker.errors.text import MAX_MESSAGE
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobErrored, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.outcome import Finished, failed
from graphile_worker.worker.write import unwritten
from graphile_worker.worker.write.unwritten import MAX_WRITE_BYTES, write_size
from support.working import MODES, PATIENCE, SCHEMA, SELDOM, Jobs, Workers, until

PROCESS = Path(__file__).with_name("failing_process.py")
MOST = 250  # megabytes; the process alone takes 40
MAX_UNWRITTEN_BYTES = 4_000_000  # a sixteenth of what is usual, like the size of a statement


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is too much, so that tests need not send hundreds of megabytes."""
    monkeypatch.setattr(unwritten, "MAX_UNWRITTEN_BYTES", MAX_UNWRITTEN_BYTES)
    monkeypatch.setattr(unwritten, "MAX_WRITE_BYTES", MAX_UNWRITTEN_BYTES // 4)


SLOW_WRITES = (
    "create function slow() returns trigger language plpgsql as $$ begin "
    "if old.locked_by is not null then perform pg_sleep(0.001); end if; return new; end $$;"
    f"create trigger slow before update on {SCHEMA}._private_jobs for each row execute function slow()"
)

BLOCKED_WRITES = (
    "create function wait() returns trigger language plpgsql as $$ begin "
    "if old.locked_by is not null then perform pg_advisory_xact_lock_shared(42); end if; return new; end $$;"
    f"create trigger wait before update on {SCHEMA}._private_jobs for each row execute function wait()"
)


@pytest.mark.parametrize(("kind", "count"), [("locals", 2000), ("messages", 400)])
async def test_failures_do_not_fill_the_memory(jobs: Jobs, database_url: str, kind: str, count: int) -> None:
    await jobs.add_many("fail", count)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set max_attempts = 1")
    await jobs.connection.execute(SLOW_WRITES)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROCESS), kind, database_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert int(output) < MOST
    rows = await jobs.all()
    assert {row["locked_by"] for row in rows} == {None}
    assert all(row["last_error"] and len(row["last_error"]) <= MAX_MESSAGE for row in rows)


async def test_a_failed_task_leaves_no_frame_behind(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def fail(payload: Any) -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ExceptionGroup("all", [ValueError("one"), raised(OSError("two"))]) from error

    await jobs.add("fail")
    await workers.once({"fail": fail}, events=recorder.events)
    event = recorder.of(JobErrored)[0]
    assert isinstance(event.error, ExceptionGroup)
    members: list[Any] = [event.error, event.error.__cause__, *event.error.exceptions]
    assert [each.__traceback__ for each in members] == [None] * 4
    assert "in fail" in event.traceback
    assert "KeyError: 'first'" in event.traceback


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


async def test_an_interceptor_still_sees_the_frames(jobs: Jobs, workers: Workers) -> None:
    seen: list[Any] = []
    hooks = Hooks()
    hooks.after_run(
        lambda job, outcome: seen.append(getattr(outcome.error, "__traceback__", None) is not None)
    )

    async def fail(payload: Any) -> None:
        raise ValueError

    await jobs.add("fail")
    await workers.once({"fail": fail}, hooks=hooks)
    assert seen == [True]


@pytest.mark.parametrize("mode", list(MODES))
async def test_a_worker_takes_no_jobs_while_too_much_is_unwritten(
    small: None, jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    """Nothing can be written while the test holds a lock; the other jobs run after that."""
    message = "x" * (MAX_UNWRITTEN_BYTES // 5)
    ran: list[int] = []
    waiting: list[int] = []

    async def fail(payload: Any) -> None:
        ran.append(payload["n"])
        waiting.append(len(ran) - recorder.count(JobErrored))
        raise ValueError(message)

    await jobs.add_many("fail", 40, max_attempts=1)  # on a slow machine, retries would come due
    await jobs.connection.execute(BLOCKED_WRITES)
    await jobs.connection.execute("select pg_advisory_lock(42)")
    runner = await workers.start({"fail": fail}, concurrency=2, events=recorder.events, **MODES[mode])
    await until(lambda: len(ran) >= 5 and not runner._running_pool.running, timeout=PATIENCE)
    await jobs.connection.execute("select pg_advisory_unlock(42)")
    await recorder.wait_for(JobErrored, count=40)
    assert sorted(ran) == list(range(40))
    assert max(waiting) <= 5 + 2


@pytest.mark.parametrize("delay", [None, SELDOM])
async def test_a_once_run_ends_although_much_was_unwritten(
    small: None, jobs: Jobs, workers: Workers, recorder: EventRecorder, delay: float | None
) -> None:
    """Even with a batch delay: it is cut short while there is no room."""

    async def fail(payload: Any) -> None:
        raise ValueError("x" * (MAX_UNWRITTEN_BYTES // 5))

    await jobs.add_many("fail", 30, max_attempts=1)  # on a slow machine, retries would come due
    await workers.once({"fail": fail}, concurrency=2, fail_job_batch_delay=delay, events=recorder.events)
    assert recorder.count(JobErrored) == 30


async def test_a_stop_ends_although_the_sink_is_full(
    small: None, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def fail(payload: Any) -> None:
        raise ValueError("x" * MAX_UNWRITTEN_BYTES)

    await jobs.add_many("fail", 5)
    await jobs.connection.execute(SLOW_WRITES)
    runner = await workers.start({"fail": fail}, events=recorder.events)
    await recorder.wait_for(JobErrored)
    await workers.stop(runner)
    assert await jobs.locked() == 0


async def test_large_payloads_count_too(
    small: None, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    payload = {"text": "x" * (MAX_UNWRITTEN_BYTES // 4)}
    for _ in range(8):
        await jobs.add("quick", payload)

    async def quick(payload: Any) -> None:
        pass

    await workers.once({"quick": quick}, events=recorder.events)
    assert recorder.count(JobSucceeded) == 8


def _failure(size: int) -> Any:
    job = type("AJob", (), {"raw_payload": "", "last_error": None})()
    return Finished(job, failed(ValueError("no"), None, "x" * size), "worker", 0.0)


@pytest.mark.parametrize(
    ("sizes", "room", "fit"),
    [
        ([], 5, 0),
        ([10] * 8, 5, 5),
        ([10] * 3, 5, 3),
        ([10] * 3, 0, 0),
        ([MAX_WRITE_BYTES // 2 - 100] * 3, 5, 2),
        ([2 * MAX_WRITE_BYTES, 10], 5, 1),
        ([10, 2 * MAX_WRITE_BYTES], 5, 1),
    ],
)
def test_a_statement_is_bounded_in_size(sizes: list[int], room: int, fit: int) -> None:
    assert write_size([_failure(size) for size in sizes], room) == fit


async def test_batches_with_much_left_to_do_are_written(
    small: None, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Together they are too large for one statement."""
    items = ["x" * 100_000] * 3

    async def some(payload: Any) -> Any:
        return [ValueError("no")] * len(payload)

    for _ in range(20):
        await jobs.add("some", items, max_attempts=1)
    await workers.once({"some": some}, concurrency=20, events=recorder.events)
    assert recorder.count(JobErrored) == 20
    assert {len(row["payload"]) > 300_000 for row in await jobs.all()} == {True}

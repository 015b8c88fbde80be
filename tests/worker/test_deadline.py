"""A deadline ends work that takes too long, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from graphile_worker.worker.deadline import Deadline

SOON, NEVER = 0.01, 600.0


@pytest.fixture
async def deadline() -> AsyncIterator[Deadline]:
    deadline = Deadline()
    yield deadline
    deadline.stop()


async def work(deadline: Deadline, seconds: float, waits_for: asyncio.Event | None) -> str:
    """What the session does: `missed`, `cancelled` or `done`."""
    deadline.begin(seconds)
    try:
        try:
            if waits_for is not None:
                await waits_for.wait()
        finally:
            deadline.end()
    except asyncio.CancelledError as error:
        if deadline.was_missed(error):
            return "missed"
        raise
    return "done"


def pending_cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_work_that_takes_too_long_is_ended(deadline: Deadline) -> None:
    assert await work(deadline, SOON, asyncio.Event()) == "missed"
    assert pending_cancellations() == 0


async def test_a_shorter_one_does_not_wait_for_the_timer_of_a_longer_one(deadline: Deadline) -> None:
    assert await work(deadline, NEVER, None) == "done"
    assert await work(deadline, SOON, asyncio.Event()) == "missed"


async def test_a_longer_one_is_not_ended_by_the_timer_of_a_shorter_one(deadline: Deadline) -> None:
    assert await work(deadline, SOON, None) == "done"
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(5 * SOON, event.set)
    assert await work(deadline, NEVER, event) == "done"


async def test_after_the_work_nobody_is_cancelled(deadline: Deadline) -> None:
    assert await work(deadline, SOON, None) == "done"
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(5 * SOON, later.set)
    await later.wait()
    assert pending_cancellations() == 0


async def test_who_is_cancelled_by_others_is_told_so(deadline: Deadline) -> None:
    task = asyncio.create_task(work(deadline, NEVER, asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_of_others_is_not_taken_for_the_end_of_the_time(deadline: Deadline) -> None:
    """Both come before the task runs again."""

    async def both() -> str:
        me = asyncio.current_task()
        assert me is not None
        asyncio.get_running_loop().call_later(SOON / 2, me.cancel)
        blocked = asyncio.Event()
        deadline.begin(SOON)
        try:
            try:
                await blocked.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await blocked.wait()  # until the time is up as well
                raise
            finally:
                deadline.end()
        except asyncio.CancelledError as error:
            return "missed" if deadline.was_missed(error) else "cancelled"

    assert await asyncio.create_task(both()) == "cancelled"

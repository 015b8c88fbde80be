"""A deadline ends work that takes too long, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from graphile_worker.worker import session as module
from graphile_worker.worker.session import Deadline
from support.working import PATIENCE

SOON, NEVER = 0.01, 600.0


@pytest.fixture
async def deadline() -> AsyncIterator[Deadline]:
    deadline = Deadline()
    yield deadline
    deadline.stop()


async def work(deadline: Deadline, seconds: float, waits_for: asyncio.Event | None) -> str:
    """Work as a session does it; returns `missed` or `done`."""
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


async def test_so_is_work_that_waits_again_while_it_ends(
    deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As transactions do: their rollback may get no answer either."""
    monkeypatch.setattr(module, "CLEAN_UP_WITHIN", SOON)

    class Stubborn(asyncio.Event):
        async def wait(self) -> Literal[True]:
            try:
                return await super().wait()
            finally:
                await super().wait()

    async with asyncio.timeout(PATIENCE):
        assert await work(deadline, SOON, Stubborn()) == "missed"
    assert pending_cancellations() == 0


async def test_a_shorter_one_does_not_wait_for_the_timer_of_a_longer_one(deadline: Deadline) -> None:
    assert await work(deadline, NEVER, None) == "done"
    assert await work(deadline, SOON, asyncio.Event()) == "missed"


async def test_a_longer_one_is_not_ended_by_the_timer_of_a_shorter_one(deadline: Deadline) -> None:
    assert await work(deadline, SOON, None) == "done"
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(5 * SOON, event.set)
    assert await work(deadline, NEVER, event) == "done"


async def test_after_the_work_nothing_is_cancelled(deadline: Deadline) -> None:
    assert await work(deadline, SOON, None) == "done"
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(5 * SOON, later.set)
    await later.wait()
    assert pending_cancellations() == 0


async def test_a_cancellation_by_others_is_raised(deadline: Deadline) -> None:
    task = asyncio.create_task(work(deadline, NEVER, asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_by_others_is_not_taken_for_a_timeout(deadline: Deadline) -> None:
    """The work is cancelled, and its deadline passes before it has ended."""

    async def both() -> str:
        me = asyncio.current_task()
        assert me is not None
        asyncio.get_running_loop().call_soon(me.cancel)
        blocked = asyncio.Event()
        deadline.begin(SOON)
        try:
            try:
                await blocked.wait()
            except asyncio.CancelledError:
                if me.cancelling() < 2:  # on a slow machine the deadline has passed already
                    with pytest.raises(asyncio.CancelledError):
                        await blocked.wait()
                raise
            finally:
                deadline.end()
        except asyncio.CancelledError as error:
            assert me.cancelling() == 1
            return "missed" if deadline.was_missed(error) else "cancelled"
        raise AssertionError("the work was not cancelled")

    async with asyncio.timeout(PATIENCE):
        assert await asyncio.create_task(both()) == "cancelled"


@pytest.mark.parametrize("is_cancelled_first", [True, False], ids=["cancelled first", "time up first"])
async def test_a_cancellation_in_the_same_turn_of_the_loop_is_not_lost(
    deadline: Deadline, is_cancelled_first: bool
) -> None:
    """asyncio makes one CancelledError of two cancellations that come before the task runs again."""

    async def both() -> None:
        me = asyncio.current_task()
        assert me is not None

        def in_one_turn() -> None:
            if is_cancelled_first:
                me.cancel()
            deadline._check()
            if not is_cancelled_first:
                me.cancel()

        asyncio.get_running_loop().call_soon(in_one_turn)
        try:
            await work(deadline, 0.0, asyncio.Event())  # time is up at once
        finally:
            left.append(me.cancelling())

    left: list[int] = []
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.create_task(both())
    assert left == [1]

"""The loops that a pool repeats at fixed intervals, on a fake clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.worker.context import REFRESH_TASKS, poll, refresh_tasks


async def test_polls_follow_the_interval() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    polls: list[float] = []
    task = asyncio.create_task(poll(lambda: polls.append(clock.monotonic()), clock, 2.0))
    await asyncio.sleep(0)
    for _ in range(7):
        await clock.advance(1)
    task.cancel()
    assert polls == [2.0, 4.0, 6.0]


async def test_task_names_are_refreshed_although_it_failed_before() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    errors: list[BaseException] = []
    attempts = 0

    async def register() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("unavailable")

    task = asyncio.create_task(refresh_tasks(register, clock, errors.append))
    await asyncio.sleep(0)
    for _ in range(2):
        await clock.advance(REFRESH_TASKS)
    task.cancel()
    assert attempts == 2
    assert [str(error) for error in errors] == ["unavailable"]

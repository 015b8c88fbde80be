"""FakeClock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from graphile_worker.testing.fake_clock import FakeClock

START = datetime(2021, 1, 1, 1, tzinfo=UTC)


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(START)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    await clock.advance(90)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=90), 90.0)
    await clock.advance(timedelta(minutes=1))
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=150), 150.0)


async def test_a_start_in_another_zone_is_kept_in_utc_and_one_without_a_zone_is_refused() -> None:
    clock = FakeClock(START.astimezone(timezone(timedelta(hours=3))))
    assert clock.now() == START
    assert clock.now().tzinfo is UTC
    with pytest.raises(ValueError, match="time zone"):
        FakeClock(datetime(2021, 1, 1))


async def test_sleepers_wake_when_their_time_has_come_earliest_first() -> None:
    clock = FakeClock(START)
    woken: list[int] = []

    async def sleep(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (30, 10, 20, 40):
            group.create_task(sleep(seconds))
        await clock.until_sleeping(4)
        await clock.advance(9.999)
        assert woken == []
        await clock.advance(20.001)
        assert woken == [10, 20, 30]
        assert clock.sleeping == 1
        await clock.advance(10)
    assert woken == [10, 20, 30, 40]


async def test_advancing_waits_until_those_woken_sleep_again() -> None:
    clock = FakeClock(START)
    steps: list[str] = []

    async def work() -> None:
        while True:
            await clock.sleep(60)
            for step in range(3):
                await asyncio.sleep(0.001)  # work that takes real time
                steps.append(f"{clock.now():%H:%M} {step}")

    task = asyncio.create_task(work())
    await clock.until_sleeping()
    await clock.advance(60)
    assert steps == ["01:01 0", "01:01 1", "01:01 2"]
    await clock.set(START + timedelta(hours=2))
    assert steps[3:] == ["03:00 0", "03:00 1", "03:00 2"]
    task.cancel()


async def test_a_task_that_never_sleeps_is_reported() -> None:
    clock = FakeClock(START)

    async def work() -> None:
        await clock.sleep(1)
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await clock.until_sleeping()
    with pytest.raises(TimeoutError):
        await clock.advance(1, timeout=0.05)
    task.cancel()


async def test_the_wall_clock_can_go_back_and_jump_without_waking_anybody() -> None:
    clock = FakeClock(START)
    task = asyncio.create_task(clock.sleep(60))
    await clock.until_sleeping()
    await clock.set(START - timedelta(hours=1))
    clock.jump(timedelta(days=1))
    clock.jump(-30)
    assert clock.now() == START + timedelta(hours=22, minutes=59, seconds=30)
    assert clock.monotonic() == 0
    assert clock.sleeping == 1
    await clock.advance(60)
    assert task.done()


async def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        await FakeClock(START).advance(-1)


async def test_sleeping_for_no_time_yields_once() -> None:
    await FakeClock(START).sleep(0)
    await FakeClock(START).sleep(-1)


async def test_a_sleeper_that_is_cancelled_is_forgotten() -> None:
    clock = FakeClock(START)
    task = asyncio.create_task(clock.sleep(60))
    await clock.until_sleeping()
    task.cancel()
    await asyncio.wait([task])
    assert clock.sleeping == 0

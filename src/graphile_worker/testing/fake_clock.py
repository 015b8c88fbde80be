"""FakeClock: a Clock that only moves when a test moves it, so that a day takes milliseconds.

Moving it wakes the tasks whose sleep is over, and waits until each of them sleeps again or has ended. Then
the test can check the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_PATIENCE = 60.0  # real seconds after which a waiting test is considered stuck


@dataclass(slots=True)
class _Sleeper:
    deadline: float
    alarm: asyncio.Future[None]
    task: asyncio.Task[Any] | None


class FakeClock:
    """Wall time and monotonic time under the control of a test, for the tasks of one event loop."""

    is_led = True

    def __init__(self, start: datetime) -> None:
        self._now = _in_utc(start)
        self._monotonic = 0.0
        self._sleepers: list[_Sleeper] = []
        self._changed = asyncio.Event()

    # -- the Clock protocol --------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        alarm = asyncio.get_running_loop().create_future()
        sleeper = _Sleeper(self._monotonic + seconds, alarm, asyncio.current_task())
        self._sleepers.append(sleeper)
        self._changed.set()
        try:
            await alarm
        finally:
            if sleeper in self._sleepers:  # cancelled
                self._sleepers.remove(sleeper)

    # -- for tests -----------------------------------------------------------------------------------------

    @property
    def sleeping(self) -> int:
        """Number of tasks that sleep on this clock."""
        return len(self._sleepers)

    async def advance(self, by: timedelta | float, *, timeout: float = _PATIENCE) -> None:
        """Move time forward, wake the tasks that are due, and wait until they sleep again or have ended."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else float(by)
        if seconds < 0:
            raise ValueError("time cannot pass backwards; use jump or set to move the wall clock back")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        await self._settle(timeout)

    async def set(self, moment: datetime, *, timeout: float = _PATIENCE) -> None:
        """Move the wall clock to a moment: forward like `advance`, or back like `jump`."""
        by = _in_utc(moment) - self._now
        if by < timedelta():
            self.jump(by)
        else:
            await self.advance(by, timeout=timeout)

    def jump(self, by: timedelta | float) -> None:
        """Move the wall clock forward or back without letting time pass; no task wakes."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)

    async def until_sleeping(self, count: int = 1, *, timeout: float = _PATIENCE) -> None:
        """Wait until at least `count` tasks sleep on this clock."""
        await self._until(lambda: len(self._sleepers) >= count, timeout)

    async def _settle(self, timeout: float) -> None:
        while due := [sleeper for sleeper in self._sleepers if sleeper.deadline <= self._monotonic]:
            # One by one, earliest first, so that the order is deterministic.
            sleeper = min(due, key=lambda each: each.deadline)
            self._sleepers.remove(sleeper)
            sleeper.alarm.set_result(None)
            await self._until(lambda task=sleeper.task: self._is_at_rest(task), timeout)  # type: ignore[misc]

    def _is_at_rest(self, task: asyncio.Task[Any] | None) -> bool:
        return task is None or task.done() or any(sleeper.task is task for sleeper in self._sleepers)

    async def _until(self, condition: Callable[[], bool], timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                # The end of a task does not set the event, so check again after a short wait.
                try:
                    async with asyncio.timeout(0.005):
                        await self._changed.wait()
                except TimeoutError:
                    continue


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"FakeClock needs a datetime with a time zone, got {moment!r}")
    return moment.astimezone(UTC)

"""The source of time. Polling, retries, recurring jobs and recovery use a Clock, which tests can control.

Timeouts, watermarks and prefetching use real time.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time, and sleep. Tests replace it."""

    def now(self) -> datetime:
        """The wall time, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences are meaningful."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds of this clock."""
        ...


def is_led(clock: Clock) -> bool:
    """Whether a test controls the clock, so that it is right whatever the server says."""
    return bool(getattr(clock, "is_led", False))


def uptime() -> float:
    """Seconds since boot, including the time that the machine was suspended; the same in all threads."""
    return time.clock_gettime(_UPTIME)


_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

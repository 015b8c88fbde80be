"""Where time comes from. What a test wants to move takes a Clock: polling, retries, recurring jobs, recovery.

Timers that only limit how long something may take go by real time, and so do marks and prefetching.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time, and waiting."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of this clock."""
        ...


def uptime() -> float:
    """Seconds that never go back and also count while the machine sleeps, for all threads of a process."""
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

"""GuardedClock: a clock that the application passed. Where it fails, the machine's clock is used."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from ..clock import Clock, SystemClock
from ..faults import is_our_end, report

logger = logging.getLogger("graphile_worker.worker")


class GuardedClock:
    """Whatever the clock raises is logged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._machine = SystemClock()

    def now(self) -> datetime:
        """The wall time."""
        try:
            return self._clock.now()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.now()

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        try:
            return self._clock.monotonic()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        try:
            await self._clock.sleep(seconds)
        except BaseException as error:
            if is_our_end(error):
                raise
            report(logger, "the clock failed", error=error)
            await asyncio.sleep(seconds)

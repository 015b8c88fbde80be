"""Periodic: calls a function on the worker's event loop at intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..clock import Clock
from ..db.errors import explained
from ..faults import is_our_end
from ..supervised import Supervised

STOP_TIMEOUT = 2.0  # seconds for a call in progress

logger = logging.getLogger("graphile_worker.recovery")


class Periodic:
    """One loop. An error is logged once until a call succeeds again."""

    def __init__(
        self,
        what: str,
        function: Callable[[], Awaitable[float]],
        clock: Clock,
        *,
        first_after: float,
        stop_timeout: float | None = STOP_TIMEOUT,
    ) -> None:
        """`function` returns the seconds until its next call; `what` names it in log lines.

        `stop_timeout`: how long `stop` waits for a call in progress before it cancels it; None for no limit.
        """
        self._what = what
        self._function = function
        self._clock = clock
        self._delay = first_after
        self._stop_timeout = stop_timeout
        self._is_failing = False
        self._sleep: asyncio.Future[None] | None = None
        self._stop_requested = asyncio.Event()
        self._loop = Supervised(self._run, what, is_over=self._stop_requested.is_set)

    def start(self) -> None:
        """Start the loop; the first call comes after `first_after`."""
        self._loop.start()

    def begin_to_stop(self) -> None:
        """Start no further call."""
        self._stop_requested.set()
        if self._sleep is not None:
            self._sleep.cancel()

    async def stop(self) -> None:
        """End the loop after a call in progress."""
        self.begin_to_stop()
        await self._loop.end(within=self._stop_timeout)

    async def _run(self) -> None:
        while not self._stop_requested.is_set():
            self._sleep = asyncio.ensure_future(self._clock.sleep(self._delay))
            try:
                await asyncio.wait((self._sleep,))
            finally:
                self._sleep.cancel()
            if self._stop_requested.is_set():
                return
            try:
                self._delay = await self._function()
                self._is_failing = False
            except BaseException as error:
                if is_our_end(error):
                    raise
                if self._stop_requested.is_set():
                    return
                if not self._is_failing:
                    logger.warning("%s failed: %s; retrying", self._what, explained(error))
                self._is_failing = True

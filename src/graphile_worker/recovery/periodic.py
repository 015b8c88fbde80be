"""Periodic: does something again and again on the worker's event loop, each time after a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ..clock import Clock
from ..db.errors import explained

END_WITHIN = 2.0  # seconds for a turn that has begun

logger = logging.getLogger("graphile_worker.recovery")


class Periodic:
    """One loop; an error of one turn is logged, once until a turn succeeds again."""

    def __init__(
        self, what: str, turn: Callable[[], Awaitable[float]], clock: Clock, *, first_after: float
    ) -> None:
        """`turn` returns the seconds until the next one; `what` names it in messages."""
        self._what = what
        self._turn = turn
        self._clock = clock
        self._delay = first_after
        self._after_error = first_after
        self._is_failing = False
        self._stop_asked = asyncio.Event()
        self._waiting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with a wait."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"graphile-worker {self._what}")

    def begin_to_stop(self) -> None:
        """Begin no other turn."""
        self._stop_asked.set()
        if self._waiting is not None:
            self._waiting.cancel()

    async def stop(self) -> None:
        """The same, and wait for a turn that has begun; not for long."""
        self.begin_to_stop()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=END_WITHIN)
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while not self._stop_asked.is_set():
            self._waiting = asyncio.ensure_future(self._clock.sleep(self._delay))
            try:
                await asyncio.wait((self._waiting,))
            finally:
                self._waiting.cancel()
            if self._stop_asked.is_set():
                return
            try:
                self._delay = await self._turn()
                self._is_failing = False
            except Exception as error:
                if self._stop_asked.is_set():
                    return
                if not self._is_failing:
                    logger.warning("%s failed: %s; trying again", self._what, explained(error))
                self._is_failing = True

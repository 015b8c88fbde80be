"""Connecting: the connection of an executor to a cluster, made again after it was lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Generic, TypeVar

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the cluster could not be reached

T = TypeVar("T")


class Connecting(Generic[T]):
    """Connects when it is needed. All who wait share an attempt; the one after a failure waits longer."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, T]], is_open: Callable[[T], bool]) -> None:
        self._connect = connect
        self._is_open = is_open
        self._attempt: asyncio.Task[T] | None = None
        self._pause = FIRST_PAUSE
        self._may_connect_at = 0.0
        self.current: T | None = None
        """The last connection, perhaps lost."""

    async def get(self) -> T:
        """An open connection; raises why there is none."""
        if self.current is not None and self._is_open(self.current):
            return self.current
        if self._attempt is None:
            # Not in the context of the job that happens to cause it.
            self._attempt = asyncio.get_running_loop().create_task(self._try(), context=Context())
            self._attempt.add_done_callback(self._tried)
        return await asyncio.shield(self._attempt)

    def stop(self) -> None:
        """Give up an attempt."""
        if self._attempt is not None:
            self._attempt.cancel()

    async def _try(self) -> T:
        if (wait := self._may_connect_at - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        return await self._connect()

    def _tried(self, attempt: asyncio.Task[T]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        if attempt.exception() is None:
            self.current, self._pause = attempt.result(), FIRST_PAUSE
        else:
            self._may_connect_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

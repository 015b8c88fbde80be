"""Reporter: what a worker process reports from its event loop, to systemd or to its parent process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from ...hooks import Hooks, WorkerContext
from ...hooks.events import GracefulShutdown, Stopped
from ...hooks.faults import Supervised
from ...hooks.hooks import LivePool

STATUS_INTERVAL = 10.0  # seconds


class Receiver(Protocol):
    """Where reports go."""

    def ready(self, slots: int) -> None: ...

    def status(self, running: int, slots: int) -> None: ...

    def alive(self) -> None: ...

    def stopping(self) -> None: ...

    def reloading(self) -> None: ...


class Reporter:
    """A plugin that learns what the worker does, and a context in which that is reported.

    The watchdog gets a sign of life three times in its period, from the event loop: a blocked one is silent.
    """

    def __init__(self, receiver: Receiver, watchdog: float | None, *, may_reload: Callable[[], bool]) -> None:
        self._receiver = receiver
        self._watchdog = watchdog
        self._may_reload = may_reload
        self._pool: LivePool | None = None
        self._is_stopping = False
        self._loop = Supervised(self._report, "systemd")

    def install(self, hooks: Hooks) -> None:
        """Observe the shutdown."""
        hooks.events.on(GracefulShutdown, lambda event: self._stop(event.signal))
        hooks.events.on(Stopped, lambda _: self._stop(None))

    async def start(self, worker: WorkerContext) -> None:
        """Learn about the pool."""
        self._pool = worker.pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._loop.stop()

    def ready(self) -> None:
        """The worker has started."""
        if self._pool is not None and not self._is_stopping:
            self._receiver.ready(self._pool.concurrency)
        self._loop.start()

    def _stop(self, signal_name: str | None) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        if signal_name == "SIGHUP" and self._may_reload():
            self._receiver.reloading()
        else:
            self._receiver.stopping()

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        pause = STATUS_INTERVAL if self._watchdog is None else min(STATUS_INTERVAL, self._watchdog / 3)
        shown_at = loop.time()
        while True:
            if self._watchdog is not None:
                self._receiver.alive()
            if self._pool is not None and not self._is_stopping and loop.time() - shown_at >= STATUS_INTERVAL:
                shown_at = loop.time()
                self._receiver.status(len(self._pool.running), self._pool.concurrency)
            await asyncio.sleep(pause)

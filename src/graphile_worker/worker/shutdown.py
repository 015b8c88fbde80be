"""SignalHandling: from the operating system's signals, and a closed output, to stopping every worker.

One set of handlers serves all workers of the process; it is installed with the first and removed with the
last. The first signal stops gracefully. Signals in the next five seconds are ignored, because people and
supervisors send them twice; after that one more signal stops by force.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from typing import Any, Protocol

from ..errors import WorkerStoppedError
from ..hooks import Events
from ..hooks.events import ForcefulShutdown, GracefulShutdown

SIGNALS = ("SIGUSR2", "SIGINT", "SIGTERM", "SIGHUP", "SIGABRT")
IGNORE_FOR = 5.0  # seconds after a signal during which further ones do not count

logger = logging.getLogger("graphile_worker.worker")


class Stoppable(Protocol):
    """A worker, as the signals see it."""

    def stop_by_signal(self, message: str) -> None: ...

    def kill_by_signal(self, message: str) -> None: ...


class SignalHandling:
    """The handlers of one event loop, and the workers that they stop."""

    def __init__(self, *, ignore_for: float = IGNORE_FOR) -> None:
        self._ignore_for = ignore_for
        self._workers: dict[Stoppable, Events] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._previous: dict[int, Any] = {}
        self._stopped_at: float | None = None
        self._killed_at: float | None = None
        self.received: int | None = None
        """The first signal that arrived; the process should end with it."""

    def add(self, worker: Stoppable, events: Events) -> None:
        """Let signals stop this worker too."""
        if self._stopped_at is not None:
            raise WorkerStoppedError("the process is stopping because of a signal; no worker can start now")
        if not self._workers:
            self._install()
        self._workers[worker] = events

    def remove(self, worker: Stoppable) -> None:
        """The worker has ended; with the last one the handlers go."""
        self._workers.pop(worker, None)
        if not self._workers:
            self._uninstall()

    def output_closed(self) -> None:
        """Nobody reads what we print any more: stop as if by a signal."""
        if self._loop is not None and self._workers:
            self._loop.call_soon_threadsafe(self._handle, None, "SIGPIPE")

    def _install(self) -> None:
        self._loop = asyncio.get_running_loop()
        for name in SIGNALS:
            number = getattr(signal, name)
            previous = signal.getsignal(number)
            try:
                self._loop.add_signal_handler(number, self._handle, number, name)
            except (NotImplementedError, RuntimeError, ValueError):
                # Only the main thread can; a worker elsewhere is stopped by its owner.
                logger.debug("signals are not handled here, because this is not the main thread")
                break
            self._previous[number] = previous

    def _uninstall(self) -> None:
        for number, previous in self._previous.items():
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_signal_handler(number)
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()
        self._loop = None
        self._stopped_at = self._killed_at = None

    def _handle(self, number: int | None, name: str) -> None:
        now = time.monotonic()
        last = self._killed_at or self._stopped_at
        if last is not None and now - last < self._ignore_for:
            logger.warning("%s ignored: the worker is stopping already", name)
            return
        if self._stopped_at is None:
            self._stopped_at = now
            self.received = number
            self._tell(GracefulShutdown(signal=name))
            for worker in list(self._workers):
                worker.stop_by_signal(f"the worker got {name} and stops")
        elif self._killed_at is None:
            self._killed_at = now
            self._tell(ForcefulShutdown(signal=name))
            for worker in list(self._workers):
                worker.kill_by_signal(f"Forced worker shutdown due to {name}")
        else:  # a third one: the default action
            self._uninstall()
            os.kill(os.getpid(), number if number is not None else signal.SIGTERM)

    def _tell(self, event: GracefulShutdown | ForcefulShutdown) -> None:
        for events in {id(events): events for events in self._workers.values()}.values():
            events.emit(event)


_handlings: dict[asyncio.AbstractEventLoop, SignalHandling] = {}


def signal_handling() -> SignalHandling:
    """The one of the running loop; signals belong to the process, so all its workers share it."""
    loop = asyncio.get_running_loop()
    for other in [known for known in _handlings if known.is_closed()]:
        del _handlings[other]
    return _handlings.setdefault(loop, SignalHandling())

"""SignalHandling: from the operating system's signals, and a closed output, to stopping every worker.

One set of handlers serves all workers of an event loop; it is installed with the first and removed with the
last. The first signal stops gracefully. Signals in the next five seconds are ignored, because people and
supervisors send them twice; after that one more signal stops by force, and another one ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from typing import Any, ClassVar, Protocol

from ..errors import WorkerStoppedError
from ..hooks import Events
from ..hooks.emitter import emit_once
from ..hooks.events import ForcefulShutdown, GracefulShutdown

SIGNALS = (signal.SIGUSR2, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)

logger = logging.getLogger("graphile_worker.worker")


class Stoppable(Protocol):
    """A worker, as the signals see it."""

    def stop_by_signal(self, message: str) -> None: ...

    def kill_by_signal(self, message: str) -> None: ...


class SignalHandling:
    """The handlers of one event loop, and the workers that they stop."""

    ignore_for: ClassVar[float] = 5.0
    """Seconds after a signal that counted during which further ones do not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: dict[Stoppable, Events] = {}
        self._previous: dict[signal.Signals, Any] = {}
        self._stopped_at: float | None = None
        self._killed_at: float | None = None
        self.received: signal.Signals | None = None
        """The first signal that arrived; the process should end with it."""

    def check(self) -> None:
        """Raise if no worker can start, because the others are being stopped (SD9)."""
        if self._stopped_at is not None:
            raise WorkerStoppedError("the process is stopping because of a signal; no worker can start now")

    def add(self, worker: Stoppable, events: Events) -> None:
        """Let signals stop this worker too."""
        self.check()
        if not self._workers:
            self.received = None
            self._install()
        self._workers[worker] = events

    def remove(self, worker: Stoppable) -> None:
        """The worker has ended; with the last one the handlers go, and what was there before returns."""
        if self._workers.pop(worker, None) is not None and not self._workers:
            self._uninstall()

    def stop(self, message: str) -> bool:
        """Stop every worker gracefully without a signal; whether there is one."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        for worker in list(self._workers):
            worker.stop_by_signal(message)
        return bool(self._workers)

    def output_closed(self) -> None:
        """Nobody reads what we print any more: stop as if by a signal. May be called in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._handle, signal.SIGPIPE)

    def _install(self) -> None:
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if number is signal.SIGHUP and previous is signal.SIG_IGN:
                continue  # started by nohup: it is to outlive its terminal
            try:
                self._loop.add_signal_handler(number, self._handle, number)
            except (NotImplementedError, RuntimeError, ValueError):
                # Only the main thread can; a worker elsewhere is stopped by its owner.
                logger.debug("signals are not handled here, because this is not the main thread")
                return
            self._previous[number] = previous

    def _uninstall(self) -> None:
        for number, previous in self._previous.items():
            if not self._loop.is_closed():
                self._loop.remove_signal_handler(number)
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()
        _forget(self)

    def _handle(self, number: signal.Signals) -> None:
        if not self._workers:  # a signal that was under way when the last worker ended
            return
        now = time.monotonic()
        last = self._killed_at or self._stopped_at
        if last is not None and now - last < self.ignore_for:
            logger.warning("%s ignored: the worker is stopping already", number.name)
        elif self._stopped_at is None:
            self._stopped_at, self.received = now, number
            self._tell(GracefulShutdown(signal=number.name))
            for worker in list(self._workers):
                worker.stop_by_signal(f"the worker got {number.name} and stops")
        elif self._killed_at is None:
            self._killed_at = now
            self._tell(ForcefulShutdown(signal=number.name))
            for worker in list(self._workers):
                worker.kill_by_signal(f"Forced worker shutdown due to {number.name}")
        else:  # not even that helped: what the signal does by default
            self._uninstall()
            signal.raise_signal(number)

    def _tell(self, event: GracefulShutdown | ForcefulShutdown) -> None:
        emit_once(list(self._workers.values()), event)


# Signals belong to the process, not to an object that could be passed around; so do these.
_handlings: dict[asyncio.AbstractEventLoop, SignalHandling] = {}
_lock = threading.Lock()


def signal_handling() -> SignalHandling:
    """The one of the running loop; it is forgotten when its last worker has ended."""
    loop = asyncio.get_running_loop()
    with _lock:
        for closed in [known for known in _handlings if known.is_closed()]:
            del _handlings[closed]
        return _handlings.setdefault(loop, SignalHandling(loop))


def stop_workers(message: str) -> bool:
    """Stop every worker of the running loop that signals would stop; whether there is one."""
    with _lock:
        handling = _handlings.get(asyncio.get_running_loop())
    return handling is not None and handling.stop(message)


def output_closed() -> None:
    """Standard output or error has lost its reader: stop every worker. May be called in any thread."""
    with _lock:
        handlings = list(_handlings.values())
    for handling in handlings:
        handling.output_closed()


def _forget(handling: SignalHandling) -> None:
    with _lock:
        for loop in [loop for loop, known in _handlings.items() if known is handling]:
            del _handlings[loop]

"""SignalHandling: stops every worker of an event loop on a signal or when its output is closed.

The handlers are installed with the first worker and removed with the last. The first signal begins a graceful
shutdown. Signals in the next five seconds are ignored, because people and supervisors send them twice. After
that the next signal forces the shutdown, and one more ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from types import FrameType
from typing import Any, ClassVar, Protocol

from ..errors import WorkerStoppedError
from ..hooks import Events
from ..hooks.emitter import emit_once
from ..hooks.events import ForcefulShutdown, GracefulShutdown

SIGNALS = (signal.SIGUSR2, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)

logger = logging.getLogger("graphile_worker.worker")


class Stoppable(Protocol):
    """A worker that signals can stop."""

    def stop_by_signal(self, message: str) -> None: ...

    def kill_by_signal(self, message: str) -> None: ...

    def exit_if_blocked(self, margin: float | None, number: int) -> None: ...


class SignalHandling:
    """The signal handlers of one event loop and the workers that they stop."""

    ignore_for: ClassVar[float] = 5.0
    """Seconds after a signal during which further signals are ignored."""

    exit_margin: ClassVar[float | None] = None
    """Seconds after the grace at which the process ends if the event loop is blocked; None: never.

    For programs that are nothing but a worker: the command sets it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: dict[Stoppable, Events] = {}
        self._previous: dict[signal.Signals, Any] = {}
        self._stopped_at: float | None = None
        self._killed_at: float | None = None
        self._noted_at: float | None = None
        self.received: signal.Signals | None = None
        """The first signal; the process should exit with it."""

    def check(self) -> None:
        """Raise if a signal is stopping the workers, so that no other can start (SD9)."""
        if self._stopped_at is not None:
            raise WorkerStoppedError("the process is stopping because of a signal; no worker can start now")

    def add(self, worker: Stoppable, events: Events) -> None:
        """Stop this worker on signals."""
        self.check()
        if not self._workers:
            self.received = None
            self._install()
        self._workers[worker] = events

    def remove(self, worker: Stoppable) -> None:
        """Forget a worker that has ended; after the last one, restore the previous handlers."""
        if self._workers.pop(worker, None) is not None and not self._workers:
            self._uninstall()

    def stop(self, message: str) -> bool:
        """Stop every worker gracefully, without a signal; False if there is none."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        for worker in list(self._workers):
            worker.stop_by_signal(message)
        return bool(self._workers)

    def output_closed(self) -> None:
        """Stop as on a signal, because the reader of our output is gone. Thread-safe."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._handle, signal.SIGPIPE)

    def _install(self) -> None:
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if number is signal.SIGHUP and previous is signal.SIG_IGN:
                continue  # started by nohup, to outlive its terminal
            try:
                if number is not signal.SIGHUP:
                    self._loop.add_signal_handler(number, self._handle, number)
            except (NotImplementedError, RuntimeError, ValueError):
                # Only the main thread can handle signals; elsewhere the caller stops the worker.
                logger.debug("signals are not handled, because this is not the main thread")
                return
            self._previous[number] = previous
            # The loop is woken by a file descriptor, not by the handler, which it leaves to us.
            signal.signal(number, self._note)
            signal.siginterrupt(number, False)

    def _note(self, number: int, _: FrameType | None) -> None:
        """Called at once, even while the event loop is blocked; `_handle` follows when it turns.

        The loop does not know about SIGHUP. While a loop removes a handler, the signal has its default action
        for a moment, which is to end the process, and one that reloads may get SIGHUP at any time.
        """
        if number == signal.SIGHUP and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._handle, signal.SIGHUP)
        if self.exit_margin is None:
            return
        now = time.monotonic()
        is_second = self._noted_at is not None and now - self._noted_at >= self.ignore_for
        self._noted_at = self._noted_at or now
        for worker in list(self._workers):
            worker.exit_if_blocked(None if is_second else self.exit_margin, number)

    def _uninstall(self) -> None:
        for number, previous in self._previous.items():
            if not self._loop.is_closed():
                self._loop.remove_signal_handler(number)
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()
        _drop(self)

    def _handle(self, number: signal.Signals) -> None:
        if not self._workers:  # the last worker ended after the signal was sent
            return
        if self.received is signal.SIGHUP:
            self.received = number  # one that says stop; after a hang-up a process may reload
        now = time.monotonic()
        last = self._killed_at or self._stopped_at
        if last is not None and now - last < self.ignore_for:
            logger.warning("%s ignored: the worker is stopping already", number.name)
        elif self._stopped_at is None:
            self._stopped_at, self.received = now, number
            self._emit(GracefulShutdown(signal=number.name))
            for worker in list(self._workers):
                worker.stop_by_signal(f"{number.name} received")
        elif self._killed_at is None:
            self._killed_at = now
            self._emit(ForcefulShutdown(signal=number.name))
            for worker in list(self._workers):
                worker.kill_by_signal(f"Forced worker shutdown due to {number.name}")
        else:  # force did not help: let the signal do what it does by default
            self._uninstall()
            signal.raise_signal(number)

    def _emit(self, event: GracefulShutdown | ForcefulShutdown) -> None:
        emit_once(list(self._workers.values()), event)


# Module state, because signals belong to the process and not to any object.
_by_loop: dict[asyncio.AbstractEventLoop, SignalHandling] = {}
_lock = threading.Lock()


def signal_handling() -> SignalHandling:
    """The handling of the running loop; it is dropped when its last worker has ended."""
    loop = asyncio.get_running_loop()
    with _lock:
        for closed in [known for known in _by_loop if known.is_closed()]:
            del _by_loop[closed]
        return _by_loop.setdefault(loop, SignalHandling(loop))


def stop_workers(message: str) -> bool:
    """Stop every worker of the running loop that handles signals; False if there is none."""
    with _lock:
        handling = _by_loop.get(asyncio.get_running_loop())
    return handling is not None and handling.stop(message)


def output_closed() -> None:
    """Stop every worker, because the reader of standard output or error is gone. Thread-safe."""
    with _lock:
        handlings = list(_by_loop.values())
    for handling in handlings:
        handling.output_closed()


def _drop(handling: SignalHandling) -> None:
    with _lock:
        for loop in [loop for loop, known in _by_loop.items() if known is handling]:
            del _by_loop[loop]

"""AbortSignal: how the worker tells running tasks that it wants them to end.

It is set once and never cleared. Coroutines await `wait()`, code in threads calls `wait_blocking()` or looks
at `is_set()` now and then; a task that takes no notice is cancelled some time later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class AbortSignal:
    """An event for coroutines and threads at once, with the reason why it was set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], object]] = {}
        self.reason: str = ""
        """Why the task should end; empty until the signal is set."""

    def is_set(self) -> bool:
        """Whether the worker wants the task to end."""
        return self._event.is_set()

    def set(self, reason: str = "the worker is stopping") -> None:
        """Tell everybody, from any thread; only the first call counts."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()

    async def wait(self) -> None:
        """Return when the signal is set."""
        if self._event.is_set():
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def release() -> None:
            if not waiter.done():
                waiter.set_result(None)

        forget = self.on_set(lambda: loop.call_soon_threadsafe(release))
        try:
            await waiter
        finally:
            forget()

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until the signal is set or the time is over; returns whether it is set.

        For tasks that are plain functions: `helpers.abort_signal.wait_blocking(0.5)` is a sleep that ends
        early. In a coroutine it would block the whole worker; await `wait()` there.
        """
        return self._event.wait(timeout)

    def on_set(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the signal is set, in the thread that sets it; at once if it is set already.

        Returns a function that forgets the callback.
        """
        key = object()
        with self._lock:
            is_set = self._event.is_set()
            if not is_set:
                self._callbacks[key] = callback
        if is_set:
            callback()

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

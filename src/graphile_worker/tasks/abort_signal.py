"""AbortSignal: asks running tasks to end.

It is set once and never cleared. Coroutines await `wait()`; code in threads calls `wait_blocking()` or checks
`is_set()` from time to time. A task that ignores the signal is cancelled later.

The worker has one signal. Each job has one of its own that follows the worker's, made on first use.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from ..values.job import current_helpers

logger = logging.getLogger("graphile_worker.tasks")

_Callback = tuple[Callable[[], object], Any]


class AbortSignal:
    """An event for coroutines and threads alike, with the reason why it was set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[object, _Callback] = {}
        self._children: WeakSet[AbortSignal] | None = None
        self._is_inherited = False  # set because the parent was set
        self._cause: Any = None  # why the worker ends this job alone
        self._grace: float | None = None  # seconds that the job has then
        self.reason: str = ""
        """Why the task should end; empty until the signal is set."""

    def is_set(self) -> bool:
        """Whether the task is asked to end."""
        return self._event.is_set()

    def set(self, reason: str = "the worker is stopping") -> None:
        """Ask the tasks to end. May be called from any thread; only the first call counts."""
        for callback in self._set(reason, is_inherited=False):
            _call(*callback)

    async def wait(self) -> None:
        """Return when the signal is set."""
        if self._event.is_set():
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def release() -> None:
            if not waiter.done():
                waiter.set_result(None)

        remove = self.on_set(lambda: loop.call_soon_threadsafe(release))
        try:
            await waiter
        finally:
            remove()

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until the signal is set or the timeout expires; returns whether it is set.

        For tasks that are plain functions: `helpers.abort_signal.wait_blocking(0.5)` is a sleep that ends
        early. In a coroutine it would block the whole worker; await `wait()` there.
        """
        return self._event.wait(timeout)

    def on_set(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` in the thread that sets the signal, or now if it is set already.

        Returns a function that removes the callback.
        """
        key = object()
        with self._lock:
            is_set = self._event.is_set()
            if not is_set:
                self._callbacks[key] = callback, current_helpers.get(None)
        if is_set:
            callback()

        def remove() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return remove

    def _child(self) -> AbortSignal:
        """A signal that is set with this one, and can be set alone. Held weakly: it ends with its job."""
        child = AbortSignal()
        with self._lock:
            is_set = self._event.is_set()
            if not is_set:
                if self._children is None:
                    self._children = WeakSet()
                self._children.add(child)
        if is_set:
            child._set(self.reason, is_inherited=True)
        return child

    def _set(self, reason: str, *, is_inherited: bool) -> list[_Callback]:
        """Set this signal and its children, and return all callbacks: they run after everything is set."""
        with self._lock:
            if self._event.is_set():
                return []
            self.reason = reason
            self._is_inherited = is_inherited
            self._event.set()
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
            children, self._children = list(self._children or ()), None
        for child in children:
            callbacks += child._set(reason, is_inherited=True)
        return callbacks


def _call(callback: Callable[[], object], helpers: Any) -> None:
    """Call it; `helpers` are those of the job that added it, if one did."""
    try:
        callback()
    except BaseException:  # sys.exit() too: the callbacks of other jobs must be called
        if helpers is None:
            logger.exception("a callback of an abort signal failed")
        else:
            helpers.logger.exception("a callback of the abort signal failed")

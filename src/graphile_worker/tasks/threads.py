"""TaskThreads: runs tasks that are plain functions, so that they never block the event loop.

The number of threads is bounded by the caller, which runs as many jobs at a time as it has slots. They are
daemon threads: one that is stuck in a task does not keep the process from exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

_Work = tuple[asyncio.Future[Any], contextvars.Context, Callable[..., Any], tuple[Any, ...], str]


class TaskThreads:
    """Reusable threads; at most `size` stay idle, and a new one is started when none is free."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._alive = 0
        self._closed = False
        self._numbers = itertools.count(1)
        self._running: dict[int, tuple[str, asyncio.Future[Any], int]] = {}  # label, future, thread

    def submit(self, label: str, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call the function in a thread, in a copy of this context; `label` describes it.

        Cancelling the future does not stop the thread; its result is dropped.
        """
        if self._closed:
            raise RuntimeError("the threads for tasks are closed: the worker has stopped")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            start_another = self._free == 0
            if not start_another:
                self._free -= 1  # reserve that thread
        self._queue.put((future, contextvars.copy_context(), function, args, label))
        if start_another:
            self._start_thread()
        return future

    @property
    def running(self) -> list[str]:
        """The labels of running calls; after a shutdown, those that could not be ended."""
        return [label for label, _, _ in dict(self._running).values()]  # copied, because threads change it

    def thread_of(self, label: str) -> int | None:
        """The id of the thread that runs the call with this label; None if none does."""
        running = dict(self._running).values()
        return next((thread for name, _, thread in running if name == label), None)

    @property
    def leaked(self) -> dict[str, int]:
        """The labels of running calls that no one waits for, and the ids of their threads."""
        running = dict(self._running).values()
        return {label: thread for label, future, thread in running if future.cancelled()}

    @property
    def count(self) -> int:
        """The number of threads."""
        return self._alive

    def resize(self, size: int) -> None:
        """Let this many threads stay idle from now on, and end those above."""
        with self._lock:
            self._size = size
            surplus = max(0, self._free - size)
            self._free -= surplus
        for _ in range(surplus):
            self._queue.put(None)

    def close(self) -> None:
        """End idle threads now and the others after their call; does not wait."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, 0
        for _ in range(free):
            self._queue.put(None)

    def _start_thread(self) -> None:
        number = next(self._numbers)
        with self._lock:
            self._alive += 1
        name = f"graphile-worker task {number}"
        threading.Thread(target=self._run, args=(number,), name=name, daemon=True).start()

    def _run(self, number: int) -> None:
        thread = threading.get_ident()
        try:
            while (work := self._queue.get()) is not None:
                future, context, function, args, label = work
                self._running[number] = label, future, thread
                # If it was cancelled before it began, it never runs.
                result, error = (None, None) if future.cancelled() else _call(context, function, args)
                self._running.pop(number, None)
                may_stay = self._make_free()
                _deliver(future, result, error)
                # An idle thread must not keep them alive.
                del work, future, context, function, args, result, error
                if not may_stay:
                    return
        finally:
            with self._lock:
                self._alive -= 1

    def _make_free(self) -> bool:
        with self._lock:
            if self._closed or self._free >= self._size:
                return False
            self._free += 1
            return True


def _call(
    context: contextvars.Context, function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function, *args), None
    except StopIteration as error:  # cannot be set on a future
        stopped = RuntimeError("the task raised StopIteration")
        stopped.__cause__ = error
        return None, stopped
    except BaseException as error:  # sys.exit() in a task fails the job
        return None, error


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    with suppress(RuntimeError):  # the event loop is closed: the worker ended without this task
        future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)

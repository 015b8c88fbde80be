"""Reloader: keeps one worker process running the latest code until a signal arrives.

SIGHUP restarts the worker, unless there is a terminal that it comes from.

A worker that ends on its own, for example because its code cannot be imported, is restarted only after a
change: the old code must not keep running silently, nor the broken code restart in a loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from typing import Protocol

from ..reload import has_terminal
from ..signals import forwarded_signals
from .child import WatchedChild
from .files import Changes

KILL_AFTER = 15.0  # seconds after the worker's own grace
BROKEN_PIPE = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""Exit statuses of a worker whose output lost its reader; a new worker would end in the same way."""


class WorkerObserver(Protocol):
    """Gets called when something happens to the worker process."""

    def started(self, pid: int) -> None: ...

    def changed(self, paths: list[str]) -> None: ...

    def reloading(self) -> None: ...

    def ended(self, status: int) -> None: ...

    def stopping(self) -> None: ...


class Reloader:
    """`start` starts a worker process; `refresh` is called before each start to update the watched files."""

    def __init__(
        self,
        start: Callable[[], Awaitable[WatchedChild]],
        changes: Changes,
        observer: WorkerObserver,
        *,
        grace: float,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._changes = changes
        self._observer = observer
        self._kill_after = grace + KILL_AFTER
        self._refresh = refresh
        self._worker: WatchedChild | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._has_terminal = has_terminal()
        self.signal: int | None = None
        """The signal that stopped it."""

    async def run(self) -> None:
        """Run until a signal arrives and the worker has ended."""
        loop = asyncio.get_running_loop()
        handled = forwarded_signals()
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            while not self._stop.is_set():
                await self._one_worker()
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    async def _one_worker(self) -> None:
        """Run one worker until its code changes or a signal arrives."""
        self._reload.clear()
        self._refresh()
        self._changes.take_snapshot()
        worker = self._worker = await self._start()
        self._observer.started(worker.pid)
        ending = asyncio.ensure_future(worker.wait())
        stopping = asyncio.ensure_future(self._stop.wait())
        changing = asyncio.ensure_future(self._changes.wait())
        reloading = asyncio.ensure_future(self._reload.wait())
        restarts = (stopping, changing, reloading)
        try:
            await asyncio.wait((ending, *restarts), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and ending.result() in BROKEN_PIPE:
                self._on_signal(signal.SIGPIPE)
                return
            if ending.done() and not any(each.done() for each in restarts):
                self._observer.ended(ending.result())
                await asyncio.wait(restarts, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._observer.stopping()
            elif reloading.done():
                self._observer.reloading()
            else:
                self._observer.changed(changing.result())
                delete_bytecode(changing.result())
        finally:
            for waiting in restarts:
                waiting.cancel()
            await asyncio.gather(changing, return_exceptions=True)
            await self._end(worker, ending)

    async def _end(self, worker: WatchedChild, ending: asyncio.Future[int]) -> None:
        if not ending.done():
            worker.send(self.signal or signal.SIGTERM)
            await asyncio.wait((ending,), timeout=self._kill_after)
        if not ending.done():
            worker.send(signal.SIGKILL)
        await ending
        self._worker = None

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not self._has_terminal:
            self._reload.set()
        elif self.signal is None:
            self.signal = number
            self._stop.set()
        elif self._worker is not None:  # the worker escalates on repeated signals
            self._worker.send(number)


def delete_bytecode(paths: Iterable[str]) -> None:
    """Delete the compiled form of these files.

    Python takes it for fresh if the source has the same size and time in whole seconds, which is too coarse
    when a file is saved twice in a second.
    """
    for path in paths:
        if path.endswith(".py"):
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(path))

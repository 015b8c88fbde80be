"""Reloader: keeps one worker process on the newest code until a signal ends it.

A worker that ends by itself, because its code cannot be imported or for any other reason, is not started
again before something changes: the old code must not run on in silence, nor the broken one in a loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from typing import Protocol

from ..support.processes import PASSED_ON
from .changes import Changes
from .child import WorkerProcess

KILL_AFTER = 15.0  # seconds beyond the worker's own grace
NOBODY_READS = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""How a worker ends whose output has lost its reader; a new one would find the same."""


class Teller(Protocol):
    """Who says what happens to the worker."""

    def started(self, pid: int) -> None: ...

    def changed(self, paths: list[str]) -> None: ...

    def ended(self, status: int) -> None: ...

    def stopping(self) -> None: ...


class Reloader:
    """`start` makes a worker process, `refresh` is called before each start, for what a change may move."""

    def __init__(
        self,
        start: Callable[[], Awaitable[WorkerProcess]],
        changes: Changes,
        tell: Teller,
        *,
        grace: float,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._changes = changes
        self._tell = tell
        self._patience = grace + KILL_AFTER
        self._refresh = refresh
        self._worker: WorkerProcess | None = None
        self._stop = asyncio.Event()
        self.signal: int | None = None
        """The signal that ended it."""

    async def run(self) -> None:
        """Until a signal arrives; the worker has ended then."""
        loop = asyncio.get_running_loop()
        for number in PASSED_ON:
            loop.add_signal_handler(number, self._got, number)
        try:
            while not self._stop.is_set():
                await self._one_worker()
        finally:
            for number in PASSED_ON:
                loop.remove_signal_handler(number)

    async def _one_worker(self) -> None:
        """Start a worker and see to it until its code has changed or a signal has come."""
        self._refresh()
        self._changes.mark()
        worker = self._worker = await self._start()
        self._tell.started(worker.pid)
        ending = asyncio.ensure_future(worker.wait())
        stopping = asyncio.ensure_future(self._stop.wait())
        changing = asyncio.ensure_future(self._changes.wait())
        try:
            await asyncio.wait((ending, stopping, changing), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and ending.result() in NOBODY_READS:
                self._got(signal.SIGPIPE)
                return
            if ending.done() and not stopping.done() and not changing.done():
                self._tell.ended(ending.result())
                await asyncio.wait((stopping, changing), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._tell.stopping()
            else:
                self._tell.changed(changing.result())
                forget_compiled(changing.result())
        finally:
            stopping.cancel()
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
            await self._end(worker, ending)

    async def _end(self, worker: WorkerProcess, ending: asyncio.Future[int]) -> None:
        if not ending.done():
            worker.send(self.signal or signal.SIGTERM)
            await asyncio.wait((ending,), timeout=self._patience)
        if not ending.done():
            worker.send(signal.SIGKILL)
        await ending
        self._worker = None

    def _got(self, number: int) -> None:
        if self.signal is None:
            self.signal = number
            self._stop.set()
        elif self._worker is not None:  # the worker knows what a second and a third one mean
            self._worker.send(number)


def forget_compiled(paths: Iterable[str]) -> None:
    """Delete what Python keeps of these files in compiled form.

    It takes a compiled file for fresh if size and time in whole seconds are the same, which is too coarse for
    somebody who saves twice in a second.
    """
    for path in paths:
        if path.endswith(".py"):
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(path))


def end_by(number: int) -> int:
    """End this process as the signal would have; returns only if that is ignored."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number

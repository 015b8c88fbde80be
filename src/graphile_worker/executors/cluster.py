"""An executor on a cluster: `Cluster` in the worker, and `run_there` on a machine of the cluster.

`Cluster` connects again after the connection was lost. `run_there` runs one call, with helpers whose messages
go back to the worker.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from ..history.task_reports import ProgressReport
from ..recovery.registry.load import memory_of
from ..recovery.registry.pool_state import ExecutorPlace
from ..tasks.stacks import TaskStack, stack_of_task
from .call import TaskCall, follow_worker
from .child_handle import StackRequests
from .messages import (
    CallMessage,
    ClusterNote,
    LogNote,
    MemoryNote,
    ProgressNote,
    SendingHandler,
    StackNote,
    StartedNote,
    log_again,
)
from .run_call import RemoteHelpers, job_of, remote_services, run_call

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the cluster could not be reached

T = TypeVar("T")


class Cluster(Generic[T]):
    """The connection of an executor, made when it is needed, and the calls that it has sent, by number.

    All who wait for a connection share an attempt; the one after a failure waits longer.
    """

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, T]],
        is_open: Callable[[T], bool],
        abort: Callable[[T, str], object],
    ) -> None:
        """`abort` asks all calls to end, with the reason, when the worker does; they are cancelled later."""
        self._connect = connect
        self._is_open = is_open
        self._abort = abort
        self._attempt: asyncio.Task[T] | None = None
        self._pause = FIRST_PAUSE
        self._may_connect_at = 0.0
        self.current: T | None = None
        """The last connection, perhaps lost."""
        self._unfollow: Callable[[], None] | None = None
        self._numbers = itertools.count(1)
        self.calls: dict[int, TaskCall] = {}
        self._memory: dict[int, int] = {}
        self.stacks = StackRequests()

    # -- the connection ------------------------------------------------------------------------------------

    async def get(self) -> T:
        """An open connection; raises why there is none."""
        if self.current is not None and self._is_open(self.current):
            return self.current
        if self._attempt is None:
            # Not in the context of the job that happens to cause it.
            self._attempt = asyncio.get_running_loop().create_task(self._try(), context=Context())
            self._attempt.add_done_callback(self._tried)
        return await asyncio.shield(self._attempt)

    def release(self) -> T | None:
        """Give up an attempt, and return the last connection, which the caller closes."""
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        if self._attempt is not None:
            self._attempt.cancel()
        last, self.current = self.current, None
        return last

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

    # -- calls ---------------------------------------------------------------------------------------------

    @contextmanager
    def added(self, call: TaskCall) -> Iterator[int]:
        """The number of a call, which is known until the block ends."""
        if self._unfollow is None:
            self._unfollow = follow_worker(call, self._abort_all)
        number = next(self._numbers)
        self.calls[number] = call
        try:
            yield number
        finally:
            del self.calls[number]
            self._memory.pop(number, None)

    def _abort_all(self, reason: str) -> None:
        if self.calls and self.current is not None:
            self._abort(self.current, reason)

    def noted(self, note: ClusterNote) -> None:
        """A note of a call has arrived. Notes of calls that have ended are dropped."""
        call = self.calls.get(note.number)
        if call is None:
            return
        if isinstance(note, StartedNote):
            call.started_at, call.place = time.monotonic(), note.place
            if note.memory is not None:
                self._memory[note.number] = note.memory
        elif isinstance(note, MemoryNote):
            self._memory[note.number] = note.bytes
        elif isinstance(note, StackNote):
            self.stacks.answered(note)
        elif isinstance(note, LogNote):
            log_again({**note.record, "name": call.helpers._services.logger.name}, call.helpers)
        elif (receive := call.helpers._services.progress.receive) is not None:
            receive(call.job.id, note.report)

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which machine of the cluster runs which job. May be called from any thread."""
        return [
            ExecutorPlace(
                executor=name, place=call.place, job_id=call.job.id, memory=self._memory.get(number)
            )
            for number, call in list(self.calls.items())
            if call.place is not None
        ]


# -- on a machine of the cluster -------------------------------------------------------------------------

Send = Callable[[ClusterNote], None]
"""Sends a note to the worker; from any thread."""

MEMORY_INTERVAL = 5.0  # seconds between reports

_running: dict[str, RunningCall] = {}
_reporting = threading.Lock()


class RunningCall:
    """A call in this process of the cluster."""

    def __init__(self, number: int, helpers: RemoteHelpers, send: Send) -> None:
        self.number = number
        self.helpers = helpers
        self.send = send
        self._thread = threading.get_ident()
        self._coroutine: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def abort(self, reason: str, *, cancels: bool) -> None:
        """Ask the task to end; `cancels`: a coroutine is cancelled, too."""
        self.helpers.abort_signal.set(reason or "the worker is stopping")
        if cancels and self._coroutine is not None:
            loop, coroutine = self._coroutine
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(coroutine.cancel)

    def stack(self) -> TaskStack:
        return stack_of_task(self._thread, None if self._coroutine is None else self._coroutine[1])

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Run a coroutine in a loop of its own."""
        return asyncio.run(self._run(awaitable))

    async def _run(self, awaitable: Awaitable[Any]) -> Any:
        current = asyncio.current_task()
        if current is not None:
            self._coroutine = asyncio.get_running_loop(), current
        try:
            return await awaitable
        finally:
            self._coroutine = None


def run_there(data: bytes, key: str, place: str, send: Send) -> bytes:
    """Run a call here; its answer as JSON. `key` names it for `running_call`."""
    call = msgspec.json.decode(data, type=CallMessage)

    def progress(job_id: int, report: ProgressReport) -> None:
        send(ProgressNote(call.number, report))

    def log(record: dict[str, Any]) -> None:
        send(LogNote(call.number, record))

    job_logger = logging.Logger("graphile_worker.job")
    job_logger.addHandler(SendingHandler(log))
    services = remote_services(progress=progress, logger=job_logger)
    helpers = RemoteHelpers(job_of(call), services, call.worker_id)
    running = _running[key] = RunningCall(call.number, helpers, send)
    send(StartedNote(call.number, place, memory_of(None)))
    if _reporting.acquire(blocking=False):  # once in this process
        threading.Thread(target=_report_memory, name="graphile-worker memory", daemon=True).start()
    try:
        body = run_call(call, helpers, partial(RunningCall.run, running))
    finally:
        del _running[key]
    return msgspec.json.encode(body)


def running_call(key: str) -> RunningCall | None:
    """The call of this name, if it runs here now."""
    return _running.get(key)


def _report_memory() -> None:
    """In a thread: say from time to time how much memory this process uses, while it runs calls."""
    while True:
        time.sleep(MEMORY_INTERVAL)
        used = memory_of(None)
        for running in list(_running.values()):
            if used is not None:
                with suppress(Exception):  # the connection may be lost
                    running.send(MemoryNote(running.number, used))

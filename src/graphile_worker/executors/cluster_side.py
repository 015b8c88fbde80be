"""What runs on a machine of a cluster: one call, with helpers whose messages go back to the worker."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..history.task_reports import ProgressReport
from ..recovery.registry.load import memory_of
from ..tasks.stacks import TaskStack, stack_of_task
from .messages import CallMessage, ClusterNote, LogNote, MemoryNote, ProgressNote, SendingHandler, StartedNote
from .run_call import RemoteHelpers, Tasks, job_of, remote_services, run_call

Send = Callable[[ClusterNote], None]
"""Sends a note to the worker; from any thread."""

MEMORY_INTERVAL = 5.0  # seconds between reports

_tasks = Tasks()
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
        """What the task does now."""
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
        body = run_call(call, _tasks, helpers, partial(RunningCall.run, running))
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

"""The program of a process that runs tasks: `python -m graphile_worker.executors.child WORK CONTROL BOARD`.

Calls arrive on one socket and are answered there, one at a time, in the main thread. See `WorkerConnection`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable
from contextvars import copy_context
from types import FrameType
from typing import Any

from ..errors import JobInterruptedError
from ..history.task_reports import ProgressReport
from ..recovery.registry.load import memory_of
from ..tasks.services import WorkerServices, job_logger
from ..tasks.stacks import stack_of_task
from ..values.lines import line
from .child_handle import SharedCounters
from .messages import (
    RETURNED,
    Answer,
    Ask,
    CallMessage,
    LogNote,
    MemoryNote,
    ProgressNote,
    ReadyNote,
    SendingHandler,
    Setup,
    StackNote,
    StartFailure,
    apply_levels,
)
from .run_call import RemoteHelpers, find_function, find_task, job_of, remote_services, run_call
from .worker_connection import WorkerConnection, die_with, end_company, end_now, one_line


class Child:
    """Runs calls until the worker closes the connection."""

    def __init__(self, worker: WorkerConnection, counters: SharedCounters) -> None:
        self._worker = worker
        self._send = worker.send
        self._counters = counters
        self._services: WorkerServices = remote_services(progress=self._send_progress, logger=job_logger)
        self._max_memory: int | None = None
        self._runner: asyncio.Runner | None = None
        self._helpers: RemoteHelpers | None = None
        self._number = 0
        self._is_cancelled = False
        self._coroutine: asyncio.Task[Any] | None = None

    def serve(self) -> None:
        setup = self._worker.setup(Setup)
        if setup is None:
            return
        try:
            self._set_up(setup)
        except BaseException as error:
            self._send(line(StartFailure(one_line(error))))
            raise
        self._worker.listen(self._obey)
        signal.signal(signal.SIGTERM, self._terminate)
        self._send(line(ReadyNote()))
        for call in self._worker.messages(CallMessage):
            self._run(call)

    # -- starting ------------------------------------------------------------------------------------------

    def _set_up(self, setup: Setup) -> None:
        die_with(setup.parent)
        if setup.nice is not None:
            os.nice(setup.nice)
        sys.path[:] = setup.path
        logging.root.handlers[:] = [SendingHandler(self._send_record)]
        apply_levels(setup.levels)
        self._services = remote_services(
            progress=self._send_progress, logger=logging.getLogger(setup.job_logger)
        )
        self._max_memory = setup.max_memory
        if setup.initializer is not None:
            find_function(setup.initializer)()
        for where, identifier in setup.tasks:
            try:
                find_task(where, identifier)
            except Exception:
                logging.getLogger("graphile_worker.tasks").debug("cannot be loaded yet", exc_info=True)

    # -- running -------------------------------------------------------------------------------------------

    def _run(self, call: CallMessage) -> None:
        number = self._number = call.number
        if not self._counters.begin(number):
            self._send(b"[0,%d,%d]\n" % (number, RETURNED))
            return
        started = time.perf_counter()
        helpers = self._helpers = RemoteHelpers(job_of(call), self._services, call.worker_id)
        try:
            body = run_call(call, helpers, self._await)
        finally:
            self._helpers = None
            self._is_cancelled = False
        seconds = time.perf_counter() - started
        # A job that was ended early may run again at once; it must not overlap with what it started.
        is_last = helpers.abort_signal.is_set() and end_company()
        if self._max_memory is not None and (used := memory_of(None) or 0) > self._max_memory:
            self._send(line(MemoryNote(number, used)))
        if body is None:
            self._send(b"[0,%d,%f]\n" % (number, seconds))
        else:
            self._send(line(Answer(number, seconds, body)))
        if is_last:
            end_now()  # what was ended may have belonged to this process rather than to the job

    def _await(self, awaitable: Awaitable[Any]) -> Any:
        """Run a coroutine on the event loop of this process."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._cancellable(awaitable), context=copy_context())

    async def _cancellable(self, awaitable: Awaitable[Any]) -> Any:
        self._coroutine = asyncio.current_task()
        if self._is_cancelled and self._coroutine is not None:
            self._coroutine.cancel()
        try:
            return await awaitable
        finally:
            self._coroutine = None

    # -- what the worker asks ------------------------------------------------------------------------------

    def _obey(self, ask: Ask) -> None:
        helpers = self._helpers
        if helpers is None or ask.number != self._number:
            return
        if ask.what == "stack":
            stack = stack_of_task(threading.main_thread().ident or 0, self._coroutine)
            self._send(line(StackNote(ask.number, stack)))
            return
        if ask.what == "cancel":
            self._is_cancelled = True
        helpers.abort_signal.set(ask.reason)
        coroutine, runner = self._coroutine, self._runner
        if self._is_cancelled and coroutine is not None and runner is not None:
            runner.get_loop().call_soon_threadsafe(coroutine.cancel)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """On SIGTERM: end the call, if the worker has asked for it. Others mean the worker itself."""
        helpers = self._helpers
        if self._is_cancelled and helpers is not None:
            raise JobInterruptedError(helpers.abort_signal.reason)

    # -- sending -------------------------------------------------------------------------------------------

    def _send_record(self, record: dict[str, Any]) -> None:
        self._send(line(LogNote(0 if self._helpers is None else self._number, record)))

    def _send_progress(self, job_id: int, report: ProgressReport) -> None:
        self._send(line(ProgressNote(self._number, report)))


def main() -> None:
    work, control, counters = (int(argument) for argument in sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shared = SharedCounters(counters)
    os.close(counters)
    Child(WorkerConnection(work, control), shared).serve()


if __name__ == "__main__":
    main()

"""ProcessExecutor: runs tasks in processes of their own, which can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..errors import ConfigError
from ..recovery.pool_state import ExecutorPlace
from ..tasks.task import AnyTask
from .call import TaskCall
from .child_handle import Work
from .child_memory import memory_of
from .children import Children
from .location import where_is
from .log_records import levels
from .messages import Ask, Setup

KILL_AFTER = 5.0
SHUTDOWN_LIMIT = 3.0  # seconds; a worker that shuts down waits for cancelled tasks for a few seconds only
KILL_LIMIT = 5.0  # seconds to wait after SIGKILL


class ProcessExecutor:
    """Runs tasks in processes of their own: `run(executors={"process": ProcessExecutor(processes=4)})`.

    A process is a fresh interpreter that imports the module of the task. It is started when it is first
    needed, runs one job at a time and serves many. A job that does not end by itself is ended with its
    process; one that crashes its process fails, and no other job notices. Not on Windows.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        max_jobs: int | None = None,
        max_memory: int | None = None,
        kill_after: float = KILL_AFTER,
        initializer: str | None = None,
        nice: int | None = None,
    ) -> None:
        """`processes`: how many, by default one for each processor.

        `max_jobs`: replace a process after this many jobs. `max_memory`: replace it after a job that left it
        with more than this many bytes. `kill_after`: seconds between the request to end and SIGKILL.
        `initializer`: a function, as `package.module:function`, that each process calls when it starts.
        `nice`: added to the niceness of the processes.
        """
        self.processes = _checked("processes", processes, 1) or processor_count()
        self.max_jobs = _checked("max_jobs", max_jobs, 1)
        self.max_memory = _checked("max_memory", max_memory, 1)
        self.nice = _checked("nice", nice, -20)
        if (
            isinstance(kill_after, bool)
            or not isinstance(kill_after, int | float)
            or not 0 <= kill_after < 1e9
        ):
            raise ConfigError(f"kill_after: expected a number of seconds, got {kill_after!r}")
        self.kill_after = float(kill_after)
        if initializer is not None and (not isinstance(initializer, str) or ":" not in initializer):
            raise ConfigError(f"initializer: expected package.module:function, got {initializer!r}")
        self.initializer = initializer
        self._children: Children | None = None
        self._tasks: list[tuple[str, str]] = []
        self._job_logger = "graphile_worker.job"
        self._unfollow: Callable[[], None] | None = None

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        """Get ready for these tasks. Processes are started when the first job comes."""
        if os.name != "posix":
            raise ConfigError("ProcessExecutor: this system cannot pass sockets to processes; use threads")
        if self._children is not None:
            raise ConfigError("ProcessExecutor: this object serves another worker; make one for each")
        self._tasks = [(where_is(task, "process"), task.identifier) for task in tasks]
        self._children = Children(self.processes, self._setup, self.max_jobs)

    async def run(self, call: TaskCall) -> Any:
        """Run one job; see `TaskExecutor`."""
        children = self._children
        if children is None:
            raise RuntimeError("the executor is not started")
        if self._unfollow is None:
            self._follow(call, children)
        work = children.submit(partial(Work, call), call.identifier)
        try:
            await work.future
        except asyncio.CancelledError:
            if not work.is_over:
                await self._end(work, children)
        return work.value()

    async def close(self) -> None:
        """End all processes."""
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        if self._children is not None:
            children, self._children = self._children, None
            await children.close()

    def places(self, name: str) -> list[ExecutorPlace]:
        """The processes, and what they do. May be called from any thread."""
        children = [] if self._children is None else list(self._children.all)
        return [
            ExecutorPlace(
                executor=name,
                place=f"process {child.pid}",
                memory=memory_of(child.pid),
                job_id=None if (work := child.running) is None else work.call.job.id,
            )
            for child in children
        ]

    async def _end(self, work: Work, children: Children) -> None:
        """End a call that was cancelled. Returns if it was answered; else raises CancelledError."""
        work.future = asyncio.get_running_loop().create_future()
        if children.withdraw(work):
            raise asyncio.CancelledError
        child, signalled = work.child, work.call.helpers.abort_signal
        grace = signalled._grace
        limit = min(self.kill_after, SHUTDOWN_LIMIT if grace is None else grace)
        reason = signalled.reason or "the worker is stopping"
        if child is not None and not work.is_over:
            try:
                child.ask(Ask(number=work.number, reason=reason, cancels=True))
                await asyncio.wait((work.future,), timeout=limit / 2)
                if not work.is_over:
                    child.signal(signal.SIGTERM)
                    await asyncio.wait((work.future,), timeout=limit / 2)
            finally:  # also when it is cancelled once more
                if not work.is_over:
                    child.signal(signal.SIGKILL)
                    await _wait_uninterrupted(work.future)
                    raise asyncio.CancelledError

    def _follow(self, call: TaskCall, children: Children) -> None:
        """Pass the abort signal of the worker on."""
        worker = call.helpers._services.abort_signal
        loop = asyncio.get_running_loop()

        def abort() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(children.abort, worker.reason)

        self._unfollow = worker.on_set(abort)
        self._job_logger = call.helpers._services.logger.name

    def _setup(self) -> Setup:
        return Setup(
            parent=os.getpid(),
            path=[os.path.abspath(folder) if folder else os.getcwd() for folder in sys.path],
            tasks=self._tasks,
            job_logger=self._job_logger,
            levels=levels(),
            initializer=self.initializer,
            nice=self.nice,
            max_memory=self.max_memory,
        )

    def __repr__(self) -> str:
        return f"ProcessExecutor(processes={self.processes})"


async def _wait_uninterrupted(future: asyncio.Future[None]) -> None:
    """Wait for the end of a process that was killed; cancelling this does not end the wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_LIMIT
    while not future.done() and (left := deadline - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=left)


def processor_count() -> int:
    """The processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _checked(name: str, value: int | None, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return value

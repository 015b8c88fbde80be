"""ProcessExecutor: runs tasks in processes of their own, which can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import ConfigError
from ..recovery.registry.load import memory_of
from ..recovery.registry.pool_state import ExecutorPlace
from ..tasks.task import AnyTask
from .call import TaskCall, checked_seconds, end_call, follow_worker, value_after_end
from .child_handle import Work, search_path
from .location import where_is
from .messages import Ask, Setup, levels
from .process_pool import ProcessPool

KILL_AFTER = 5.0


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
        self.kill_after = checked_seconds("kill_after", kill_after)
        if initializer is not None and (not isinstance(initializer, str) or ":" not in initializer):
            raise ConfigError(f"initializer: expected package.module:function, got {initializer!r}")
        self.initializer = initializer
        self._pool: ProcessPool | None = None
        self._tasks: list[tuple[str, str]] = []
        self._job_logger = "graphile_worker.job"
        self._unfollow: Callable[[], None] | None = None

    async def start(self, tasks: Sequence[AnyTask]) -> None:
        """Get ready for these tasks. Processes are started when the first job comes."""
        if os.name != "posix":
            raise ConfigError("ProcessExecutor: this system cannot pass sockets to processes; use threads")
        if self._pool is not None:
            raise ConfigError("ProcessExecutor: this object serves another worker; make one for each")
        self._tasks = [(where_is(task, "process"), task.identifier) for task in tasks]
        self._pool = ProcessPool(self.processes, self._setup, self.max_jobs)

    def resize(self, processes: int) -> None:
        """Have at most this many processes from now on; running jobs finish."""
        self.processes = processes
        if self._pool is not None:
            self._pool.resize(processes)

    async def run(self, call: TaskCall) -> Any:
        """Run one job; see `TaskExecutor`."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("the executor is not started")
        if self._unfollow is None:
            self._unfollow = follow_worker(call, pool.abort)
            self._job_logger = call.helpers._services.logger.name
        work = pool.submit(call)
        call.ask_stack = partial(pool.stack_of, work)
        try:
            await work.future
        except asyncio.CancelledError:
            if not work.is_over:
                await self._end(work, pool)
                return value_after_end(work.value)
        return work.value()

    async def close(self) -> None:
        """End all processes."""
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def places(self, name: str) -> list[ExecutorPlace]:
        """The processes, and what they do. May be called from any thread."""
        children = [] if self._pool is None else list(self._pool.all)
        return [
            ExecutorPlace(
                executor=name,
                place=f"process {child.pid}",
                memory=memory_of(child.pid),
                job_id=None if (work := child.running) is None else work.call.job.id,
            )
            for child in children
        ]

    async def _end(self, work: Work, pool: ProcessPool) -> None:
        """End a call that was cancelled. Returns if it was answered; else raises CancelledError."""
        work.future = asyncio.get_running_loop().create_future()
        if pool.withdraw(work):
            raise asyncio.CancelledError
        child = work.child
        if child is not None and not work.is_over:
            await end_call(
                work.call,
                work.future,
                self.kill_after,
                ask=lambda reason: child.ask(Ask(work.number, "cancel", reason)),
                interrupt=lambda: child.signal(signal.SIGTERM),
                kill=lambda: child.signal(signal.SIGKILL),
            )

    def _setup(self) -> Setup:
        return Setup(
            parent=os.getpid(),
            path=search_path(),
            tasks=self._tasks,
            job_logger=self._job_logger,
            levels=levels(),
            initializer=self.initializer,
            nice=self.nice,
            max_memory=self.max_memory,
        )

    def __repr__(self) -> str:
        return f"ProcessExecutor(processes={self.processes})"


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

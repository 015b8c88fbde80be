"""Slots: the workers of a pool. Each takes a job, runs it to its outcome, hands it on, and takes the next.

A slot is one long-lived asyncio task. A coroutine that ends without waiting for anything costs no task of its
own that way, which is most of the price of a short job. Because slots outlive jobs, each job must find the
context variables as they were: a slot in which a job changed one is replaced by a fresh one.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import JobError, JobInterruptedError
from ..hooks import Events
from ..hooks.events import (
    JobStarted,
    WorkerCreated,
    WorkerFatalError,
    WorkerGetJobEmpty,
    WorkerGetJobStart,
    WorkerReleased,
    WorkerStopped,
)
from ..job import Job
from ..outcome import Finished, Interrupted, failed
from ..tasks.helpers import current_job
from .execute import TAKEN_AWAY, Executor

MAX_TURN = 0.002  # seconds of jobs run back to back before the event loop gets its turn


class Takes(Protocol):
    """The part of a source that slots use."""

    def take(self) -> Job | None:
        """The next job, if there is one here and now."""
        ...

    def ran(self, duration: float) -> None:
        """A job ran for so long."""
        ...


class Slot:
    """One worker: its id, what it runs now, and the asyncio task that drives it."""

    __slots__ = ("id", "idle", "is_abandoned", "job", "started", "task")

    def __init__(self) -> None:
        self.id = f"worker-{secrets.token_hex(9)}"
        self.job: Job | None = None
        self.started = 0.0
        self.is_abandoned = False
        self.idle: asyncio.Future[None] | None = None
        self.task: asyncio.Task[bool] | None = None


class Slots:
    """All slots of a pool."""

    def __init__(
        self,
        count: int,
        source: Takes,
        executor: Executor,
        put: Callable[[Finished], None],
        events: Events,
        identifiers: Sequence[str],
        on_fatal: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._source = source
        self._executor = executor
        self._put = put
        self._events = events
        self._on_fatal = on_fatal
        self._context = contextvars.copy_context()
        self._closing = False
        self._is_held_up = False
        self._takes_none = False  # because of either
        self._turn_began = 0.0
        self._running = 0
        self._all = [Slot() for _ in range(count)]
        self._idle: list[Slot] = []
        self._ended = asyncio.Event()
        self._became_idle = asyncio.Event()
        self.error: BaseException | None = None
        for slot in self._all:
            events.emit(WorkerCreated(worker_id=slot.id, tasks=tuple(identifiers)))

    def start(self) -> None:
        """Start every slot; they ask the source at once."""
        for slot in self._all:
            self._spawn(slot)

    @property
    def free(self) -> int:
        """How many slots run nothing and could."""
        return 0 if self._is_held_up else len(self._all) - self._running

    @property
    def running(self) -> list[Job]:
        """The jobs that run now."""
        return [slot.job for slot in self._all if slot.job is not None]

    @property
    def running_since(self) -> dict[int, float]:
        """Ids of running jobs and when each was started, by `time.monotonic`; may be read from any thread."""
        return {job.id: slot.started for slot in self._all if (job := slot.job) is not None}

    def wake(self, count: int) -> None:
        """There are so many jobs to take: wake as many idle slots."""
        while count > 0 and self._idle:
            slot = self._idle.pop()
            if slot.idle is not None and not slot.idle.done():
                slot.idle.set_result(None)
            count -= 1

    def release(self) -> None:
        """Let every slot end after the job it runs."""
        self._closing = self._takes_none = True
        for slot in self._all:
            if slot.task is not None:
                self._events.emit(WorkerReleased(worker_id=slot.id))
        self.wake(len(self._all))

    def hold_up(self) -> None:
        """Take no more jobs for now; those that run go on."""
        self._is_held_up = self._takes_none = True

    def go_on(self) -> None:
        """Take jobs again."""
        self._is_held_up, self._takes_none = False, self._closing
        self.wake(len(self._all))

    def cancel(self, reason: str) -> None:
        """Cancel every running task; its outcome is `Interrupted`."""
        self._executor.interruption = reason
        for slot in self._all:
            if slot.job is not None and slot.task is not None:
                slot.task.cancel(reason)

    def cancel_lost(self, is_lost: Callable[[Job], bool]) -> None:
        """Cancel the tasks of jobs that others have taken from this pool; the slots go on with other jobs."""
        for slot in self._all:
            if slot.job is not None and slot.task is not None and is_lost(slot.job):
                slot.task.cancel(TAKEN_AWAY)

    @property
    def is_idle(self) -> bool:
        """Whether every slot waits for a job."""
        return len(self._idle) == len(self._all)

    async def idle(self) -> None:
        """Until that is so, or the slots have ended."""
        while not self.is_idle and not self._ended.is_set():
            self._became_idle.clear()
            await self._became_idle.wait()

    async def wait(self) -> None:
        """Until every slot has ended."""
        await self._ended.wait()

    def abandon(self, reason: str) -> list[Finished]:
        """What still runs, cancelled or not, as interrupted; the slots are left to themselves."""
        left = []
        for slot in self._all:
            if slot.job is not None:
                outcome = Interrupted(JobInterruptedError(reason))
                left.append(Finished(slot.job, outcome, slot.id, time.monotonic() - slot.started))
                slot.job = None
                slot.is_abandoned = True
                self._running -= 1
            if slot.task is not None:
                slot.task.cancel(reason)
        return left

    # -- one slot ------------------------------------------------------------------------------------------

    def _spawn(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        slot.task = loop.create_task(self._work(slot), name=slot.id, context=self._context.copy())
        slot.task.add_done_callback(lambda task: self._task_ended(slot, task))

    def _task_ended(self, slot: Slot, task: asyncio.Task[bool]) -> None:
        error = None if task.cancelled() else task.exception()
        # A task may leave a cancellation behind, by a timer of its own: that is no reason to lose the slot.
        wants_another = not self._closing if task.cancelled() else error is None and task.result()
        if isinstance(error, GeneratorExit):
            # A future that fails with it closes all coroutines that await it, ours too: the task's own fault.
            self._fail(slot, error)
            error, wants_another = None, not self._closing
        if wants_another and not slot.is_abandoned:
            if slot in self._idle:
                self._idle.remove(slot)
            self._spawn(slot)
            return
        slot.task = None
        self._fail(slot, error or JobError("the slot that ran the job was cancelled"))
        if error is not None:
            self.error = self.error or error
            self._events.emit(WorkerFatalError(worker_id=slot.id, error=error))
        self._events.emit(WorkerStopped(worker_id=slot.id, error=error))
        if error is not None:
            self._on_fatal(error)
        if all(other.task is None for other in self._all):
            self._ended.set()
            self._became_idle.set()

    def _fail(self, slot: Slot, error: BaseException) -> None:
        """The slot ended without an outcome of the job that it ran, if it ran one."""
        if slot.job is not None:
            job, slot.job = slot.job, None
            self._running -= 1
            self._put(Finished(job, failed(error), slot.id, time.monotonic() - slot.started))

    async def _work(self, slot: Slot) -> bool:
        """Run jobs until the pool closes; True asks for a fresh context to go on in."""
        executor, source, events = self._executor, self._source, self._events
        observed, monotonic, copy_context = events.observed, time.monotonic, contextvars.copy_context
        task = asyncio.current_task()
        while True:
            if WorkerGetJobStart in observed:
                events.emit(WorkerGetJobStart(worker_id=slot.id))
            job = None if self._takes_none else source.take()
            if job is None:
                if self._closing:
                    return False
                await self._rest(slot)
                continue
            slot.job = job
            self._running += 1
            slot.started = started = monotonic()
            helpers = executor.helpers(job, slot.id)
            current_job.set(helpers)
            context = copy_context()
            if JobStarted in observed:
                events.emit(JobStarted(worker_id=slot.id, job=job))
            outcome = await executor.execute(job, helpers)
            if slot.is_abandoned:  # somebody else has written the outcome
                return False
            slot.job = None
            self._running -= 1
            ended = monotonic()
            self._put(Finished(job, outcome, slot.id, ended - started))
            source.ran(ended - started)
            # A job may leave something behind that the next one would find: a variable, or a cancellation.
            try:
                if copy_context() != context or task is None or task.cancelling():
                    return not self._closing
            except Exception:  # values are compared by their own idea of equality, which may raise
                return not self._closing
            if ended - self._turn_began > MAX_TURN:
                await asyncio.sleep(0)
                self._turn_began = monotonic()

    async def _rest(self, slot: Slot) -> None:
        if self._events.wants(WorkerGetJobEmpty):
            self._events.emit(WorkerGetJobEmpty(worker_id=slot.id))
        slot.idle = asyncio.get_running_loop().create_future()
        self._idle.append(slot)
        if self.is_idle:
            self._became_idle.set()
        await slot.idle
        self._turn_began = time.monotonic()

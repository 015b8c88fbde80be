"""Slots: each takes a job, runs it, passes its outcome to the sink, and takes the next one.

A slot is one long-lived asyncio task. A job that never suspends needs no asyncio task of its own that way,
which is most of the cost of a short job. Because slots outlive jobs, each job must start with clean context
variables: a slot in which a job changed one is replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import force_setattr

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
from ..spec import DEFAULT_MAX_ATTEMPTS
from ..tasks.helpers import current_helpers
from .around import execute_around
from .execute import TAKEN_AWAY, Executor

MAX_TURN = 0.002  # seconds of jobs run back to back before the event loop gets its turn


class SlotSource(Protocol):
    """The part of a source that slots use."""

    def take(self) -> Job | None:
        """The next job; None if there is none at the moment."""
        ...

    def ran(self, duration: float) -> None:
        """Called after each job with its duration in seconds."""
        ...


class Slot:
    """One slot: its id, the job it runs, and the asyncio task that drives it."""

    __slots__ = ("context", "id", "idle", "is_abandoned", "job", "started", "task")

    def __init__(self) -> None:
        self.id = f"worker-{secrets.token_hex(9)}"
        self.job: Job | None = None
        self.started = 0.0
        self.is_abandoned = False
        self.idle: asyncio.Future[None] | None = None
        self.task: asyncio.Task[bool] | None = None
        self.context: contextvars.Context | None = None


class Slots:
    """All slots of a pool."""

    def __init__(
        self,
        count: int,
        source: SlotSource,
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
        self._takes_no_jobs = False  # closing or held up
        self._turn_began = 0.0
        self._running = 0
        self._all = [Slot() for _ in range(count)]
        self._idle: list[Slot] = []
        self._ended = asyncio.Event()
        self._became_idle = asyncio.Event()
        self.on_busy: Callable[[], None] | None = None
        """Called once when a slot wakes up, and then reset; may be set from any thread."""
        self._cancel_timers: dict[int, tuple[Job, asyncio.TimerHandle]] = {}  # by job id
        self.error: BaseException | None = None
        for slot in self._all:
            events.emit(WorkerCreated(worker_id=slot.id, tasks=tuple(identifiers)))

    def start(self) -> None:
        """Start every slot; each asks the source for a job."""
        for slot in self._all:
            self._spawn(slot)

    @property
    def free(self) -> int:
        """The number of slots that could take a job now."""
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
        """Wake up to `count` idle slots, because there are jobs to take."""
        while count > 0 and self._idle:
            slot = self._idle.pop()
            if slot.idle is not None and not slot.idle.done():
                slot.idle.set_result(None)
            count -= 1

    def release(self) -> None:
        """Let every slot end after the job it runs."""
        self._closing = self._takes_no_jobs = True
        for slot in self._all:
            if slot.task is not None:
                self._events.emit(WorkerReleased(worker_id=slot.id))
        self.wake(len(self._all))

    def hold_up(self) -> None:
        """Take no more jobs for now; running ones continue."""
        self._is_held_up = self._takes_no_jobs = True

    def go_on(self) -> None:
        """Take jobs again."""
        self._is_held_up, self._takes_no_jobs = False, self._closing
        self.wake(len(self._all))

    def cancel(self, reason: str) -> None:
        """Cancel every running task; its outcome is `Interrupted`."""
        self._executor.interruption = reason
        for slot in self._all:
            if slot.job is not None and slot.task is not None:
                slot.task.cancel(reason)

    def cancel_lost(self, is_lost: Callable[[Job], bool]) -> None:
        """Cancel the jobs that other workers have taken over; the slots continue with other jobs."""
        for slot in self._all:
            if slot.job is not None and slot.task is not None and is_lost(slot.job):
                slot.task.cancel(TAKEN_AWAY)

    def abort(self, job_id: int, reason: str, *, cancel_after: float | None = None) -> bool:
        """Abort one running job: set its abort signal, and cancel its task after `cancel_after` seconds.

        Its outcome is `Interrupted` unless the task ends by itself. Other jobs do not notice. Returns whether
        the job runs here. A thread cannot be cancelled: its slot becomes free and the thread is left behind.
        """
        for slot in self._all:
            if slot.job is not None and slot.job.id == job_id and slot.context is not None:
                slot.context[current_helpers].abort_signal.set(reason)
                if cancel_after is not None:
                    self._cancel_later(slot, slot.job, cancel_after)
                return True
        return False

    def _cancel_later(self, slot: Slot, job: Job, delay: float) -> None:
        def cancel() -> None:
            self._cancel_timers.pop(job.id, None)
            if slot.job is job and slot.task is not None:
                slot.task.cancel()

        aborted, timer = self._cancel_timers.get(job.id, (None, None))
        if aborted is job:
            return
        if timer is not None:  # of an earlier attempt
            timer.cancel()
        self._cancel_timers[job.id] = job, asyncio.get_running_loop().call_later(delay, cancel)

    @property
    def is_idle(self) -> bool:
        """Whether every slot waits for a job."""
        return len(self._idle) == len(self._all)

    async def idle(self) -> None:
        """Wait until every slot is idle or has ended."""
        while not self.is_idle and not self._ended.is_set():
            self._became_idle.clear()
            await self._became_idle.wait()

    async def wait(self) -> None:
        """Wait until every slot has ended."""
        await self._ended.wait()

    def abandon(self, reason: str) -> list[Finished]:
        """Cancel running jobs without waiting for them, and return them as interrupted."""
        unfinished = []
        for slot in self._all:
            if slot.job is not None:
                outcome = Interrupted(JobInterruptedError(reason))
                unfinished.append(Finished(slot.job, outcome, slot.id, time.monotonic() - slot.started))
                slot.job = None
                slot.is_abandoned = True
                self._running -= 1
            if slot.task is not None:
                slot.task.cancel(reason)
        return unfinished

    # -- one slot ------------------------------------------------------------------------------------------

    def _spawn(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        slot.context = self._context.copy()
        slot.task = loop.create_task(self._work(slot), name=slot.id, context=slot.context)
        slot.task.add_done_callback(lambda task: self._task_ended(slot, task))

    def _task_ended(self, slot: Slot, task: asyncio.Task[bool]) -> None:
        error = None if task.cancelled() else task.exception()
        # A job may leave a cancellation behind, from a timer of its own: do not lose the slot over it.
        wants_another = not self._closing if task.cancelled() else error is None and task.result()
        if isinstance(error, GeneratorExit):
            # A future that fails with it closes every coroutine that awaits it, ours too: the task's fault.
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
            self._drop_cancel_timers()

    def _drop_cancel_timers(self) -> None:
        for _, timer in self._cancel_timers.values():
            timer.cancel()
        self._cancel_timers.clear()

    def _fail(self, slot: Slot, error: BaseException) -> None:
        """Fail the job of a slot that ended without an outcome, if it ran one."""
        if slot.job is not None:
            job, slot.job = slot.job, None
            self._running -= 1
            self._put(Finished(job, failed(error), slot.id, time.monotonic() - slot.started))

    async def _work(self, slot: Slot) -> bool:
        """Run jobs until the pool closes; returns True to be restarted in a fresh context."""
        executor, source, events = self._executor, self._source, self._events
        observed, monotonic, copy_context = events._observed, time.monotonic, contextvars.copy_context
        around_run, task, max_attempts = executor.around_run, asyncio.current_task(), executor.max_attempts
        while True:
            if WorkerGetJobStart in observed:
                events.emit(WorkerGetJobStart(worker_id=slot.id))
            job = None if self._takes_no_jobs else source.take()
            if job is None:
                if self._closing:
                    return False
                await self._rest(slot)
                continue
            if max_attempts and job.max_attempts == DEFAULT_MAX_ATTEMPTS:
                # Added without the task's options. The same object, because jobs are held by identity.
                force_setattr(
                    job, "max_attempts", max_attempts.get(job.task_identifier, DEFAULT_MAX_ATTEMPTS)
                )
            slot.job = job
            self._running += 1
            slot.started = started = monotonic()
            helpers = executor.helpers(job, slot.id)
            current_helpers.set(helpers)
            context = copy_context()
            if JobStarted in observed:
                events.emit(JobStarted(worker_id=slot.id, job=job))
            if around_run:
                outcome = await execute_around(executor, job, helpers)
            else:
                outcome = await executor.execute(job, helpers)
            if slot.is_abandoned:  # `abandon` has returned the job
                return False
            slot.job = None
            self._running -= 1
            ended = monotonic()
            self._put(Finished(job, outcome, slot.id, ended - started))
            source.ran(ended - started)
            # A job may leave something behind for the next one: a changed variable, or a cancellation.
            try:
                if copy_context() != context or task is None or task.cancelling():
                    return not self._closing
            except Exception:  # `__eq__` of a value may raise
                return not self._closing
            if ended - self._turn_began > MAX_TURN:
                await asyncio.sleep(0)
                self._turn_began = monotonic()

    async def _rest(self, slot: Slot) -> None:
        if self._events._wants(WorkerGetJobEmpty):
            self._events.emit(WorkerGetJobEmpty(worker_id=slot.id))
        slot.idle = asyncio.get_running_loop().create_future()
        self._idle.append(slot)
        if self.is_idle:
            self._became_idle.set()
        await slot.idle
        if self.on_busy is not None:
            on_busy, self.on_busy = self.on_busy, None
            on_busy()
        self._turn_began = time.monotonic()

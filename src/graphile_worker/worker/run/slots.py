"""Slots: each takes a job, runs it, passes its outcome to the sink, and takes the next one.

A slot is one long-lived asyncio task. A job that never suspends needs no asyncio task of its own that way,
which is most of the cost of a short job. Because slots outlive jobs, each job must start with clean context
variables: a slot in which a job changed one is replaced.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import force_setattr

from ...errors import JobError, JobInterruptedError
from ...hooks.events import (
    JobStarted,
    WorkerCreated,
    WorkerFatalError,
    WorkerGetJobEmpty,
    WorkerGetJobStart,
    WorkerReleased,
    WorkerStopped,
)
from ...tasks.helpers import JobHelpers, current_helpers
from ...values.attempts import TimeLimit
from ...values.job import Job
from ...values.outcome import Finished, Interrupted, Outcome, failed
from ...values.spec import DEFAULT_MAX_ATTEMPTS
from ..context import PoolContext
from .execute import Executor, execute_around, execute_watched
from .outcomes import TAKEN_AWAY, EndReason, TimedOut
from .termination import HANDOVER, JobTermination, LeakedTasks, Slot

MAX_TURN = 0.002  # seconds of jobs run back to back before the event loop gets its turn
TAKEN_AWAY_GRACE = 5.0  # seconds

logger = logging.getLogger("graphile_worker.worker")


class SlotSource(Protocol):
    """The part of a `JobSource` that slots use."""

    def take(self) -> Job | None: ...
    def ran(self, duration: float) -> None: ...


class Slots:
    """All slots of a lane. `resize` changes how many there are."""

    def __init__(
        self,
        context: PoolContext,
        count: int,
        identifiers: Sequence[str],
        source: SlotSource,
        executor: Executor,
        put: Callable[[Finished], None],
        leaked_tasks: LeakedTasks,
    ) -> None:
        self._source = source
        self._executor = executor
        self._put = put
        self._events = context.events
        self._owner = context.owner
        self._variables = contextvars.Context()  # those of the start, from then on
        self._closing = False
        self._is_paused = False
        self._is_started = False
        self._surplus = 0  # slots to end: whichever come first to ask for a job
        self._takes_no_jobs = False  # closing, held up, or with a surplus
        self._turn_began = 0.0
        self._running = 0
        self._identifiers = tuple(identifiers)
        self._all: list[Slot] = []
        self._leaked_tasks = leaked_tasks
        self._timeout_grace = context.options.timeout_grace
        self._idle: list[Slot] = []
        self._ended = asyncio.Event()
        self._became_idle = asyncio.Event()
        self.on_busy: Callable[[], None] | None = None
        """Called once when a slot wakes up, and then reset; may be set from any thread."""
        self.error: BaseException | None = None
        self.count = count
        """How many there are to be; more while surplus ones finish their jobs."""
        self._all.extend(Slot() for _ in range(count))

    def start(self) -> None:
        """Start every slot; each asks the source for a job."""
        self._is_started = True
        self._variables = contextvars.copy_context()
        self._start(self._all)

    def _start(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            self._emit_created(slot)
        for slot in slots:
            self._spawn(slot)

    def resize(self, count: int) -> None:
        """Have this many slots: start more at once, or end some, each after the job that it runs.

        While there are too many, none takes a job: each that asks for one ends. Those that do not run a job
        are woken up to ask. So a slot need not look at the number when it takes a job.
        """
        if self._closing:
            return
        self.count = count
        if not self._is_started:
            self._all[:] = [Slot() for _ in range(count)]
            return
        added = [Slot() for _ in range(count - len(self._all))]
        self._all.extend(added)
        self._surplus = len(self._all) - count
        self._decide()
        self._start(added)
        self.wake(self._surplus)

    def _decide(self) -> None:
        self._takes_no_jobs = self._closing or self._is_paused or self._surplus > 0

    def _retire(self, slot: Slot) -> None:
        """Let a surplus slot end."""
        self._all.remove(slot)
        self._surplus -= 1
        self._decide()
        self._events.emit(WorkerReleased(worker_id=slot.id))
        self.wake(1)  # for the job that follows the one it ran
        if self.is_idle:
            self._became_idle.set()

    @property
    def free(self) -> int:
        """The number of slots that could take a job now."""
        return 0 if self._is_paused or self._surplus else len(self._all) - self._running

    @property
    def running(self) -> list[Job]:
        """The jobs that run now; may be read from any thread."""
        return [job for slot in self._all.copy() if (job := slot.job) is not None]

    @property
    def running_since(self) -> dict[int, float]:
        """Ids of running jobs and when each was started, by `time.monotonic`; may be read from any thread."""
        return {job.id: slot.started for slot in self._all.copy() if (job := slot.job) is not None}

    def slot_of(self, job_id: int) -> Slot | None:
        """The slot that runs this job; None if none does."""
        return next((slot for slot in self._all if slot.job is not None and slot.job.id == job_id), None)

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
        self._check_ended()  # no slot may have been started

    def refuse(self, jobs: Sequence[Job]) -> None:
        """Return jobs that were locked for these slots: they take no more."""
        for job in jobs:
            self._put(Finished(job, Interrupted(JobInterruptedError("")), "", 0.0))

    def pause(self) -> None:
        """Take no more jobs for now; running ones continue."""
        self._is_paused = self._takes_no_jobs = True

    def resume(self) -> None:
        """Take jobs again."""
        self._is_paused = False
        self._decide()
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
                self._end(slot, slot.job, TAKEN_AWAY, TAKEN_AWAY_GRACE)

    def end_job(self, job_id: int, cause: EndReason, grace: float) -> bool:
        """End one running job for this cause, which also decides its outcome; returns whether it runs here.

        Its abort signal is set. A coroutine is cancelled at once, and so is an executable, which gets
        SIGTERM; a thread has the grace to notice its signal. After the grace the task is cancelled once more,
        with SIGKILL for an executable. What still does not end leaks: its slot is replaced, the
        outcome is written, and a late result is dropped. Other jobs do not notice.

        A task that returns normally although it was asked to end completes its job.

        It may be called again for the same job; the cause with the higher rank holds.
        """
        slot = self.slot_of(job_id)
        if slot is None or slot.job is None:
            return False
        self._end(slot, slot.job, cause, grace)
        return True

    def _end(self, slot: Slot, job: Job, cause: EndReason, grace: float) -> None:
        if slot.early_end is None:
            slot.early_end = self._early_end(slot, job)
        slot.early_end.begin(cause, grace)

    def _early_end(self, slot: Slot, job: Job) -> JobTermination:
        return JobTermination(slot, job, self._executor, self._leak)

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
                cause = slot.early_end.cause if slot.early_end is not None else None
                unfinished.append(self._abandon(slot, slot.job, cause, reason))
            if slot.task is not None:
                slot.task.cancel(reason)
        return unfinished

    def _abandon(self, slot: Slot, job: Job, cause: EndReason | None, reason: str) -> Finished:
        """Take the job from a slot that goes on without it; its outcome is what the cause says."""
        outcome: Outcome = Interrupted(JobInterruptedError(reason))
        if cause is not None:
            outcome = self._executor.settled(job, cause.outcome(None, None))
        if slot.early_end is None:
            slot.early_end = self._early_end(slot, job)
        slot.early_end.stop()
        slot.job = None
        slot.is_abandoned = True
        self._running -= 1
        return Finished(job, outcome, slot.id, time.monotonic() - slot.started)

    def _leak(self, early_end: JobTermination) -> None:
        """Write the outcome of a job whose task ignores its cancellation, and replace the slot."""
        slot, job, cause = early_end.slot, early_end.job, early_end.cause
        if slot.job is not job or cause is None:
            return
        self._put(self._abandon(slot, job, cause, cause.reason))
        another = Slot()
        self._emit_created(another)
        self._all[self._all.index(slot)] = another
        self._spawn(another)  # while the pool closes, it ends at once
        if slot.task is not None:
            self._leaked_tasks.add(slot.id, job, cause, slot.task.get_coro())
            slot.task.cancel()

    def _limit_time(self, slot: Slot, job: Job) -> None:
        """See to it that the job ends when its time is up, if it has a limit.

        The alarm of a slot outlives jobs. Hardly any job still runs when it goes off, and one timer for
        each job would cost more than to run a short one.
        """
        seconds = self._executor.time_limit(job).seconds
        if seconds is not None:
            self._set_alarm(slot, slot.started + seconds, seconds)

    def _set_alarm(self, slot: Slot, at: float, delay: float) -> None:
        if slot.alarm is not None:
            if slot.alarm_at <= at:
                return
            slot.alarm.cancel()
        slot.alarm_at = at
        slot.alarm = asyncio.get_running_loop().call_later(delay, self._alarm, slot)

    def _alarm(self, slot: Slot) -> None:
        slot.alarm = None
        job, early_end = slot.job, slot.early_end
        if job is None or (early_end is not None and early_end.cause is not None):
            return
        limit = self._executor.time_limit(job)
        if limit.seconds is None:
            return
        at = slot.started + limit.seconds
        if (left := at - time.monotonic()) > 0:
            self._set_alarm(slot, at, left)
            return
        if early_end is None:
            early_end = slot.early_end = self._early_end(slot, job)
        self._time_is_up(early_end, limit)

    def _time_is_up(self, early_end: JobTermination, limit: TimeLimit) -> None:
        if self._executor.interruption is None:  # else the job is being returned
            if early_end.has_thread_ended:
                early_end.schedule(HANDOVER, lambda: self._time_is_up(early_end, limit))
                return
            call = early_end.call
            if call is not None and (left := _time_left(call, limit.seconds or 0.0)) > 0:
                early_end.schedule(left, lambda: self._time_is_up(early_end, limit))
                return
            early_end.begin(TimedOut(limit.seconds or 0.0), self._timeout_grace, waits=limit.waits)

    # -- one slot ------------------------------------------------------------------------------------------

    def _emit_created(self, slot: Slot) -> None:
        self._events.emit(WorkerCreated(worker_id=slot.id, tasks=self._identifiers))

    def _spawn(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        slot.context = self._variables.copy()
        slot.task = loop.create_task(self._work(slot), name=slot.id, context=slot.context)
        slot.task.add_done_callback(lambda task: self._task_ended(slot, task))

    def _task_ended(self, slot: Slot, task: asyncio.Task[bool]) -> None:
        error = None if task.cancelled() else task.exception()
        # A job may leave a cancellation behind, from a timer of its own: do not lose the slot over it.
        wants_another = not self._closing if task.cancelled() else error is None and task.result()
        if wants_another and slot.job is not None and not slot.is_abandoned:
            self._fail(slot, JobError("the slot that ran the job was cancelled"))
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
        if slot.alarm is not None:
            slot.alarm.cancel()
        self._fail(slot, error or JobError("the slot that ran the job was cancelled"))
        if error is not None:
            self.error = self.error or error
            self._events.emit(WorkerFatalError(worker_id=slot.id, error=error))
        self._events.emit(WorkerStopped(worker_id=slot.id, error=error))
        if error is not None:
            self._owner.die(error, "run")
        if slot.is_abandoned:
            self._leaked_tasks.ended(slot.id)
        self._check_ended()

    def _check_ended(self) -> None:
        if all(slot.task is None for slot in self._all):
            self._ended.set()
            self._became_idle.set()

    def _fail(self, slot: Slot, error: BaseException) -> None:
        """Fail the job of a slot that ended without an outcome, if it ran one."""
        if slot.job is not None:
            job, slot.job = slot.job, None
            self._running -= 1
            self._is_over(slot)
            self._put(Finished(job, failed(error), slot.id, time.monotonic() - slot.started))

    async def _work(self, slot: Slot) -> bool:
        """Run jobs until the pool closes; returns True to be restarted in a fresh context."""
        executor, source, events = self._executor, self._source, self._events
        observed, monotonic, copy_context = events.observed, time.monotonic, contextvars.copy_context
        around_run, task, max_attempts = executor.around_run, asyncio.current_task(), executor.max_attempts
        time_limits, run_watchers = executor.time_limits, executor.run_watchers
        services = executor.services
        while True:
            if WorkerGetJobStart in observed:
                events.emit(WorkerGetJobStart(worker_id=slot.id))
            job = None if self._takes_no_jobs else source.take()
            if job is None:
                if self._closing:
                    return False
                if self._surplus:
                    self._retire(slot)
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
            helpers = JobHelpers(job, services, slot.id)
            current_helpers.set(helpers)
            context = copy_context()
            if job.raw_flags is not None or (time_limits and job.task_identifier in time_limits):
                self._limit_time(slot, job)
            if JobStarted in observed:
                events.emit(JobStarted(worker_id=slot.id, job=job))
            if run_watchers:
                outcome = await execute_watched(run_watchers, executor, job, helpers)
            elif around_run:
                outcome = await execute_around(executor, job, helpers)
            else:
                outcome = await executor.execute(job, helpers)
            if slot.early_end is not None and self._is_over(slot):
                return False
            slot.job = None
            self._running -= 1
            ended = monotonic()
            if (call := helpers._call) is not None and call.started_at is not None:
                self._put(Finished(job, outcome, slot.id, ended - call.started_at))
            else:
                self._put(Finished(job, outcome, slot.id, ended - started))
            source.ran(ended - started)
            # A job may leave something behind for the next one: a changed variable, or a cancellation.
            try:
                if copy_context() != context or task is None or task.cancelling():
                    return not self._closing
            except BaseException:  # `__eq__` of a value may raise
                return not self._closing
            if ended - self._turn_began > MAX_TURN:
                await asyncio.sleep(0)
                self._turn_began = monotonic()

    def _is_over(self, slot: Slot) -> bool:
        """Call it when the job of a slot has ended; returns whether the slot was abandoned before that."""
        early_end, slot.early_end = slot.early_end, None
        if early_end is not None:
            early_end.stop()
            if early_end.is_late and not slot.is_abandoned and early_end.cause is not None:
                self._leaked_tasks.look_for_thread(early_end.job, early_end.cause)
        return slot.is_abandoned

    async def _rest(self, slot: Slot) -> None:
        if WorkerGetJobEmpty in self._events.observed:
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


def _time_left(call: Any, limit: float) -> float:
    """Seconds of the time limit; it does not run while the call waits for its executor."""
    started: float | None = call.started_at
    return limit if started is None else started + limit - time.monotonic()

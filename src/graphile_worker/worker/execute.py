"""One job to its outcome: look the task up, decode the payload, call it, judge the result.

Never touches the database and never raises for a task's fault. Runs inside the slot's asyncio task, so an
interceptor, the task and what they call share one context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ..error_text import message_of
from ..errors import JobError, JobInterruptedError, UnknownTaskError
from ..hooks import FailJob, Hooks, SkipJob
from ..hooks.interceptors import resolve
from ..job import Job
from ..outcome import COMPLETED, Completed, Failed, Interrupted, Outcome, failed
from ..recovery.orphaned_jobs import RECOVERED
from ..tasks.batch import may_be_batch, settle_batch
from ..tasks.call import call_task
from ..tasks.helpers import JobHelpers
from ..tasks.services import WorkerServices
from ..tasks.task import AnyTask
from ..tasks.threads import TaskThreads

TAKEN_AWAY = "this worker was out of reach for too long and the job was given to another one"


class _Decided(msgspec.Struct, frozen=True):
    outcome: Outcome


class Executor:
    """Runs jobs with the tasks of one worker."""

    def __init__(
        self, tasks: Mapping[str, AnyTask], services: WorkerServices, threads: TaskThreads, hooks: Hooks
    ) -> None:
        self._tasks = tasks
        self._services = services
        self._threads = threads
        self._before_run = hooks.interceptors_before_run
        self._after_run = hooks.interceptors_after_run
        self.before_rerun: Callable[[Job], Awaitable[None]] | None = None
        """Called before a job is run whose last worker died."""
        self.interruption: str | None = None
        """Why running tasks are being cancelled by the worker, once they are."""

    def helpers(self, job: Job, worker_id: str) -> JobHelpers:
        """What the task of this job is given besides the payload."""
        return JobHelpers(job, self._services, worker_id)

    async def execute(self, job: Job, helpers: JobHelpers) -> Outcome:
        """Run one job; how it ended. Only a cancellation of the slot itself is told apart from a failure."""
        outcome: Outcome
        try:
            # What every job passes through stands here and not in functions of its own: calls add up.
            task = self._tasks.get(job.task_identifier)
            if task is None:
                raise UnknownTaskError(f"no task is registered as {job.task_identifier!r}")
            if job.last_error == RECOVERED and self.before_rerun is not None:
                await self.before_rerun(job)
            if self._before_run and (decided := await self._decide(job, helpers)) is not None:
                outcome = decided.outcome
            else:
                result = await call_task(task, task.decode(job.raw_payload), helpers, self._threads)
                outcome = COMPLETED
                if may_be_batch(result):
                    failure = await settle_batch(job.raw_payload, result, helpers.logger)
                    if failure is not None:
                        outcome = failed(failure.error, failure.errors, failure.remaining_payload)
                elif result is not None and self._after_run:
                    outcome = Completed(result)
        except asyncio.CancelledError as error:
            outcome = await self._cancelled(error)
        except JobInterruptedError as error:
            outcome = self._gave_way(error)
        except BaseException as error:  # sys.exit() in a task fails the job, not the worker
            if is_closed(error):
                raise
            outcome = failed(error)
        if self._after_run:
            outcome = await self._tell_after_run(job, outcome)
            if isinstance(outcome, Completed):
                outcome = COMPLETED  # what it holds would stay in memory until it is written
        if isinstance(outcome, Failed):  # after interceptors have seen them
            outcome.drop_frames()
        return outcome

    async def _decide(self, job: Job, helpers: JobHelpers) -> _Decided | None:
        """What the interceptors say instead of calling the task; None to call it."""
        for interceptor in self._before_run:
            decision = await resolve(interceptor(job))
            if isinstance(decision, SkipJob):
                helpers.logger.info("skipped: %s", decision.reason)
                return _Decided(COMPLETED)
            if isinstance(decision, FailJob):
                return _Decided(failed(JobError(decision.message)))
            if decision is not None:
                raise TypeError(f"before_run returned {decision!r}; allowed: SkipJob, FailJob or None")
        return None

    async def _tell_after_run(self, job: Job, outcome: Outcome) -> Outcome:
        for interceptor in self._after_run:
            try:
                await resolve(interceptor(job, outcome))
            except asyncio.CancelledError as cancelled:
                outcome = await self._cancelled(cancelled)
            except BaseException as broken:
                if is_closed(broken):
                    raise
                outcome = failed(broken) if isinstance(outcome, Completed) else outcome
        return outcome

    def _gave_way(self, error: JobInterruptedError) -> Outcome:
        """The task heeded the abort signal; raised without one it is an error like any other."""
        if not self._services.abort_signal.is_set():
            return failed(error)
        return Interrupted(JobInterruptedError(f"Interrupted: {message_of(error)}"))

    async def _cancelled(self, error: asyncio.CancelledError) -> Outcome:
        """Interrupted if the worker cancels what runs; else the task did it to itself: a failure."""
        current = asyncio.current_task()
        if error.args == (TAKEN_AWAY,):
            return Interrupted(JobInterruptedError(TAKEN_AWAY))
        if self.interruption is None and current is not None and current.cancelling():
            await asyncio.sleep(0)  # if everything was cancelled at once, the worker learns of it now
        if self.interruption is None:
            return failed(JobError("the task was cancelled from inside"))
        while current is not None and current.cancelling():
            current.uncancel()
        return Interrupted(JobInterruptedError(self.interruption))


def is_closed(error: BaseException) -> bool:
    """Whether the coroutine that caught this is being closed, as happens to what a dead event loop leaves.

    Python then raises GeneratorExit in the coroutine itself; one that a task raised comes from a call below.
    """
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)

"""Executor: one job in, its outcome out. Finds the task, decodes the payload, calls it, judges the result.

Never touches the database and never raises for a task's fault. Runs in the slot's asyncio task, so
interceptors, the task and what they call share one context. No interceptor can lose an outcome or turn an
interruption into something else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import JobError, JobInterruptedError, UnknownTaskError
from ...errors.text import drop_frames, message_of
from ...history.task_reports import kept
from ...hooks import AroundRun, FailJob, Hooks, LeaveLocked, RunWatcher, SkipJob
from ...hooks.faults import is_closed, report
from ...hooks.interceptors import redacted_json, resolve
from ...logging.job_context import job_fields
from ...recovery.orphaned_jobs import RECOVERED
from ...tasks.call import call_task, label_of, may_be_batch, settle_batch
from ...tasks.helpers import JobHelpers
from ...tasks.options import FailureRules, check_job_expiry
from ...tasks.services import WorkerServices
from ...tasks.task import AnyTask
from ...tasks.threads import TaskThreads
from ...values.attempts import EXPIRES_FLAG, NO_LIMIT, JobDirective, TimeLimit, timeout_in
from ...values.clock import Clock, SystemClock
from ...values.job import Job
from ...values.outcome import (
    COMPLETED,
    Cancelled,
    Completed,
    Expired,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
    failed,
)
from ...values.retention import RetentionPolicy, is_awaited
from ...values.spec import DEFAULT_MAX_ATTEMPTS
from .outcomes import EndReason, outcome_of, outcome_of_batch, with_retry_rules

ANSWER_OF_HOOK = "the task returned {0}, which only hooks may return; to fail the job, raise an exception"
logger = logging.getLogger("graphile_worker.worker")
hooks_logger = logging.getLogger("graphile_worker.hooks")

DECISIONS = (FailJob, SkipJob, LeaveLocked, JobDirective)
"""What a task may return that is no result; all but the last are answers of hooks."""
PLAIN = frozenset({str, int, float, bool, dict})
"""Types of results that need no look."""


class Executor:
    """Runs jobs with the tasks of one worker."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        services: WorkerServices,
        threads: TaskThreads,
        hooks: Hooks,
        retention_policy: RetentionPolicy | None = None,
        clock: Clock | None = None,
        job_timeout: float | None = None,
    ) -> None:
        """`retention_policy`: which finished jobs are kept in the history; None if there is no history.

        `job_timeout`: the time limit of jobs that have no other.
        """
        self._retention_policy = retention_policy
        self._clock = clock or SystemClock()
        self._tasks = tasks
        self.max_attempts: dict[str, int] = {}
        """Of tasks that set it; it holds for jobs that were added without knowing the task's options."""
        self._failure_rules: dict[str, FailureRules] = {}
        self.time_limits: dict[str, TimeLimit] = {}
        """Of tasks that have one."""
        self._job_timeout = job_timeout
        self.learn_options(tasks)
        self.services = services
        self._threads = threads
        self._before_run = hooks.table.before_run
        self._after_run = hooks.table.after_run
        self._redactors = hooks.table.redactors
        self.around_run = hooks.table.around_run
        """While this is not empty, run jobs with `execute_around`."""
        self.run_watchers = hooks.table.run_watchers
        """While this is not empty, run jobs with `execute_watched`."""
        self.before_rerun: Callable[[Job], Awaitable[None]] | None = None
        """Called before a job is run whose last worker died."""
        self.interruption: str | None = None
        """Why the worker cancels running tasks; None until it does."""

    def learn_options(self, tasks: Mapping[str, AnyTask]) -> None:
        """Note which of these tasks set their own number of attempts, rules for failures or time limit."""
        self._keeps_completed = self._retention_policy is not None and self._retention_policy.keeps_completed
        for identifier, task in tasks.items():
            if task.rules.failure_rules is not None:
                self._failure_rules[identifier] = task.rules.failure_rules
            else:
                self._failure_rules.pop(identifier, None)
            limit = task.rules.time_limit or NO_LIMIT
            seconds = limit.seconds or self._job_timeout
            if seconds is not None:
                self.time_limits[identifier] = TimeLimit(seconds, limit.waits)
            else:
                self.time_limits.pop(identifier, None)
            own = task.spec_defaults.get("max_attempts", DEFAULT_MAX_ATTEMPTS)
            if own != DEFAULT_MAX_ATTEMPTS:
                self.max_attempts[identifier] = own
            else:
                self.max_attempts.pop(identifier, None)

    def time_limit(self, job: Job) -> TimeLimit:
        """The time limit of this job: its own, that of its task, or that of the worker."""
        limit = self.time_limits.get(job.task_identifier, NO_LIMIT)
        own = None if job.raw_flags is None else timeout_in(job.raw_flags)
        if own is None:
            return limit
        if isinstance(own, str):
            logger.warning(
                "task %s (job %d): the flag %s has no valid number of seconds; it is ignored",
                job.task_identifier, job.id, own, extra=job_fields(job),
            )  # fmt: skip
            return limit
        task = self._tasks.get(job.task_identifier)
        return TimeLimit(own, task is not None and (task.rules.time_limit or NO_LIMIT).waits)

    def is_async(self, job: Job) -> bool:
        """Whether the task of this job is a coroutine function."""
        task = self._tasks.get(job.task_identifier)
        return task is None or task.is_async

    def is_in_thread(self, job: Job) -> bool:
        """Whether the task of this job runs in a thread now."""
        return label_of(job.task_identifier, job.id) in self._threads.running

    async def execute(self, job: Job, helpers: JobHelpers, is_wrapped: bool = False) -> Outcome:
        """Run one job and return its outcome.

        `is_wrapped`: interceptors get the outcome next, so keep the result and the frames of an error.
        """
        outcome: Outcome
        try:
            # Every job passes through here. The steps are inlined because calls add up.
            task = self._tasks.get(job.task_identifier)
            if task is None:
                raise UnknownTaskError(f"no task is registered as {job.task_identifier!r}")
            if job.last_error == RECOVERED and self.before_rerun is not None:
                await self.before_rerun(job)
            if self._before_run and (decided := await self._decide(job, helpers)) is not None:
                outcome = decided
            else:
                if job.raw_flags is not None and EXPIRES_FLAG in job.raw_flags:
                    check_job_expiry(job)
                payload = task._decode(job.raw_payload)
                if task.is_async:
                    result = await task._invoke(payload, helpers)
                else:
                    result = await call_task(task, payload, helpers, self._threads)
                outcome = COMPLETED
                if result is not None:
                    outcome = await self._judge(job, result, helpers, is_kept=is_wrapped)
        except asyncio.CancelledError as error:
            outcome = await self.cancelled(error, helpers)
        except JobInterruptedError as error:
            outcome = interrupted_by_task(error, helpers)
        except BaseException as error:  # sys.exit() in a task fails the job, not the worker
            if is_closed(error):
                raise
            outcome = outcome_by_cause(outcome_of(error), error, helpers)
        if self._after_run:
            outcome = await self._call_after_run(job, outcome, helpers)
        if is_wrapped:
            return outcome
        if type(outcome) is Completed:
            if outcome is COMPLETED and not self._keeps_completed and job.raw_flags is None:
                return outcome
            outcome = self._completed(job, outcome)
            if type(outcome) is not Failed:
                return outcome
        return self.settled(job, outcome)

    async def _judge(self, job: Job, result: Any, helpers: JobHelpers, *, is_kept: bool) -> Outcome:
        """The outcome of a task that returned something; `is_kept`: the result is used."""
        if type(result) in PLAIN:
            return Completed(result) if is_kept or self._uses_result(job) else COMPLETED
        while inspect.isawaitable(result):  # a coroutine that the function called and did not await
            result = await result
        if isinstance(result, DECISIONS):
            if isinstance(result, JobDirective):
                return outcome_by_cause(outcome_of(result), None, helpers)
            raise JobError(ANSWER_OF_HOOK.format(type(result).__name__))
        if may_be_batch(result):
            failure = await settle_batch(
                job.raw_payload, result, helpers.logger, cancelled_item=lambda: _item_error(helpers)
            )
            if failure is not None:
                outcome = outcome_of_batch(failure, self._failure_rules.get(job.task_identifier))
                return outcome_by_cause(outcome, None, helpers)
            if any(map(inspect.isawaitable, result)):  # used up, and good for nothing else
                return COMPLETED
        if result is not None and (is_kept or self._uses_result(job)):
            return Completed(result)
        return COMPLETED

    def _uses_result(self, job: Job) -> bool:
        return bool(self._after_run) or self._keeps_completed or job.raw_flags is not None

    def settled(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome as it is written: judged by the rules of the task, and without what nothing uses."""
        if outcome is COMPLETED and not self._keeps_completed and job.raw_flags is None:
            return outcome
        if type(outcome) is Completed:
            outcome = self._completed(job, outcome)
        if isinstance(outcome, (Failed, Snoozed)):
            rules = self._failure_rules.get(job.task_identifier)
            if rules is not None:
                outcome = with_retry_rules(job, outcome, rules, self._clock.now())
            if isinstance(outcome, Failed):
                outcome.drop_frames()
        elif isinstance(outcome, (Expired, Cancelled)):
            return self._deleted(job, outcome)
        return outcome

    def _completed(self, job: Job, outcome: Completed) -> Outcome:
        """The outcome without its result, which would stay in memory until it is written, or kept with it."""
        if self._retention_policy is None:
            return COMPLETED
        retention = self._retention_policy.for_completed(job.task_identifier, job.raw_flags)
        if retention is None:
            return COMPLETED
        try:
            return kept(job, outcome.result, retention, self._redactors)
        except BaseException as error:  # `ResultError`, or what a property of the result raises
            return failed(error)

    def _deleted(self, job: Job, outcome: Expired | Cancelled) -> Outcome:
        """The outcome with how to keep it: like a failure, since the task did not complete the job."""
        if isinstance(outcome, Cancelled) and outcome.raised is not None:
            drop_frames(outcome.raised)
        if self._retention_policy is None:
            return outcome
        retention, payload = self._retention_policy.for_failed(job.task_identifier, job.raw_flags), None
        if self._redactors and retention is not None and retention.payload:
            payload = redacted_json(self._redactors, "payload", job.task_identifier, job.raw_payload)
        awaited = is_awaited(job.raw_flags)
        return msgspec.structs.replace(
            outcome, _retention=retention, _raw_payload=payload, _is_awaited=awaited
        )

    async def _decide(self, job: Job, helpers: JobHelpers) -> Outcome | None:
        """The outcome that a `before_run` interceptor demands; None to call the task."""
        for interceptor in self._before_run:
            answer = await resolve(interceptor(job))
            if isinstance(answer, SkipJob):
                helpers.logger.info("skipped: %s", answer.reason)
                return COMPLETED
            if isinstance(answer, FailJob):
                return failed(JobError(answer.message))
            if answer is not None:
                raise TypeError(f"before_run returned {answer!r}; allowed: SkipJob, FailJob or None")
        return None

    async def _call_after_run(self, job: Job, outcome: Outcome, helpers: JobHelpers) -> Outcome:
        for interceptor in self._after_run:
            try:
                await resolve(interceptor(job, outcome))
            except asyncio.CancelledError as error:
                outcome = await self.cancelled(error, helpers)
            except BaseException as error:
                if is_closed(error):
                    raise
                if isinstance(outcome, Completed):
                    outcome = outcome_by_cause(outcome_of(error), error, helpers)
        return outcome

    async def cancelled(self, error: asyncio.CancelledError, helpers: JobHelpers) -> Outcome:
        """What the cause says if the worker ends this job alone, and Interrupted if it ends all of them.

        If the task cancelled itself, that is a failure.
        """
        current = asyncio.current_task()
        cause, reason = helpers._cause, self.interruption
        if cause is not None:
            reason = cause.reason
        elif reason is None and current is not None and current.cancelling():
            # When the whole program is cancelled, the worker gets its own cancellation in this iteration.
            await asyncio.sleep(0)
            reason = self.interruption
        if reason is None:
            return failed(JobError("the task was cancelled, but not by the worker"))
        while current is not None and current.cancelling():
            current.uncancel()
        if cause is not None:
            return outcome_by_cause(None, error, helpers)
        return Interrupted(JobInterruptedError(reason))


def interrupted_by_task(error: JobInterruptedError, helpers: JobHelpers) -> Outcome:
    """The outcome of a task that raised JobInterruptedError: a failure unless it was asked to end."""
    if not helpers._is_aborted:
        return failed(error)
    own = Interrupted(JobInterruptedError(f"Interrupted: {message_of(error)}"))
    return outcome_by_cause(own, error, helpers)


def outcome_by_cause(own: Any, error: BaseException | None, helpers: JobHelpers) -> Outcome:
    """The task's own outcome, unless the worker ends this job alone and the cause says otherwise."""
    cause: EndReason | None = helpers._cause
    outcome: Outcome = own if cause is None else cause.outcome(own, error)
    return outcome


def _item_error(helpers: JobHelpers) -> BaseException | None:
    """The error of the items of a batch job that were cancelled with it; None if the whole job is ended."""
    cause: EndReason | None = helpers._cause
    return None if cause is None else cause.item_error()


# -- inside interceptors and watchers, while there are any ---------------------------------------------------


async def execute_around(executor: Executor, job: Job, helpers: JobHelpers) -> Outcome:
    """Run one job inside all `around_run` interceptors and return its outcome."""
    layers = _Layers(executor, job, helpers)
    return executor.settled(job, await layers.run(tuple(executor.around_run)))


class _Layers:
    """The interceptors around one job, the first one outermost."""

    def __init__(self, executor: Executor, job: Job, helpers: JobHelpers) -> None:
        self._executor = executor
        self._job = job
        self._helpers = helpers

    async def run(self, interceptors: tuple[AroundRun, ...]) -> Outcome:
        if not interceptors:
            return await self._executor.execute(self._job, self._helpers, is_wrapped=True)
        interceptor, inner = interceptors[0], interceptors[1:]
        is_called = False
        outcome: Outcome | None = None

        async def call_next() -> Outcome:
            nonlocal is_called, outcome
            if is_called:
                raise RuntimeError("call_next() was called twice; an attempt runs the task once")
            is_called = True
            outcome = await self._suppressed_cancellation()
            if outcome is None:
                outcome = await self.run(inner)
            return outcome

        try:
            returned = await resolve(interceptor(self._job, call_next))
        except asyncio.CancelledError as error:
            return _after_cancellation(outcome, await self._executor.cancelled(error, self._helpers))
        except BaseException as error:
            if is_closed(error):
                raise
            return self._after_error(outcome, error)
        if outcome is None:
            outcome = await self._suppressed_cancellation()
        return _after_return(interceptor, outcome, returned)

    async def _suppressed_cancellation(self) -> Outcome | None:
        """The outcome if the job was cancelled before its task and an interceptor suppressed that."""
        current = asyncio.current_task()
        if current is None or not current.cancelling():
            return None
        return await self._executor.cancelled(asyncio.CancelledError(), self._helpers)

    def _after_error(self, outcome: Outcome | None, error: BaseException) -> Outcome:
        if isinstance(outcome, Failed | Interrupted | Snoozed | Expired | Cancelled):
            if error is not outcome.error:  # raised again to make a context manager roll back
                self._helpers.logger.error("an around_run interceptor failed", exc_info=error)
            return outcome
        if isinstance(error, JobInterruptedError):
            return interrupted_by_task(error, self._helpers)
        return outcome_by_cause(outcome_of(error), error, self._helpers)


def _after_cancellation(outcome: Outcome | None, cancelled: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Failed | Interrupted | Snoozed | Cancelled) else cancelled


def _after_return(interceptor: AroundRun, outcome: Outcome | None, returned: Any) -> Outcome:
    if isinstance(outcome, Interrupted | Cancelled):
        return outcome
    kind = type(returned)  # not isinstance, which may run code of a foreign object
    if (
        kind is Completed
        or kind is Failed
        or kind is Snoozed
        or (outcome is not None and returned is outcome)
    ):
        return returned  # type: ignore[no-any-return]
    if isinstance(outcome, Failed):
        return outcome
    if returned is not None:
        return failed(TypeError(f"{_name(interceptor)} returned {kind.__name__}; expected the outcome"))
    if outcome is None:
        return failed(JobError(f"{_name(interceptor)} did not await call_next() and returned no outcome"))
    return outcome


def _name(interceptor: AroundRun) -> str:
    name = getattr(interceptor, "__qualname__", None) or type(interceptor).__qualname__
    return f"the around_run interceptor {name}"


async def execute_watched(
    watchers: Sequence[RunWatcher], executor: Executor, job: Job, helpers: JobHelpers
) -> Outcome:
    """Run one job, inside its `around_run` interceptors if there are any, and return its outcome."""
    states: list[tuple[RunWatcher, object]] = []
    for watcher in watchers:
        try:
            states.append((watcher, watcher.before(job)))
        except BaseException as error:
            _log_failure(watcher, job, error)
    outcome: Outcome | None = None
    try:  # not settled yet, with all that watchers may want of it
        if executor.around_run:
            outcome = await _Layers(executor, job, helpers).run(tuple(executor.around_run))
        else:
            outcome = await executor.execute(job, helpers, is_wrapped=True)
    finally:
        for watcher, state in reversed(states):
            try:
                watcher.after(state, job, outcome)
            except BaseException as error:
                _log_failure(watcher, job, error)
    return executor.settled(job, outcome)


def _log_failure(watcher: RunWatcher, job: Job, error: BaseException) -> None:
    report(
        hooks_logger, "a watcher of runs failed for task %s (job %d): %s",
        job.task_identifier, job.id, type(watcher).__qualname__, error=error,
    )  # fmt: skip

"""Running a job inside its `around_run` interceptors, or with watchers. Used only while there are any.

No interceptor can lose an outcome or turn an interruption into something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from ...errors import JobError, JobInterruptedError
from ...faults import is_closed, report
from ...hooks import AroundRun, RunWatcher
from ...hooks.interceptors import resolve
from ...job import Job
from ...outcome import Cancelled, Completed, Expired, Failed, Interrupted, Outcome, Snoozed, failed
from ...tasks.helpers import JobHelpers
from .execute import Executor, interrupted_by_task, outcome_by_cause
from .retry_decision import outcome_of

logger = logging.getLogger("graphile_worker.hooks")


async def execute_around(executor: Executor, job: Job, helpers: JobHelpers) -> Outcome:
    """Run one job inside all `around_run` interceptors and return its outcome."""
    return executor.settled(job, await run_inside(executor, job, helpers))


async def run_inside(executor: Executor, job: Job, helpers: JobHelpers) -> Outcome:
    """The same; the outcome is not settled yet, with all that watchers may want of it."""
    return await _Layers(executor, job, helpers).run(tuple(executor.around_run))


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
    try:
        if executor.around_run:
            outcome = await run_inside(executor, job, helpers)
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
        logger, "a watcher of runs failed for task %s (job %d): %s",
        job.task_identifier, job.id, type(watcher).__qualname__, error=error,
    )  # fmt: skip

"""Emits the events of outcomes, after the commit and only for jobs that were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...database.statements.write_plan import CUT_OFF
from ...errors import JobError
from ...hooks import Events
from ...hooks.events import (
    JobCancelled,
    JobCompleted,
    JobErrored,
    JobExpired,
    JobFailed,
    JobInterrupted,
    JobOutcomeDiscarded,
    JobSnoozed,
    JobSucceeded,
    PoolOutcomesWritten,
)
from ...values.attempts import back_off
from ...values.clock import Clock
from ...values.outcome import Cancelled, Completed, Expired, Failed, Finished, Interrupted, Outcome, Snoozed
from ..run.outcomes import seconds_left

LOST_ROW = "its row was deleted, or its lock taken, while the task ran"


class OutcomeEvents:
    """Emits events for one pool; an observer that raises cannot stop the sink."""

    def __init__(self, events: Events, pool_id: str, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._pool_id = pool_id

    @property
    def is_write_observed(self) -> bool:
        """Whether to measure how long writes take."""
        return PoolOutcomesWritten in self._events.observed

    def written(self, batch: Sequence[Finished], final: AbstractSet[int], seconds: float | None) -> None:
        """These completed and failed jobs are written; failed ones in `final` are not retried.

        `seconds`: how long the write took; None if it was not measured.
        """
        events = self._events
        if seconds is not None:
            completed = sum(isinstance(finished.outcome, Completed) for finished in batch)
            self._write(seconds, completed=completed, failed=len(batch) - completed, finished=batch)
        emit_success, emit_complete = JobSucceeded in events.observed, JobCompleted in events.observed
        if not emit_success and not emit_complete:
            batch = [finished for finished in batch if not isinstance(finished.outcome, Completed)]
        for finished in batch:
            if isinstance(finished.outcome, Failed):
                self._failed(finished, finished.outcome, is_final=finished.job.id in final)
            elif emit_success:
                self._events.emit(
                    JobSucceeded(worker_id=finished.worker_id, job=finished.job, duration=finished.duration)
                )
            if emit_complete:
                error = finished.outcome.error
                self._events.emit(JobCompleted(worker_id=finished.worker_id, job=finished.job, error=error))

    def ended(self, batch: Sequence[Finished], final: AbstractSet[int]) -> None:
        """The snoozed and expired ones of these jobs are written; those in `final` cannot run again."""
        emit = self._events.emit
        for finished in batch:
            worker_id, job, outcome = finished.worker_id, finished.job, finished.outcome
            if isinstance(outcome, Snoozed):
                if job.id in final:
                    self._cut_off(finished, JobError(CUT_OFF))
                    continue
                run_in, why = seconds_left(outcome, self._clock.now()) or 0.0, outcome.reason
                seconds = finished.duration
                emit(JobSnoozed(worker_id=worker_id, job=job, duration=seconds, run_in=run_in, reason=why))
            elif isinstance(outcome, Expired):
                waited, allowed = outcome.waited, outcome.allowed
                emit(JobExpired(worker_id=worker_id, job=job, waited=waited, allowed=allowed))

    def cancelled(self, batch: Sequence[Finished], reasons: Mapping[int, str | None]) -> None:
        """These jobs were cancelled, and are deleted."""
        for finished in batch:
            job, outcome = finished.job, _as_cancelled(finished.outcome)
            self._events.emit(
                JobCancelled(
                    worker_id=finished.worker_id,
                    job=job,
                    duration=finished.duration,
                    reason=reasons.get(job.id) or outcome.reason,
                    has_started=outcome.has_started,
                    error=outcome.raised,
                )
            )

    def returned(
        self,
        batch: Sequence[Finished],
        missing: AbstractSet[int],
        final: AbstractSet[int],
        seconds: float | None,
    ) -> None:
        """These interrupted jobs are unlocked, except `missing`; those in `final` cannot run again."""
        if seconds is not None:
            self._write(seconds, returned=len(batch) - len(missing))
        for finished in batch:
            outcome = finished.outcome
            if finished.job.id in missing:
                self.discarded(finished, LOST_ROW)
            elif isinstance(outcome, Interrupted):
                self.interrupted(finished, outcome, can_run=finished.job.id not in final)

    def _write(
        self,
        seconds: float,
        *,
        completed: int = 0,
        failed: int = 0,
        returned: int = 0,
        finished: Sequence[Finished] = (),
    ) -> None:
        self._events.emit(
            PoolOutcomesWritten(
                pool_id=self._pool_id,
                completed=completed,
                failed=failed,
                returned=returned,
                seconds=seconds,
                finished=finished,
            )
        )

    def _failed(self, finished: Finished, outcome: Failed, *, is_final: bool) -> None:
        events, job = self._events, finished.job
        if JobErrored in events.observed:
            retry_in = None
            if not is_final:
                # Hardly any failure has a time of its own, and to ask for the present one costs more.
                wait = outcome.delay if outcome.until is None else seconds_left(outcome, self._clock.now())
                retry_in = back_off(job.attempts) if wait is None else wait
            events.emit(
                JobErrored(
                    worker_id=finished.worker_id,
                    job=job,
                    error=outcome.error,
                    duration=finished.duration,
                    batch_job_errors=outcome.batch_errors,
                    traceback=outcome.traceback,
                    will_retry=not is_final,
                    retry_in=retry_in,
                )
            )
        if is_final and JobFailed in events.observed:
            may_be_retried = job.attempts < job.max_attempts
            events.emit(
                JobFailed(
                    worker_id=finished.worker_id,
                    job=job,
                    error=outcome.error,
                    duration=finished.duration,
                    batch_job_errors=outcome.batch_errors,
                    traceback=outcome.traceback,
                    is_cut_off=may_be_retried and outcome.given_up is None,
                    given_up=outcome.given_up if may_be_retried else None,
                )
            )

    def interrupted(self, finished: Finished, outcome: Interrupted, *, can_run: bool = True) -> None:
        """The job was unlocked. It cannot run again if its key was removed or reused while it ran."""
        if not outcome.has_reason:  # it never started
            return
        if can_run:
            worker_id, job = finished.worker_id, finished.job
            self._events.emit(JobInterrupted(worker_id=worker_id, job=job, error=outcome.error))
        else:
            self._cut_off(finished, outcome.error)

    def _cut_off(self, finished: Finished, error: BaseException) -> None:
        worker_id, job, seconds = finished.worker_id, finished.job, finished.duration
        emit = self._events.emit
        emit(JobFailed(worker_id=worker_id, job=job, error=error, duration=seconds, is_cut_off=True))
        emit(JobCompleted(worker_id=worker_id, job=job, error=error))

    def discarded(self, finished: Finished, reason: str) -> None:
        """The outcome was not written."""
        outcome = finished.outcome
        if isinstance(outcome, Interrupted) and not outcome.has_reason:
            return
        self._events.emit(
            JobOutcomeDiscarded(
                worker_id=finished.worker_id,
                job=finished.job,
                error=outcome.error,
                duration=finished.duration,
                is_snoozed=isinstance(outcome, Snoozed),
                reason=reason,
            )
        )


def _as_cancelled(outcome: Outcome) -> Cancelled:
    """The outcome of a cancelled job; the task may have ended before the worker knew of it."""
    if isinstance(outcome, Cancelled):
        return outcome
    if isinstance(outcome, Interrupted):
        return Cancelled(has_started=outcome.has_reason)
    return Cancelled(raised=outcome.error)

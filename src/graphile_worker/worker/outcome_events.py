"""The events of outcomes, after the commit: only what was written is told as such."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from ..hooks import Events
from ..hooks.events import (
    Event,
    JobCompleted,
    JobErrored,
    JobFailed,
    JobInterrupted,
    JobOutcomeDiscarded,
    JobSucceeded,
)
from ..outcome import Completed, Failed, Finished, Interrupted

logger = logging.getLogger("graphile_worker.worker")

LOST_ROW = "its row was deleted, or its lock taken, while the task ran"


class OutcomeEvents:
    """Tells observers how jobs ended; whatever they raise, writing goes on."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def written(self, batch: Iterable[Finished], final: Collection[int]) -> None:
        """These completed and failed jobs are written; the failed ones in `final` are not tried again."""
        events = self._events
        tell_success, tell_complete = events._wants(JobSucceeded), events._wants(JobCompleted)
        if not tell_success and not tell_complete:
            batch = [finished for finished in batch if type(finished.outcome) is not Completed]
        for finished in batch:
            if isinstance(finished.outcome, Failed):
                self._failed(finished, finished.outcome, is_final=finished.job.id in final)
            elif tell_success:
                self._emit(
                    JobSucceeded(worker_id=finished.worker_id, job=finished.job, duration=finished.duration)
                )
            if tell_complete:
                error = finished.outcome.error
                self._emit(JobCompleted(worker_id=finished.worker_id, job=finished.job, error=error))

    def _failed(self, finished: Finished, outcome: Failed, *, is_final: bool) -> None:
        events, job = self._events, finished.job
        if events._wants(JobErrored):
            self._emit(
                JobErrored(
                    worker_id=finished.worker_id,
                    job=job,
                    error=outcome.error,
                    duration=finished.duration,
                    will_retry=not is_final,
                    batch_job_errors=outcome.batch_errors,
                    traceback=outcome.traceback,
                )
            )
        if is_final and events._wants(JobFailed):
            self._emit(
                JobFailed(
                    worker_id=finished.worker_id,
                    job=job,
                    error=outcome.error,
                    duration=finished.duration,
                    is_cut_off=job.attempts < job.max_attempts,
                    batch_job_errors=outcome.batch_errors,
                    traceback=outcome.traceback,
                )
            )

    def interrupted(self, finished: Finished, outcome: Interrupted, *, can_run: bool = True) -> None:
        """The job was unlocked; if it cannot run again, its key was removed or used again meanwhile."""
        if not outcome.has_reason:  # it was never started
            return
        job, error = finished.job, outcome.error
        if can_run:
            self._emit(JobInterrupted(worker_id=finished.worker_id, job=job, error=error))
        else:
            self._emit(
                JobFailed(
                    worker_id=finished.worker_id,
                    job=job,
                    error=error,
                    duration=finished.duration,
                    is_cut_off=True,
                )
            )
            self._emit(JobCompleted(worker_id=finished.worker_id, job=job, error=error))

    def discarded(self, finished: Finished, reason: str) -> None:
        """Nothing was written."""
        outcome = finished.outcome
        if isinstance(outcome, Interrupted) and not outcome.has_reason:
            return
        self._emit(
            JobOutcomeDiscarded(
                worker_id=finished.worker_id,
                job=finished.job,
                error=outcome.error,
                duration=finished.duration,
                reason=reason,
            )
        )

    def _emit(self, event: Event) -> None:
        try:
            self._events.emit(event)
        except BaseException:  # sys.exit() in an observer must not keep outcomes from being written
            logger.exception("an observer of %s failed", event.name)

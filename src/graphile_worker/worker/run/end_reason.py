"""Why the worker ends a running job before its task does, and which outcome the job has then."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ...directives import JobDirective
from ...error_parts import is_a
from ...errors import JobInterruptedError, JobTimeoutError
from ...outcome import Failed, Interrupted, Outcome, failed


class EndReason(msgspec.Struct, frozen=True):
    """Base of all causes, for `Slots.end_job`.

    To add one, write a subclass with a `rank`, a `reason` and an `outcome`. Ending the task, its grace, and
    the slot of a task that does not end are the same for all causes.
    """

    rank: ClassVar[int]
    """If a job has two causes, the one with the higher rank holds."""

    @property
    def reason(self) -> str:
        """Why the task should end: the reason of its abort signal."""
        raise NotImplementedError

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        """The outcome of the job. Not called for a task that returns normally: its job is completed.

        `own` is the outcome that the task reached after it was asked to end, None if it was cancelled or
        abandoned. `error` is what it raised, None if it raised nothing.
        """
        raise NotImplementedError

    def item_error(self) -> BaseException | None:
        """The error of each item of a batch job that has not ended; None to end the job as a whole."""
        return None


class TimedOut(EndReason, frozen=True):
    """The task ran longer than its time limit.

    A failure, unless the task returns or raises a directive itself.
    """

    rank = 1
    limit: float
    """Seconds."""

    @property
    def reason(self) -> str:
        return str(JobTimeoutError(self.limit))

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        is_fault = (
            isinstance(own, Failed | Interrupted) and error is not None and not is_a(error, JobDirective)
        )
        if own is not None and not is_fault:
            return own
        timeout = JobTimeoutError(self.limit)
        timeout.__cause__ = error  # its traceback shows where the task was
        return failed(timeout)

    def item_error(self) -> BaseException | None:
        return JobTimeoutError(self.limit)


class LostLock(EndReason, frozen=True):
    """The job belongs to another worker now. The outcome is not written."""

    rank = 3
    why: str

    @property
    def reason(self) -> str:
        return self.why

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        return Interrupted(JobInterruptedError(self.why))


TAKEN_AWAY = LostLock("this worker missed its heartbeats and another worker took over the job")

"""How one run of a job ended, as plain values between the rooms `execute` and `sink`.

`None` stands for success, because that is what nearly every job comes to and it costs nothing.

A failure carries the texts that are stored and logged, made where the task ran, because code of the exception
may run then: nothing of it may run later, where it could hold up the outcomes of other jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..error_text import describe_and_format, drop_frames, message_of, related
from ..job import Job

FAILURE_WEIGHT = 8_000  # bytes that a failure takes besides its texts, roughly


class Failed(msgspec.Struct, frozen=True):
    """The task failed; with `remaining_payload`, a batch job keeps only the items that failed."""

    error: BaseException
    message: str
    """The text for `last_error`."""
    traceback: str = ""
    batch_errors: Sequence[BaseException] | None = None
    remaining_payload: str | None = None
    weight: int = FAILURE_WEIGHT
    """About how many bytes of memory it takes until it is written."""

    def drop_frames(self) -> None:
        """Let go of the frames, and with them of the task's local variables; the traceback is a text now."""
        drop_frames(self.error)
        for error in self.batch_errors or ():
            drop_frames(error)


def failed(
    error: BaseException,
    batch_errors: Sequence[BaseException] | None = None,
    remaining_payload: str | None = None,
) -> Failed:
    """A failure with its texts; never raises, whatever the exception does when it is looked at."""
    message, traceback = describe_and_format(error)
    held = sum(map(_held_by, (error, *(batch_errors or ()))))
    texts = len(message) + len(traceback) + len(remaining_payload or "")
    return Failed(error, message, traceback, batch_errors, remaining_payload, FAILURE_WEIGHT + held + texts)


class Interrupted(msgspec.Struct, frozen=True):
    """The worker stopped before the task ended; the job goes back and the attempt does not count."""

    error: BaseException

    @property
    def message(self) -> str:
        """The text for `last_error`; empty for a job that was never started."""
        return message_of(self.error) if self.has_reason else ""

    @property
    def has_reason(self) -> bool:
        """Whether there is one; a job that was never started has none."""
        return self.error.args != ("",)


def _held_by(error: BaseException) -> int:
    """The size of the texts that an exception and its causes hold on to."""
    return sum(_size(value) for each in related(error) for value in _arguments(each))


def _arguments(error: BaseException) -> tuple[Any, ...]:
    try:
        found = error.args  # a class may have a property of that name
        return found if type(found) is tuple else ()
    except BaseException:
        return ()


def _size(value: Any) -> int:
    return len(value) if type(value) in (str, bytes, bytearray) else 0


Outcome = Failed | Interrupted | None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A job whose run is over, on its way to the database."""

    job: Job
    outcome: Outcome
    worker_id: str
    duration: float


def queues_of(batch: Sequence[Finished]) -> list[int]:
    """The named queues that these jobs hold."""
    return [queue for finished in batch if (queue := finished.job.job_queue_id) is not None]

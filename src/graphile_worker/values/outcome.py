"""How an attempt ended: completed, failed, snoozed, expired, cancelled or interrupted.

The executor makes an outcome, `after_run` interceptors see it, and the sink writes it.

A failure carries the texts to store and log. They are made where the task ran, because making them may run
code of the exception, which must not delay the outcomes of other jobs. A `FailureHandler` is what
`@task(on_failure=…)` names: a task of which a job is added when a job has failed permanently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..errors import InvalidArgumentError
from ..errors.text import describe_and_format, drop_frames, message_of, related
from .job import Job
from .payload import encode, traces_in, with_trace, without_trace
from .retention import Retention
from .spec import JobSpec

FAILURE_WEIGHT = 8_000  # approximate bytes of a failure without its texts


class Completed(msgspec.Struct, frozen=True):
    """The task returned `result`; see `COMPLETED` for a result that nothing uses."""

    result: Any = None

    @property
    def error(self) -> None:
        """Always None; the other outcomes have one."""
        return None


COMPLETED = Completed()
"""Completed without a result: one instance for all such jobs, so that it costs nothing."""


class Kept(Completed, frozen=True, kw_only=True):
    """Completed, and written to the history."""

    retention: Retention
    raw_result: str | None = None
    """The result as JSON text."""
    raw_payload: str | None = None
    """The payload to keep as JSON text, if it is redacted; None for that of the row."""
    is_awaited: bool = False
    """Whether that is announced to clients."""


class Failed(msgspec.Struct, frozen=True):
    """The task failed. With `remaining_payload`, a batch job keeps only the items that failed."""

    error: BaseException
    message: str
    """The text for `last_error`."""
    traceback: str = ""
    batch_errors: Sequence[BaseException] | None = None
    remaining_payload: str | None = None
    weight: int = FAILURE_WEIGHT
    """Approximate bytes of memory until it is written."""
    given_up: str | None = None
    """Why the job is not retried although attempts are left; None if it is."""
    delay: float | None = None
    """Seconds until the next attempt; None for the back-off, or `until`."""
    until: datetime | None = None
    """When the next attempt is due, if the task set a time."""
    _on_failure: FailureHandler | None = None
    """What is added with the outcome if the failure is permanent."""

    def drop_frames(self) -> None:
        """Drop the frames, which keep the task's local variables alive; the traceback is a text by now."""
        drop_frames(self.error)
        for error in self.batch_errors or ():
            drop_frames(error)


def failed(
    error: BaseException,
    batch_errors: Sequence[BaseException] | None = None,
    remaining_payload: str | None = None,
) -> Failed:
    """A failure with its texts; never raises, even if the exception's own methods do."""
    message, traceback = describe_and_format(error)
    weight = FAILURE_WEIGHT + len(message) + len(traceback) + _text_size(error)
    if batch_errors is not None:
        weight += sum(map(_text_size, batch_errors))
    if remaining_payload is not None:
        weight += len(remaining_payload)
    return Failed(error, message, traceback, batch_errors, remaining_payload, weight)


class Snoozed(msgspec.Struct, frozen=True):
    """The task asked to run its job again later. The attempt does not count."""

    delay: float | None = None
    """Seconds until then; None if `until` is set."""
    until: datetime | None = None
    reason: str | None = None
    remaining_payload: str | None = None
    """What is left to do of a batch job."""

    @property
    def error(self) -> None:
        """Always None: nothing failed."""
        return None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The job is deleted although its task did not complete it: the base of such outcomes."""

    _retention: Retention | None = None
    _raw_payload: str | None = None
    """The payload to keep as JSON text, if it is redacted."""
    _is_awaited: bool = False

    @property
    def error(self) -> None:
        """Always None: nothing failed."""
        return None


class Expired(Deleted, frozen=True):
    """The job was due too long ago, so its task was not called and the job is deleted."""

    waited: float
    """Seconds between the time when it could run and the time when a worker took it."""
    allowed: float
    """What its task says with `expires`."""


class Cancelled(Deleted, frozen=True):
    """The job was cancelled before its task completed, and is deleted."""

    reason: str | None = None
    """Why, in the words of the cancel."""
    raised: BaseException | None = None
    """The error with which the task ended, if it was not just the cancellation."""
    has_started: bool = True


class Interrupted(msgspec.Struct, frozen=True):
    """The worker stopped before the task ended. The job is returned and the attempt does not count."""

    error: BaseException

    @property
    def message(self) -> str:
        """The text for `last_error`; empty for a job that never started."""
        return message_of(self.error) if self.has_reason else ""

    @property
    def has_reason(self) -> bool:
        """False for a job that never started."""
        return self.error.args != ("",)


Outcome = Completed | Failed | Snoozed | Expired | Cancelled | Interrupted


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A finished job and its outcome, on the way to the database."""

    job: Job
    outcome: Outcome
    worker_id: str
    duration: float


def retention_of(outcome: Outcome) -> Retention | None:
    """How a deleted job is kept."""
    if isinstance(outcome, Kept):
        return outcome.retention
    return outcome._retention if isinstance(outcome, Deleted) else None


def is_end_awaited(outcome: Outcome) -> bool:
    """Whether a deleted job is announced to clients."""
    if isinstance(outcome, Kept):
        return outcome.is_awaited
    return isinstance(outcome, Deleted) and outcome._is_awaited


def payload_to_keep(outcome: Outcome) -> str | None:
    """The redacted payload of a deleted job; None for that of the row."""
    if isinstance(outcome, Kept):
        return outcome.raw_payload
    return outcome._raw_payload if isinstance(outcome, Deleted) else None


def queues_of(finished_jobs: Sequence[Finished]) -> list[int]:
    """The named queues that these jobs have locked."""
    return [queue for finished in finished_jobs if (queue := finished.job.job_queue_id) is not None]


def _text_size(error: BaseException) -> int:
    """The size of the texts that an exception and its causes keep alive."""
    size = 0
    for each in related(error):
        for value in _arguments(each):
            if type(value) in (str, bytes, bytearray):
                size += len(value)
    return size


def _arguments(error: BaseException) -> tuple[Any, ...]:
    try:
        found = error.args  # a class may have a property of that name
        return found if type(found) is tuple else ()
    except BaseException:
        return ()


logger = logging.getLogger("graphile_worker.worker")


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job that was added by `on_failure`: the job that failed permanently."""

    job_id: int
    task_identifier: str
    payload: Any
    """Of a batch job, only the items that failed."""
    error: str
    """Its `last_error`."""
    attempts: int
    max_attempts: int
    key: str | None
    created_at: datetime


class FailureHandler(msgspec.Struct, frozen=True):
    """The task that is told of permanent failures, and the options of its jobs."""

    identifier: str
    options: Mapping[str, Any]
    queue_name_for: Callable[[Any], str | None] | None = None

    def spec(self, job: Job, error: str, payload: str | None = None) -> JobSpec:
        """The job to add for a failed job; `payload`: what is left of its own, as JSON text."""
        raw = job.raw_payload if payload is None else payload
        failed = FailedJob(
            job_id=job.id,
            task_identifier=job.task_identifier,
            payload=msgspec.Raw(without_trace(raw)),
            error=error,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            key=job.key,
            created_at=job.created_at,
        )
        try:
            options = self.options
            if self.queue_name_for is not None:
                options = {**options, "queue_name": self.queue_name_for(failed)}
            return _traced(JobSpec(self.identifier, failed, **options), raw)
        except InvalidArgumentError as error:  # must not keep the failure from being written
            logger.error(
                "the job of %r for the failed job %d is added without its queue and unique: %s",
                self.identifier,
                job.id,
                error,
            )
            options = {name: value for name, value in self.options.items() if name != "unique"}
            return _traced(JobSpec(self.identifier, failed, **options), raw)


def _traced(spec: JobSpec, raw: str) -> JobSpec:
    """The job with the trace of the failed one; of a batch job, with that of its first item."""
    traces = traces_in(raw)
    if not traces:
        return spec
    return spec._with_json(with_trace(encode(spec.payload), msgspec.json.encode(traces[0]).decode()))

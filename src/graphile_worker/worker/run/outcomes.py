"""What becomes of a job whose task failed, gave a directive, or was ended before it was done. Pure.

Errors and rules in, outcomes out; an `EndReason` says why the worker ends a job and which outcome it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

import msgspec

from ...errors import JobInterruptedError, JobTimeoutError
from ...errors.text import is_a, members_of
from ...logging.job_context import job_fields
from ...tasks.call import BatchFailure, payload_of
from ...tasks.options import FailureRules, JobHasExpired
from ...values.attempts import GiveUp, JobDirective, RetryIn, Snooze, back_off
from ...values.job import Job
from ...values.outcome import Expired, Failed, Interrupted, Outcome, Snoozed, failed
from ...values.text import duration

GAVE_UP = "the task gave up"
NOT_RETRIED = "the task does not retry this error"
TOO_LATE = "give_up_after would pass before the next attempt"
MAX_LEAVES = 1_000  # of an exception group

logger = logging.getLogger("graphile_worker.worker")

_changed = msgspec.structs.replace


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of a task that raised this, or returned a directive."""
    if not (is_a(error, JobDirective) or is_a(error, BaseExceptionGroup)):
        return failed(error)
    if isinstance(error, JobHasExpired):
        return Expired(error.waited, error.allowed)
    leaves = _leaves(error)
    if all(is_a(leaf, Snooze) for leaf in leaves):
        return _snoozed(leaves)
    outcome = failed(error)
    if any(is_a(leaf, GiveUp) for leaf in leaves):
        return _changed(outcome, given_up=GAVE_UP)
    return _later(outcome, leaves)


def outcome_of_batch(failure: BatchFailure, rules: FailureRules | None) -> Outcome:
    """The outcome of a batch job some of whose items failed.

    Items that are given up leave the payload, unless no others failed: then the job fails permanently.
    """
    lost = [_is_given_up(error, rules) for error in failure.errors]
    left = [error for error, is_lost in zip(failure.errors, lost, strict=True) if not is_lost]
    if not left:
        return _changed(
            failed(failure.error, failure.errors, failure.remaining_payload),
            given_up=GAVE_UP if any(is_a(error, GiveUp) for error in failure.errors) else NOT_RETRIED,
        )
    items = [item for item, is_lost in zip(failure.items, lost, strict=True) if not is_lost]
    remaining = payload_of(items)
    if len(left) == len(lost) and all(is_a(error, Snooze) for error in left):
        return _changed(_snoozed(left), remaining_payload=remaining)
    return _later(failed(failure.error, failure.errors, remaining), left)


def with_retry_rules(
    job: Job, outcome: Failed | Snoozed, rules: FailureRules, now: datetime
) -> Failed | Snoozed:
    """The outcome as the rules of its task want it."""
    if isinstance(outcome, Snoozed):
        late = _is_too_late(job, outcome, rules, now)
        return _snoozed_for_too_long(outcome, rules) if late else outcome
    delay, given_up = outcome.delay, outcome.given_up
    if given_up is None and delay is None and outcome.until is None:
        if outcome.batch_errors is None and not rules.allows_retry(_leaves(outcome.error)):
            given_up = NOT_RETRIED
        elif rules.retry is not None:
            delay = _delay(job, outcome.error, rules)
    if given_up is None and _is_too_late(job, _changed(outcome, delay=delay), rules, now):
        given_up = TOO_LATE
    return _changed(outcome, delay=delay, given_up=given_up, _on_failure=rules.on_failure)


def seconds_left(outcome: Failed | Snoozed, now: datetime) -> float | None:
    """The seconds until the job runs again; None for the back-off."""
    if outcome.until is None:
        return outcome.delay
    return max(0.0, (outcome.until - now).total_seconds())


def _is_given_up(error: BaseException, rules: FailureRules | None) -> bool:
    if is_a(error, JobDirective):
        return is_a(error, GiveUp)
    return rules is not None and not rules.allows_retry(_leaves(error))


def _delay(job: Job, error: BaseException, rules: FailureRules) -> float | None:
    try:
        return None if rules.retry is None else rules.retry.delay(job.attempts, error)
    except BaseException:
        logger.exception(
            "task %s (job %d): the function of @task(retry=...) failed; using the default back-off",
            job.task_identifier, job.id, extra=job_fields(job),
        )  # fmt: skip
        return None


def _is_too_late(job: Job, outcome: Failed | Snoozed, rules: FailureRules, now: datetime) -> bool:
    if rules.give_up_after is None:
        return False
    wait = seconds_left(outcome, now)
    due = now.timestamp() + (back_off(job.attempts) if wait is None else wait)
    return due > job.created_at.timestamp() + rules.give_up_after


def _snoozed_for_too_long(outcome: Snoozed, rules: FailureRules) -> Failed:
    allowed = duration(rules.give_up_after or 0.0)
    reason = f"; {outcome.reason}" if outcome.reason else ""
    error = GiveUp(f"snoozed beyond give_up_after, {allowed} after the job was added{reason}")
    return _changed(
        failed(error, None, outcome.remaining_payload), given_up=TOO_LATE, _on_failure=rules.on_failure
    )


def _snoozed(snoozes: Sequence[BaseException]) -> Snoozed:
    chosen = _latest(snoozes) or Snooze(0)
    return Snoozed(chosen.delay, chosen.until, chosen.reason)


def _later(outcome: Failed, errors: Iterable[BaseException]) -> Failed:
    """Not before any of the errors asks for."""
    chosen = _latest(errors)
    return outcome if chosen is None else _changed(outcome, delay=chosen.delay, until=chosen.until)


def _latest(errors: Iterable[BaseException]) -> Snooze | RetryIn | None:
    now = datetime.now(UTC)
    requests = [
        error
        for error in errors
        if issubclass(type(error), Snooze | RetryIn)  # not isinstance, which may run code of the error
        and isinstance(error, Snooze | RetryIn)
    ]
    return max(requests, key=partial(_seconds, now=now)) if requests else None


def _seconds(request: Snooze | RetryIn, now: datetime) -> float:
    if request.until is not None:
        return (request.until - now).total_seconds()
    return request.delay or 0.0


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors in an exception group and the groups within it, or the error itself."""
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting and len(leaves) < MAX_LEAVES:
        each = waiting.pop()
        if is_a(each, BaseExceptionGroup) and (members := members_of(each)):
            waiting += reversed(members)
        else:
            leaves.append(each)
    return leaves


# -- jobs that the worker ends before their task does --------------------------------------------------------


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

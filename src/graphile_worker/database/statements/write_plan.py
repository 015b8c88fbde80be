"""Which statement writes a batch of outcomes. Pure: outcomes in, a statement and its arguments out.

`write_outcomes` can write any mix of completed and failed jobs. The `complete_*` statements are fast paths
for batches of completed jobs, which most batches are. Returned jobs, and cancelled ones, are always a batch
of their own.

Batches that leave something behind, a job in the history or the error of an attempt, go through
`write_and_keep`, which does the same as `write_outcomes` and inserts that too. A fast path may only be taken
by batches that are nothing but deletes.

An outcome that keeps the job's row (retried, given up, snoozed) is a `Failure` with a decision, which is a
column of both statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ...values.flags import NO_RULES, FlagRules
from ...values.outcome import (
    Cancelled,
    Completed,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Kept,
    Snoozed,
    is_end_awaited,
    payload_to_keep,
    queues_of,
    retention_of,
)
from ...values.retention import Retention
from ...values.spec import JobSpec
from .control import CancelledJob, end_statement
from .fetch import flag_terms

MANY = 100  # jobs; below that it does not matter how they are found
VERY_MANY = 500  # jobs; from here a transaction of its own costs less than returning a row for each
NEAR = 2  # ids are close together if at least every second one is in the batch


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a failed attempt."""

    seconds: float
    """How long it took."""
    retention: Retention | None
    """How to keep the job if the failure is permanent."""
    keep_error_seconds: float | None
    """How long to keep the error."""
    error_type: str
    traceback: str
    fingerprint: str
    due_at: float = 0.0
    """When the attempt was due, in seconds since 1970."""
    is_awaited: bool = False
    payload: str | None = None
    """The payload to keep with the job, if it is redacted; None for that of the row."""


RetryDecision = Literal["give_up", "snooze"]
"""What may become of a job besides a retry: none at all, or a later run that uses no attempt."""
CUT_OFF = "Not run again: it was snoozed after its key had been used again or removed"


class Failure(msgspec.Struct, frozen=True):
    """A failed job: its error message, and the items of a batch job that are left to do.

    `max_attempts` is the number that holds for the job. It is written if the row has the database's default.
    Without a `decision` the job is retried, after the back-off unless there is a `delay` in seconds.
    """

    job_id: int
    message: str
    remaining_payload: str | None = None
    max_attempts: int | None = None
    record: ErrorRecord | None = None
    decision: RetryDecision | None = None
    delay: float | None = None
    attempt: int = 1
    """The number of the attempt; a job that is given up has used all of them."""


class KeptJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Deleted jobs that are kept in the same way."""

    state: Literal["completed", "expired"] = "completed"
    retention: Retention
    job_ids: Sequence[int]
    seconds: Sequence[float | None]
    """How long they ran; None if they did not."""
    results: Sequence[str | None]
    awaited: Sequence[int]
    """The ids of those that are announced."""
    payloads: Sequence[str | None] = ()
    """Redacted payloads to keep; empty, or None, for those of the rows."""


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, sorted by what happens to the rows."""

    completed: Sequence[int] = ()
    """Without those in `kept`."""
    kept: KeptJobs | None = None
    failed: Sequence[Failure] = ()
    returned: Sequence[int] = ()
    """Jobs that did not run to their end; never together with the others."""
    cancelled: Sequence[CancelledJob] = ()
    """Never together with the others."""
    queues: Sequence[int] = ()
    """The named queues that these jobs have locked."""
    note: str | None = None
    """The new last_error of returned jobs."""
    delay: float = 0.0
    """Seconds, at least, until returned jobs run again."""
    may_be_retired: bool = False
    """Whether the returned jobs never started, and some had a key when they were fetched."""
    has_snoozed_or_expired: bool = False
    """Whether jobs are among these that neither completed nor failed: snoozed or expired ones."""
    handled: Sequence[Finished] = ()
    """Failed jobs whose tasks have a handler for permanent failures."""

    @property
    def deleted(self) -> Sequence[int]:
        """The ids of all completed jobs, kept or not."""
        return self.completed if self.kept is None else [*self.completed, *self.kept.job_ids]


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """Lets a write lock the next job of each queue that it frees: what such a job must satisfy."""

    tasks: Mapping[int, str]
    flags: FlagRules = NO_RULES
    now: datetime | None = None
    is_wide: bool = False
    """Whether there are queues that may run several jobs at once."""


NOTHING_KEPT = ErrorRecord(
    seconds=0.0, retention=None, keep_error_seconds=None, error_type="", traceback="", fingerprint=""
)

NO_KEPT_JOBS = KeptJobs(retention=Retention(0.0), job_ids=(), seconds=(), results=(), awaited=())

Answer = Literal["row count", "missing ids", "next jobs", "returned ids", "cancelled ids"]
"""What a statement returns. Strings, because members of an enum are slow on the hot path."""
ROW_COUNT: Answer = "row count"
"""Only the number of deleted rows."""
MISSING_IDS: Answer = "missing ids"
"""No row if every job was written, else one with the ids that were not."""
NEXT_JOBS: Answer = "next jobs"
"""The next jobs of freed queues, with the ids of the jobs that were written."""
CANCELLED_IDS: Answer = "cancelled ids"
"""A row with the id and the reason for each cancelled job that was deleted."""
RETURNED_IDS: Answer = "returned ids"
"""A row for each job that was unlocked."""


class WritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One statement that writes a batch."""

    statement: str
    """Its name, as `load` takes it."""
    arguments: tuple[Any, ...]
    """For $1 and so on; the pool id comes first."""
    answer: Answer
    outcomes: Outcomes
    continuation: Continuation | None = None
    texts_at: Sequence[int] = ()
    """Indexes of the arguments with texts of errors, which must fit the server's encoding."""
    if_incomplete: WritePlan | None = None
    """After ROW_COUNT: what to run instead if rows are missing, to learn which."""

    def jobs_to_add(self, final: AbstractSet[int]) -> list[JobSpec]:
        """What the handlers of the tasks get for those failures that are permanent."""
        return [
            outcome._on_failure.spec(finished.job, outcome.message, outcome.remaining_payload)
            for finished in self.outcomes.handled
            if finished.job.id in final
            and isinstance(outcome := finished.outcome, Failed)
            and outcome._on_failure is not None
        ]


Recorder = Callable[[Finished, Failed | Snoozed], ErrorRecord | None]
"""Decides what is kept of an attempt."""


Now = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _returned(
    finished_jobs: Sequence[Finished], first: Interrupted, delay: float, with_note: bool
) -> Outcomes:
    return Outcomes(
        returned=[finished.job.id for finished in finished_jobs],
        queues=queues_of(finished_jobs),
        note=(first.message or None) if with_note else None,
        delay=delay if first.has_reason else 0.0,  # a job that never started need not wait
        may_be_retired=not first.has_reason
        and any(finished.job.key is not None for finished in finished_jobs),
    )


def outcomes_of(
    finished_jobs: Sequence[Finished],
    *,
    delay: float = 0.0,
    with_note: bool = True,
    record: Recorder | None = None,
    now: Now = _utc_now,
) -> Outcomes:
    """The batch as rows to write; all of it is interrupted, or nothing, and what is kept is kept alike.

    `delay`: seconds until an interrupted job runs again; `with_note`: whether its last_error says why it was.
    `record`: what to keep of failures; None to keep nothing. `now`: for jobs that run again at a fixed time.
    """
    first = finished_jobs[0].outcome
    if type(first) is Interrupted:
        return _returned(finished_jobs, first, delay, with_note)
    if type(first) is Cancelled:
        return Outcomes(
            cancelled=[cancelled_job(finished, is_kept=record is not None) for finished in finished_jobs],
            queues=queues_of(finished_jobs),
        )
    completed = [finished.job.id for finished in finished_jobs if type(finished.outcome) is Completed]
    queues = queues_of(finished_jobs)
    if len(completed) == len(finished_jobs):
        return Outcomes(completed=completed, queues=queues)
    failures: list[Failure] = []
    handled: list[Finished] = []
    kept: list[Finished] = []
    has_snoozed_or_expired = False
    for finished in finished_jobs:
        outcome = finished.outcome
        if type(outcome) is Completed:
            continue
        if type(outcome) is Kept and record is not None:
            kept.append(finished)
        elif isinstance(outcome, (Failed, Snoozed)):
            kept_of_it = None if record is None else record(finished, outcome)
            failures.append(failure_of(finished, outcome, kept_of_it, now))
            if isinstance(outcome, Snoozed):
                has_snoozed_or_expired = True
            elif outcome._on_failure is not None:
                handled.append(finished)
        else:
            has_snoozed_or_expired = has_snoozed_or_expired or isinstance(outcome, Expired)
            if record is None or retention_of(outcome) is None:
                completed.append(finished.job.id)
            else:
                kept.append(finished)
    return Outcomes(
        completed=completed,
        kept=kept_jobs(kept) if kept else None,
        failed=failures,
        queues=queues,
        has_snoozed_or_expired=has_snoozed_or_expired,
        handled=tuple(handled),
    )


def cancelled_job(finished: Finished, *, is_kept: bool) -> CancelledJob:
    """How to end a job whose outcome is `Cancelled`; `is_kept`: whether there is a history."""
    outcome = finished.outcome
    has_started = isinstance(outcome, Cancelled) and outcome.has_started
    return CancelledJob(
        job=finished.job,
        retention=retention_of(outcome) if is_kept else None,
        payload=payload_to_keep(outcome),
        reason=outcome.reason if isinstance(outcome, Cancelled) else None,
        seconds=finished.duration if has_started else None,
        is_own=True,
    )


def failure_of(
    finished: Finished, outcome: Failed | Snoozed, record: ErrorRecord | None, now: Now
) -> Failure:
    """The outcome as a row; `record`: what is kept of the attempt."""
    job = finished.job
    decision: RetryDecision | None = None
    message = CUT_OFF
    if isinstance(outcome, Snoozed):
        decision = "snooze"
    else:
        message = outcome.message
        if outcome.given_up is not None:
            decision = "give_up"
    delay = outcome.delay
    if outcome.until is not None:
        delay = max(0.0, (outcome.until - now()).total_seconds())
    return Failure(
        job.id, message, outcome.remaining_payload, job.max_attempts, record, decision, delay, job.attempts
    )


def kept_jobs(finished_jobs: Sequence[Finished]) -> KeptJobs:
    """All kept alike, and all completed or all expired."""
    outcomes = [finished.outcome for finished in finished_jobs]
    has_expired = isinstance(outcomes[0], Expired)  # without being run
    return KeptJobs(
        state="expired" if has_expired else "completed",
        retention=(retention := retention_of(outcomes[0]) or Retention(0.0)),
        job_ids=[finished.job.id for finished in finished_jobs],
        seconds=[None if has_expired else finished.duration for finished in finished_jobs],
        results=[outcome.raw_result if isinstance(outcome, Kept) else None for outcome in outcomes],
        awaited=[finished.job.id for finished in finished_jobs if is_end_awaited(finished.outcome)],
        payloads=[payload_to_keep(outcome) for outcome in outcomes] if retention.payload else (),
    )


def unless_empty(values: Sequence[Any]) -> Sequence[Any]:
    """An array of nulls is an empty one: `unnest` fills it up, and the driver looks at each element."""
    return values if any(value is not None for value in values) else []


def _variant(statement: str, continuation: Continuation | None) -> str:
    if continuation is None:
        return statement
    if continuation.is_wide:
        statement += "@wide"
    return f"{statement}@routed" if continuation.flags.is_routed else statement


class WritePlanner:
    """Plans the writes of one pool."""

    def __init__(self, pool_id: str, schema_name: str = "", *, version: str | None = None) -> None:
        """`schema_name` and `version` (of the application) are written with what is kept."""
        self._pool_id = pool_id
        self._schema_name = schema_name
        self._version = version
        self._tasks: Mapping[int, str] = {}
        self._task_ids = "{}"  # of `_tasks`, as an array literal

    def plan(self, outcomes: Outcomes, continuation: Continuation | None = None) -> WritePlan:
        """The cheapest statement for these outcomes. With `continuation`, it locks the queues' next jobs."""
        if outcomes.returned:
            return self._return(outcomes)
        if outcomes.cancelled:
            return self._end_cancelled(outcomes)
        if outcomes.kept is not None or any(failure.record for failure in outcomes.failed):
            return self._write_and_keep(outcomes, continuation)
        if outcomes.failed:
            return self._write_any(outcomes, continuation)
        if continuation is not None:
            return WritePlan(
                statement=_variant("write/complete_and_take_next", continuation),
                arguments=(self._pool_id, outcomes.completed, *self._terms(continuation)),
                answer=NEXT_JOBS,
                outcomes=outcomes,
                continuation=continuation,
            )
        if outcomes.queues:
            return self._list_missing("write/complete_queued_jobs", outcomes)
        return self._complete(outcomes)

    def _complete(self, outcomes: Outcomes) -> WritePlan:
        """Completed jobs without a queue."""
        job_ids = outcomes.completed
        count = len(job_ids)
        if count == 1:  # the usual write of an idle worker
            return WritePlan(
                statement="write/complete_job",
                arguments=(self._pool_id, job_ids[0]),
                answer=ROW_COUNT,
                outcomes=outcomes,
            )
        if count < MANY:
            return self._list_missing("write/complete_jobs", outcomes)
        first, last = min(job_ids), max(job_ids)
        if last - first >= NEAR * count:
            return self._list_missing("write/complete_jobs", outcomes)
        adjacent = self._list_missing("write/complete_adjacent_jobs", outcomes, first, last)
        if count < VERY_MANY:
            return adjacent
        return WritePlan(
            statement="write/complete_many_jobs",
            arguments=adjacent.arguments,
            answer=ROW_COUNT,
            outcomes=outcomes,
            if_incomplete=adjacent,
        )

    def _list_missing(self, statement: str, outcomes: Outcomes, *more: int) -> WritePlan:
        return WritePlan(
            statement=statement,
            arguments=(self._pool_id, outcomes.completed, *more),
            answer=MISSING_IDS,
            outcomes=outcomes,
        )

    def _write_any(self, outcomes: Outcomes, continuation: Continuation | None) -> WritePlan:
        failures = outcomes.failed
        return WritePlan(
            statement=_variant("write/write_outcomes", continuation),
            arguments=(
                self._pool_id,
                outcomes.completed,
                *self._terms(continuation),
                [failure.job_id for failure in failures],
                [failure.message for failure in failures],
                unless_empty([failure.remaining_payload for failure in failures]),
                [failure.max_attempts for failure in failures],
                unless_empty([failure.decision for failure in failures]),
                unless_empty([failure.delay for failure in failures]),
            ),
            answer=NEXT_JOBS,
            outcomes=outcomes,
            continuation=continuation,
            texts_at=(6,),
        )

    def _write_and_keep(self, outcomes: Outcomes, continuation: Continuation | None) -> WritePlan:
        plan, kept = self._write_any(outcomes, continuation), outcomes.kept or NO_KEPT_JOBS
        records = [failure.record or NOTHING_KEPT for failure in outcomes.failed]
        retentions = [record.retention for record in records]
        kept_errors = [None if record.keep_error_seconds is None else record for record in records]
        awaited = [
            failure.job_id
            for failure, record in zip(outcomes.failed, records, strict=True)
            if record.is_awaited
        ]
        failures = len(plan.arguments) - 2  # the last two are the last ones here too
        arguments: tuple[Any, ...] = (
            *plan.arguments[:failures],
            [record.seconds for record in records],
            [None if retention is None else retention.seconds for retention in retentions],
            [retention is not None and retention.payload for retention in retentions],
            unless_empty([record and record.keep_error_seconds for record in kept_errors]),
            unless_empty([record and record.error_type for record in kept_errors]),
            unless_empty([record and record.traceback for record in kept_errors]),
            unless_empty([record and record.fingerprint for record in kept_errors]),
            [record.due_at for record in records],
            kept.job_ids,
            kept.seconds,
            unless_empty(kept.results),
            kept.retention.seconds,
            kept.retention.payload,
            [*awaited, *kept.awaited],
            self._version,
            self._schema_name,
            unless_empty(kept.payloads),
            unless_empty([record.payload for record in records]),
            *plan.arguments[failures:],
            [failure.attempt for failure in outcomes.failed],
            kept.state,
        )
        types, version = failures + 4, len(arguments) - 8
        return WritePlan(
            statement=_variant("write/write_and_keep", continuation),
            arguments=arguments,
            answer=NEXT_JOBS,
            outcomes=outcomes,
            continuation=continuation,
            texts_at=(*plan.texts_at, types, types + 1, version),
        )

    def _return(self, outcomes: Outcomes) -> WritePlan:
        return WritePlan(
            statement="write/return_jobs",
            arguments=(self._pool_id, outcomes.returned, outcomes.note, outcomes.queues, outcomes.delay),
            answer=RETURNED_IDS,
            outcomes=outcomes,
            texts_at=(2,),
        )

    def _end_cancelled(self, outcomes: Outcomes) -> WritePlan:
        statement, arguments = end_statement(self._pool_id, self._schema_name, outcomes.cancelled)
        return WritePlan(
            statement=statement, arguments=arguments, answer=CANCELLED_IDS, outcomes=outcomes, texts_at=(2,)
        )

    def _terms(self, continuation: Continuation | None) -> tuple[Any, Any, Any]:
        """Task ids, rules for flags and time. The text of the ids is made once per set of tasks."""
        if continuation is None:
            return None, None, None
        if continuation.tasks is not self._tasks:
            self._tasks = continuation.tasks
            self._task_ids = "{" + ",".join(map(str, self._tasks)) + "}"
        return self._task_ids, flag_terms(continuation.flags), continuation.now

"""Writes one batch of outcomes, in halves if the database refuses it as a whole.

Errors about the connection or the state of the server are raised, and the batch is retried later. A batch
that is refused for its content is split in halves, down to the outcome that is refused. That job is failed
with a message that says why. If even that is refused, the job is given up: it stays locked until recovery
takes it. So one bad outcome cannot block the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Protocol

from ...database.connections.connection import Connection
from ...database.connections.retry import is_refusal, may_pass
from ...database.statements.control import CancelledJob
from ...database.statements.write import ALL_WRITTEN, Written, release_queue, write
from ...database.statements.write_plan import (
    NOTHING_KEPT,
    Failure,
    Outcomes,
    WritePlan,
    WritePlanner,
    failure_of,
    kept_jobs,
    outcomes_of,
)
from ...errors import JobError, JobInterruptedError
from ...errors.text import message_of
from ...history.upkeep import is_partition_missing
from ...hooks.interceptors import Redactor
from ...logging.job_context import job_fields
from ...metrics.minutes import StatisticsCounter
from ...recovery.orphaned_jobs import still_locked
from ...values.job import Job
from ...values.outcome import Expired, Failed, Finished, Interrupted, Kept, Snoozed, failed
from ..context import JobTakers, PoolContext
from ..held.reconcile import HeldWrite
from ..run.outcomes import TAKEN_AWAY
from ..session import Session
from .events import LOST_ROW, OutcomeEvents
from .recorder import MAX_ERRORS, HistoryRecorder, with_redacted_errors
from .unwritten import MAX_WRITE_BYTES, is_only_retried, kept_alike, write_size

MAX_GIVEN_UP = 10  # in a row; if nothing can be written, the cause is hardly a single outcome

MAX_PARTITION_ATTEMPTS = 3

UNCHANGED = "the row did not change: a trigger or a policy kept it, without an error"

logger = logging.getLogger("graphile_worker.worker")


class WriteWatcher(Protocol):
    """Is told how each statement went."""

    def write_failed(self, error: BaseException) -> None: ...

    def write_succeeded(self) -> None: ...


class _RefusedError(Exception):
    """The database refused a statement because of its content."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__()


class _PartitionMissingError(Exception):
    """The history has no partition for a row of the batch."""


class _ChangedError(Exception):
    """The statement must be another one: the pool has lost jobs of the batch, or the history refuses rows."""


class PendingWrite:
    """The parts of a batch that are not written yet."""

    def __init__(self, batch: list[Finished]) -> None:
        self.parts = [batch]
        """In reverse order."""
        self.kept: list[Finished] = []
        """Refused for now; to be retried later."""

    @property
    def unwritten(self) -> list[Finished]:
        """Everything that is left, in order."""
        return [*self.kept, *(finished for part in reversed(self.parts) for finished in part)]


class OutcomeWriter:
    """Writes batches for one pool and emits the events of what was written."""

    def __init__(
        self,
        context: PoolContext,
        session: Session,
        lanes: JobTakers,
        watcher: WriteWatcher,
        *,
        recorder: HistoryRecorder | None,
        statistics: StatisticsCounter | None,
        redactors: Sequence[Redactor],
    ) -> None:
        """`recorder`: what to keep in the history; None if there is no history."""
        self._owner = context.owner
        self._redactors = redactors
        self._session = session
        self._schema = context.schema
        self._clock = context.clock
        self._recorder = recorder
        self._planner = WritePlanner(
            context.pool_id, context.schema.name, version=None if recorder is None else recorder.version
        )
        self._events = OutcomeEvents(context.events, context.pool_id, context.clock)
        self._pool_id = context.pool_id
        self._interrupted_delay = context.options.interrupted_job_retry_delay
        self._watcher = watcher
        self._statistics = statistics
        self._sent: list[Sequence[Finished]] = []  # what was sent of the present part
        self.maybe_written: set[int] = set()
        """Ids of jobs whose write was sent and got no answer."""
        self._given_up_in_a_row = 0
        self._lanes = lanes
        self.has_freed_queues = False
        """Whether a named queue may be free now without its next job being locked."""
        self.has_next_jobs = False
        """Whether such a queue may have a next job; else the write has looked for it."""

    async def write(self, pending: PendingWrite, on_done: Callable[[Sequence[Finished]], None]) -> None:
        """Write the batch, in parts if necessary, and call `on_done` with each part that is dealt with."""
        parts = pending.parts
        try:
            while parts:
                part = parts[-1]
                try:
                    await self._write_part(part)
                except _RefusedError as refused:
                    if len(part) > 1:
                        middle = len(part) // 2
                        parts[-1:] = [part[middle:], part[:middle]]
                        continue
                    if not await self._fail_refused(part[0], refused.error):
                        pending.kept += parts.pop()
                        continue
                parts.pop()
                self._sent.clear()
                on_done(part)
        except BaseException:
            self.maybe_written.update(finished.job.id for sent in self._sent for finished in sent)
            raise
        finally:
            self._sent.clear()

    def held_write(self, finished: Sequence[Finished]) -> HeldWrite:
        """Which of these the end of a held batch writes: completed jobs that are kept, and some failures."""
        completed = [each for each in finished if type(each.outcome) is Kept]
        if not completed:
            return self._held_failures(finished)
        write = self._held_failures([each for each in finished if type(each.outcome) is not Kept])
        if self._recorder is None or not self._recorder.is_on:
            ids, kept, others = [each.job.id for each in completed], [], write.others
        else:
            count = write_size(completed, len(completed))
            completed, late = completed[:count], completed[count:]
            ids, kept = [], [kept_jobs(each) for each in kept_alike(completed)]
            others = [*write.others, *late]
        return HeldWrite(
            finished=[*write.finished, *completed],
            outcomes=Outcomes(completed=ids, failed=write.outcomes.failed),
            kept=kept,
            others=others,
            with_errors=write.with_errors,
        )

    def _held_failures(self, finished: Sequence[Finished]) -> HeldWrite:
        """The same of failures: those that are retried, and not kept."""
        retried = [each for each in finished if is_only_retried(each)]
        if not retried:
            return HeldWrite(others=finished)
        batch = with_redacted_errors(retried, self._redactors) if self._redactors else retried
        recorder = self._recorder
        records = [NOTHING_KEPT] * len(batch) if recorder is None else recorder.record_unless_kept(batch)
        written: list[Finished] = []
        rows: list[Failure] = []
        room = MAX_WRITE_BYTES
        for original, each, record in zip(retried, batch, records, strict=True):
            if record is not None and isinstance(each.outcome, Failed):
                room -= len(each.outcome.message)
                if room < 0:
                    break
                written.append(original)
                rows.append(failure_of(each, each.outcome, record, self._clock.now))
        ids = {each.job.id for each in written}
        others = [each for each in finished if each.job.id not in ids]
        kept = min(len(retried) - len(written), MAX_ERRORS)
        return HeldWrite(finished=written, outcomes=Outcomes(failed=rows), others=others, with_errors=kept)

    def is_of_history(self, error: BaseException) -> bool:
        """Whether a statement failed because of the history; it is switched off if it refuses this role."""
        is_refused = self._recorder is not None and self._recorder.is_refused(error)
        return is_refused or is_partition_missing(error)

    def written_held(self, batch: Sequence[Finished], began: float, outcomes: Outcomes) -> None:
        """Count the jobs that a held batch has ended or, as `outcomes` says, failed; emit their events."""
        if outcomes.failed and self._recorder is not None:
            self._recorder.count(outcomes, batch, frozenset())
        if self._statistics is not None:
            self._statistics.count(batch, frozenset(), has_failures=bool(outcomes.failed))
        seconds = time.monotonic() - began if self._events.is_write_observed else None
        self._events.written(batch, frozenset(), seconds)

    def discarded(self, finished: Finished) -> None:
        """Emit that an outcome was not written because the job is not ours any more."""
        self._events.discarded(finished, LOST_ROW)

    async def _write_part(self, batch: list[Finished], *, is_last_attempt: bool = False) -> None:
        """Run one statement; _RefusedError if the database refuses its content."""
        attempts = 0
        while batch := await self._still_ours(batch):
            plan = self._plan(batch, is_last_attempt=is_last_attempt)
            try:
                written, jobs, seconds = await self._run(batch, plan)
            except _ChangedError:
                continue
            except _PartitionMissingError as refused:
                attempts += 1
                if self._recorder is None or attempts > MAX_PARTITION_ATTEMPTS:
                    raise refused.__cause__ or refused from None
                await self._session.run(partial(self._recorder.add_partitions, batch=batch))
                continue
            self._account(batch, plan, jobs)
            await self._announce(batch, plan.outcomes, written, seconds, is_last_attempt=is_last_attempt)
            return
        self.has_freed_queues = True

    async def _still_ours(self, batch: list[Finished]) -> list[Finished]:
        """Wait for the lease; the batch without the jobs that this pool has lost."""
        session = self._session
        if not session.lease.is_open:
            await session.lease.passed()
        return self._drop_lost(batch) if session.locked_jobs.lost else batch

    def _plan(self, batch: list[Finished], *, is_last_attempt: bool) -> WritePlan:
        """The statement that writes the batch, and may lock the next jobs of the queues that it frees."""
        recorder = self._recorder
        outcomes = outcomes_of(
            with_redacted_errors(batch, self._redactors) if self._redactors else batch,
            delay=self._interrupted_delay,
            with_note=not is_last_attempt,
            record=recorder.record if recorder is not None and recorder.is_on else None,
            now=self._clock.now,
        )
        can_continue = outcomes.queues and not outcomes.returned and not outcomes.cancelled
        return self._planner.plan(outcomes, self._lanes.terms() if can_continue else None)

    def _account(self, batch: Sequence[Finished], plan: WritePlan, next_jobs: Sequence[Job]) -> None:
        """The rows are written: these jobs are locked no more, and the next jobs of their queues are."""
        self._session.locked_jobs.remove([finished.job for finished in batch])
        if next_jobs:
            self._lanes.adopt(next_jobs)
        if len(next_jobs) < len(plan.outcomes.queues):
            self.has_freed_queues = True
            self.has_next_jobs = self.has_next_jobs or plan.continuation is None

    async def _announce(
        self,
        batch: list[Finished],
        outcomes: Outcomes,
        written: Written,
        seconds: float | None,
        *,
        is_last_attempt: bool,
    ) -> None:
        """Emit what became of each job, and count it. Those that were not written are dealt with first."""
        if written.cancelled and not outcomes.cancelled:
            batch = self._without_cancelled(batch, written.cancelled)
        if outcomes.returned:
            self.has_freed_queues = True
            missing = set(written.missing) - self.maybe_written
            self.maybe_written.difference_update(outcomes.returned)
            self._events.returned(batch, missing, written.final, seconds)
            return
        final: AbstractSet[int] = written.final
        if written.missing or self.maybe_written:
            batch, final = await self._sort_out(batch, written, is_last_attempt=is_last_attempt)
        if outcomes.cancelled:
            self._events.cancelled(batch, written.cancelled)
            return
        if outcomes.has_snoozed_or_expired:
            self._events.ended(batch, final)
            batch = [finished for finished in batch if not isinstance(finished.outcome, Snoozed | Expired)]
        if self._recorder is not None and outcomes.failed:
            self._recorder.count(outcomes, batch, final)
        if self._statistics is not None and batch:
            self._statistics.count(batch, final, has_failures=bool(outcomes.failed))
        self._events.written(batch, final, seconds)

    async def _run(
        self, batch: Sequence[Finished], plan: WritePlan
    ) -> tuple[Written, Sequence[Job], float | None]:
        """The result, the jobs that were locked and are ours, and the seconds it took if that is observed."""
        written, seconds = ALL_WRITTEN, None
        locked_jobs, is_observed = self._session.locked_jobs, self._events.is_write_observed
        cancellable = None
        if (plan.outcomes.failed or plan.outcomes.returned) and self._owner.sees_cancelled_jobs:
            cancellable = partial(self._cancellable, batch)

        async def statement(connection: Connection) -> Sequence[Job]:
            nonlocal written, seconds
            if locked_jobs.lost and any(locked_jobs.is_lost(finished.job) for finished in batch):
                raise _ChangedError
            self._sent.append(batch)
            began = time.monotonic() if is_observed else 0.0
            written = await write(connection, self._schema, plan, cancellable=cancellable)
            if is_observed:
                seconds = time.monotonic() - began
            return written.jobs

        run = self._session.run if plan.outcomes.returned else self._session.run_under_lease
        sent_before = len(self._sent)
        try:
            jobs = await run(statement)
        except Exception as error:
            if refused := self._as_refusal(error):
                del self._sent[sent_before:]
                raise refused from error
            raise
        self._given_up_in_a_row = 0
        self._watcher.write_succeeded()
        return written, jobs, seconds

    def _as_refusal(self, error: Exception) -> Exception | None:
        """What to raise if the database has refused a statement, so that nothing of it is written."""
        if is_partition_missing(error):
            return _PartitionMissingError()
        if self._recorder is not None and self._recorder.is_on and self._recorder.is_refused(error):
            return _ChangedError()
        return _RefusedError(error) if is_refusal(error) else None

    def _cancellable(self, batch: Sequence[Finished], job_ids: AbstractSet[int]) -> list[CancelledJob]:
        """How to end those of these jobs that were cancelled before this pool knew."""
        jobs, recorder = [], self._recorder
        for finished in batch:
            if finished.job.id in job_ids:
                retention, payload = (None, None) if recorder is None else recorder.keep_cancelled(finished)
                jobs.append(
                    CancelledJob(
                        job=finished.job,
                        retention=retention,
                        payload=payload,
                        seconds=finished.duration,
                        is_own=True,
                    )
                )
        return jobs

    def _without_cancelled(
        self, batch: list[Finished], cancelled: Mapping[int, str | None]
    ) -> list[Finished]:
        """The batch without jobs that were cancelled in the meantime, whose events are emitted here."""
        self.maybe_written.difference_update(cancelled)
        self._events.cancelled([finished for finished in batch if finished.job.id in cancelled], cancelled)
        return [finished for finished in batch if finished.job.id not in cancelled]

    # -- what was not written ------------------------------------------------------------------------------

    async def _sort_out(
        self, batch: list[Finished], written: Written, *, is_last_attempt: bool
    ) -> tuple[list[Finished], set[int]]:
        """The jobs that were written, and the ids that are not retried. Deals with the other jobs.

        A job that is missing may have been written by an earlier statement whose answer was lost.
        """
        missing = set(written.missing)
        repeated = {finished.job.id: finished for finished in batch if finished.job.id in self.maybe_written}
        self.maybe_written.difference_update(repeated)
        final = set(written.final)
        for job_id in missing & repeated.keys():
            job, outcome = repeated[job_id].job, repeated[job_id].outcome
            if isinstance(outcome, Failed) and (outcome.given_up or job.attempts >= job.max_attempts):
                final.add(job_id)
        missing -= repeated.keys()
        held = await self._still_locked(missing)
        kept = []
        for finished in batch:
            if finished.job.id not in missing:
                kept.append(finished)
            elif finished.job.id not in held:
                self._events.discarded(finished, LOST_ROW)
            elif is_last_attempt:
                await self._give_up(finished, JobError(UNCHANGED))
            else:
                await self._fail_refused(finished, JobError(UNCHANGED))
        return kept, final

    async def _still_locked(self, job_ids: Collection[int]) -> set[int]:
        """Which of these jobs this pool has locked; a trigger or a policy can leave a row unchanged."""
        if not job_ids:
            return set()
        return await self._session.run(
            lambda connection: still_locked(connection, self._schema, self._pool_id, list(job_ids))
        )

    async def _fail_refused(self, finished: Finished, error: BaseException) -> bool:
        """Fail a job whose outcome is refused, with a message that says so, or give it up.

        False if the outcome must wait.
        """
        if may_pass(error) or self._given_up_in_a_row >= MAX_GIVEN_UP:
            self._watcher.write_failed(error)
            return False
        reason = f"its outcome could not be written: {message_of(error)}"
        try:
            await self._write_part([_as_plain_failure(finished, reason)], is_last_attempt=True)
        except _RefusedError as again:
            await self._give_up(finished, again.error)
        else:
            job = finished.job
            logger.error(
                "task %s (job %d): %s; it is treated as failed", job.task_identifier, job.id, reason,
                extra=job_fields(job, finished.worker_id),
            )  # fmt: skip
        return True

    async def _give_up(self, finished: Finished, error: BaseException) -> None:
        """Leave the job locked: not even a failure can be written."""
        job, locked_jobs = finished.job, self._session.locked_jobs
        self._given_up_in_a_row += 1
        locked_jobs.give_up(job)
        reason = f"the database refuses every outcome: {message_of(error)}"
        logger.error(
            "task %s (job %d) has ended, but %s; it stays locked by this worker (%s) and runs again once "
            "this worker has stopped and is declared dead, or after four hours",
            job.task_identifier, job.id, reason, self._pool_id, extra=job_fields(job, finished.worker_id),
        )  # fmt: skip
        if job.job_queue_id is not None:
            await self._free_queue(job.job_queue_id)
        self._events.discarded(finished, reason)

    async def _free_queue(self, queue_id: int) -> None:
        """Unlock the queue of a job that is given up: its task has ended, so the other jobs can run."""
        try:
            await self._session.run(
                lambda connection: release_queue(connection, self._schema, self._pool_id, queue_id)
            )
        except Exception as error:
            if not is_refusal(error):
                raise
            logger.error("queue %d stays locked: %s", queue_id, message_of(error))
        else:
            self.has_freed_queues = True

    def _drop_lost(self, batch: list[Finished]) -> list[Finished]:
        """The batch without jobs that were taken from this pool, whose outcomes it must not write."""
        locked_jobs = self._session.locked_jobs
        kept = []
        for finished in batch:
            if not locked_jobs.is_lost(finished.job):
                kept.append(finished)
                continue
            locked_jobs.forget(finished.job)
            self.maybe_written.discard(finished.job.id)
            self._events.interrupted(finished, Interrupted(JobInterruptedError(TAKEN_AWAY.reason)))
        return kept


def _as_plain_failure(finished: Finished, reason: str) -> Finished:
    """The same run as a failure with a message of ours; an interrupted one stays as it is."""
    if isinstance(finished.outcome, Interrupted):
        return finished
    error = JobError(reason[0].upper() + reason[1:])
    if finished.outcome.error is not None:
        error.__cause__ = finished.outcome.error
    return Finished(finished.job, failed(error), finished.worker_id, finished.duration)

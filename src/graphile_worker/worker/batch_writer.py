"""Writing one batch of outcomes, in parts if the database refuses it as a whole.

An error about the connection, or about the state of the server, is raised: the batch is tried again later. A
batch that is refused for what is in it is written in halves, down to the outcome that is refused. That job is
failed with a text that says why; if not even that can be written it is given up, and its lock is left to
recovery. So no single outcome can hold up the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from ..db.connection import Connection
from ..db.retry import is_refusal, may_pass
from ..error_text import message_of
from ..errors import JobError, JobInterruptedError
from ..hooks import Events
from ..job import Job
from ..outcome import Completed, Failed, Finished, Interrupted, failed, queues_of
from ..queries.write import (
    ALL_WRITTEN,
    Continuation,
    Failure,
    Outcomes,
    Written,
    release_queue,
    return_jobs,
    write_outcomes,
)
from ..recovery.orphaned_jobs import still_locked
from ..schema_name import SchemaName
from .execute import TAKEN_AWAY
from .outcome_events import LOST_ROW, OutcomeEvents
from .session import Session

MAX_GIVEN_UP = 10  # outcomes in a row; if nothing at all can be written, it is hardly about single outcomes

UNCHANGED = "the row did not change, by a trigger or a policy, and there was no error"

logger = logging.getLogger("graphile_worker.worker")


class _RefusedError(Exception):
    """The database did not take a statement because of what is in it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_refusal(error):
            raise _RefusedError(error) from error
        raise


class PendingBatch:
    """A batch on its way: what is still to be written."""

    def __init__(self, batch: list[Finished]) -> None:
        self.parts = [batch]
        """From the last to the first."""
        self.kept: list[Finished] = []
        """Refused for now; to be tried again later."""

    @property
    def left(self) -> list[Finished]:
        """All that was not dealt with."""
        return [*self.kept, *(finished for part in reversed(self.parts) for finished in part)]


class BatchWriter:
    """Writes batches for one pool, and tells observers of what was written."""

    def __init__(
        self,
        session: Session,
        schema: SchemaName,
        events: Events,
        *,
        pool_id: str,
        interrupted_delay: float,
        on_error: Callable[[BaseException], None],
        on_written: Callable[[], None],
    ) -> None:
        self._session = session
        self._schema = schema
        self._teller = OutcomeEvents(events)
        self._pool_id = pool_id
        self._interrupted_delay = interrupted_delay
        self._on_error = on_error
        self._on_written = on_written
        self._unsure: set[int] = set()  # jobs that may have been written although we got no answer
        self._given_up_in_a_row = 0
        self.go_on: Callable[[], Continuation | None] = lambda: None
        """How freed queues may go on."""
        self.adopt: Callable[[Sequence[Job]], None] = lambda jobs: None
        """Takes the jobs with which they do."""
        self.has_freed = False
        """Whether a named queue may be free now that did not go on with its next job."""

    async def write(self, pending: PendingBatch, leave: Callable[[Sequence[Finished]], None]) -> None:
        """Write it, in parts if it has to be; `leave` hears of each part that is dealt with."""
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
                    if not await self._refused(part[0], refused.error):
                        pending.kept += parts.pop()
                        continue
                parts.pop()
                leave(part)
        except BaseException:
            self._unsure.update(finished.job.id for part in parts for finished in part)
            raise

    def _succeeded(self) -> None:
        self._given_up_in_a_row = 0
        self._on_written()

    async def _write_part(self, batch: list[Finished], *, is_last_try: bool = False) -> None:
        """One statement; _RefusedError if the database does not take what is in it."""
        if not self._session.lease.is_open:
            await self._session.lease.passed()
        if self._session.holdings.lost:
            batch = self._drop_lost(batch)
            if not batch:
                self.has_freed = True
                return
        if isinstance(batch[0].outcome, Interrupted):
            self.has_freed = True
            note = "" if is_last_try else _interruption(batch[0]).message
            await self._write_interrupted(batch, note=note)
            return
        outcomes = _outcomes(batch)
        go_on = self.go_on() if outcomes.queues else None
        written = ALL_WRITTEN

        async def write(connection: Connection) -> Sequence[Job]:
            nonlocal written
            written = await write_outcomes(connection, self._schema, self._pool_id, outcomes, go_on=go_on)
            return written.jobs

        try:
            jobs = await self._session.run_under_lease(write)
        except Exception as error:
            if is_refusal(error):
                raise _RefusedError(error) from error
            raise
        self._succeeded()
        self._session.holdings.remove([finished.job for finished in batch])
        if jobs:
            self.adopt(jobs)
        if len(jobs) < len(outcomes.queues):
            self.has_freed = True
        final: Collection[int] = written.final
        if written.missing or self._unsure:
            batch, final = await self._sort_out(batch, written, is_last_try=is_last_try)
        self._teller.written(batch, final)

    async def _write_interrupted(self, batch: list[Finished], *, note: str) -> None:
        jobs = [finished.job for finished in batch]
        delay = self._interrupted_delay if _interruption(batch[0]).has_reason else 0.0  # else it never ran
        with _refusals():
            returned = await self._session.run(
                lambda connection: return_jobs(
                    connection, self._schema, self._pool_id, jobs, note=note or None, delay=delay
                )
            )
        self._succeeded()
        self._session.holdings.remove(jobs)
        for finished in batch:
            job_id = finished.job.id
            if job_id in returned or job_id in self._unsure:
                can_run = returned.get(job_id, True)
                self._teller.interrupted(finished, _interruption(finished), can_run=can_run)
            else:
                self._teller.discarded(finished, LOST_ROW)
            self._unsure.discard(job_id)

    # -- what was not written ------------------------------------------------------------------------------

    async def _sort_out(
        self, batch: list[Finished], written: Written, *, is_last_try: bool
    ) -> tuple[list[Finished], set[int]]:
        """Those of the batch that were written, and which of them are not tried again; tells of the others.

        One that is missing now may have been written by an earlier try whose answer was lost.
        """
        missing = set(written.missing)
        before = {finished.job.id: finished for finished in batch if finished.job.id in self._unsure}
        self._unsure.difference_update(before)
        final = set(written.final)
        for job_id in missing & before.keys():
            job = before[job_id].job
            if job.attempts >= job.max_attempts:
                final.add(job_id)
        missing -= before.keys()
        held = await self._still_held(missing)
        kept = []
        for finished in batch:
            if finished.job.id not in missing:
                kept.append(finished)
            elif finished.job.id not in held:
                self._teller.discarded(finished, LOST_ROW)
            elif is_last_try:
                await self._give_up(finished, JobError(UNCHANGED))
            else:
                await self._refused(finished, JobError(UNCHANGED))
        return kept, final

    async def _still_held(self, job_ids: Collection[int]) -> set[int]:
        """Which of these jobs this pool has: triggers and policies may keep a row as it is, without error."""
        if not job_ids:
            return set()
        return await self._session.run(
            lambda connection: still_locked(connection, self._schema, self._pool_id, list(job_ids))
        )

    async def _refused(self, finished: Finished, error: BaseException) -> bool:
        """The database refuses this outcome: let the job fail with a text that says so, or give it up.

        False if it must wait.
        """
        if may_pass(error) or self._given_up_in_a_row >= MAX_GIVEN_UP:
            self._on_error(error)
            return False
        why = f"its outcome could not be written: {message_of(error)}"
        try:
            await self._write_part([_failed_plainly(finished, why)], is_last_try=True)
        except _RefusedError as again:
            await self._give_up(finished, again.error)
        else:
            job = finished.job
            logger.error("job %d (%s): %s; it counts as failed", job.id, job.task_identifier, why)
        return True

    async def _give_up(self, finished: Finished, error: BaseException) -> None:
        """Leave the job locked: not even that it failed can be written."""
        job, holdings = finished.job, self._session.holdings
        self._given_up_in_a_row += 1
        holdings.give_up(job)
        why = f"the database refuses every outcome: {message_of(error)}"
        logger.error(
            "job %d (%s) has ended, but %s; it stays locked by this worker (%s) and runs again once this "
            "worker has stopped and counts as dead, or after four hours",
            job.id, job.task_identifier, why, self._pool_id,
        )  # fmt: skip
        if job.job_queue_id is not None:
            await self._free_queue(job.job_queue_id)
        self._teller.discarded(finished, why)

    async def _free_queue(self, queue_id: int) -> None:
        """The task has ended, so the other jobs of its queue need not wait for the one that is given up."""
        try:
            with _refusals():
                await self._session.run(
                    lambda connection: release_queue(connection, self._schema, self._pool_id, queue_id)
                )
        except _RefusedError as refused:
            logger.error("queue %d stays locked: %s", queue_id, message_of(refused.error))
        else:
            self.has_freed = True

    def _drop_lost(self, batch: list[Finished]) -> list[Finished]:
        """The batch without jobs that were taken from this pool: their outcome is not ours to write."""
        holdings = self._session.holdings
        kept = []
        for finished in batch:
            if not holdings.is_lost(finished.job):
                kept.append(finished)
                continue
            holdings.forget(finished.job)
            self._teller.interrupted(finished, Interrupted(JobInterruptedError(TAKEN_AWAY)))
        return kept


def _failed_plainly(finished: Finished, why: str) -> Finished:
    """The same run as a failure whose text is ours; one that was interrupted goes back without a note."""
    if isinstance(finished.outcome, Interrupted):
        return finished
    error = JobError(why[0].upper() + why[1:])
    if finished.outcome.error is not None:
        error.__cause__ = finished.outcome.error
    return Finished(finished.job, failed(error), finished.worker_id, finished.duration)


def _outcomes(batch: list[Finished]) -> Outcomes:
    outcomes = Outcomes(
        completed=[finished.job.id for finished in batch if type(finished.outcome) is Completed],
        queues=queues_of(batch),
    )
    if len(outcomes.completed) < len(batch):
        for finished in batch:
            outcome = finished.outcome
            if isinstance(outcome, Failed):
                failure = Failure(finished.job.id, outcome.message, outcome.remaining_payload)
                outcomes.failed.append(failure)
    return outcomes


def _interruption(finished: Finished) -> Interrupted:
    assert isinstance(finished.outcome, Interrupted)  # noqa: S101 - told apart by the caller
    return finished.outcome

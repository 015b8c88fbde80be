"""Sink: writes outcomes back, many per statement, one statement at a time.

What finishes while a write is in flight forms the next batch: no timers, no delay when idle, large batches
when busy. With a batch delay (Node's knobs) outcomes of that kind wait so long after the first of them.

A write that fails because the database is away is kept and tried again until it is back. If the database
refuses what is written, the batch is written in halves, down to the outcome that is refused; see `_refused`.
Nothing is reported before it was committed. While too much is unwritten, no more jobs are taken.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from ..clock import Clock
from ..db.connection import Connection
from ..db.retry import Backoff, Delays, is_refusal, may_pass
from ..error_text import message_of
from ..errors import JobError, JobInterruptedError
from ..hooks import Events
from ..job import Job
from ..queries.recover_jobs import still_locked
from ..queries.write_outcomes import (
    ALL_WRITTEN,
    Continuation,
    Failure,
    Outcomes,
    Written,
    release_queue,
    return_jobs,
    write_outcomes,
)
from ..schema_name import SchemaName
from .execute import TAKEN_AWAY
from .outcome import Failed, Finished, Interrupted, failed
from .session import Session
from .telling import LOST_ROW, Teller
from .unwritten import LIGHT, MAX_BATCH, MAX_UNWRITTEN, MAX_UNWRITTEN_BYTES, batch_size, weight_of

PATIENCE = Delays(0.2, 5.0)
HURRIED_PAUSE = 0.25  # seconds between two tries while somebody waits for the end
MAX_GIVEN_UP = 10  # outcomes in a row; if nothing at all can be written, it is hardly about single outcomes
MAX_DEATHS = 3  # of the loop without a write in between, before the worker gives up

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


class Sink:
    """Takes finished jobs and sees to it that the database learns of them."""

    def __init__(
        self,
        session: Session,
        schema: SchemaName,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        complete_delay: float | None = None,
        fail_delay: float | None = None,
        interrupted_delay: float = 0.0,
        on_error: Callable[[BaseException], None],
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_error` hears of each write that failed, `on_written` of each that did not."""
        self._session = session
        self._schema = schema
        self._teller = Teller(events)
        self._clock = clock
        self._pool_id = pool_id
        self._delays = (complete_delay or 0.0, fail_delay or 0.0)
        self._interrupted_delay = interrupted_delay
        self._on_error = on_error
        self._on_written = on_written
        self._completed: list[Finished] = []
        self._failed: list[Finished] = []
        self._interrupted: list[Finished] = []
        self._in_flight: list[Finished] = []
        self._has_freed = False  # whether a named queue may be free now that did not go on with its next job
        self._weight = 0  # of what is unwritten, as far as it is counted; see `unwritten`
        self._is_full = False
        self._unsure: set[int] = set()  # jobs that may have been written although we got no answer
        self._given_up_in_a_row = 0
        self._deaths = 0
        self._wanted = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._is_awake = False  # whether the loop looks by itself for what is put here
        self._hurry = False
        self._closing = False
        self._go_on: Callable[[], Continuation | None] = lambda: None
        self._adopt: Callable[[Sequence[Job]], None] = lambda jobs: None
        self._freed: Callable[[], None] = lambda: None
        self._on_full: Callable[[], None] = lambda: None
        self._on_room: Callable[[], None] = lambda: None
        self._loop_task: asyncio.Task[None] | None = None
        self.count = 0
        """How many outcomes were put here so far."""
        self.trouble: BaseException | None = None
        """Why the last write failed, if it did."""

    def start(
        self,
        *,
        go_on: Callable[[], Continuation | None],
        adopt: Callable[[Sequence[Job]], None],
        freed: Callable[[], None],
        on_full: Callable[[], None] = lambda: None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to write.

        `go_on` says how freed queues may go on, `adopt` takes the jobs with which they do, and `freed` hears
        that there are queues which did not. `on_full` hears that too much is unwritten to take more jobs, and
        `on_room` that this is over.
        """
        self._go_on, self._adopt, self._freed = go_on, adopt, freed
        self._on_full, self._on_room = on_full, on_room
        self._start_loop()

    def _start_loop(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker sink")

    async def watch(self, on_fatal: Callable[[BaseException], None]) -> None:
        """See to it that writing goes on if the task that does it ends, whoever cancelled or broke it."""
        while self._loop_task is not None:
            task = self._loop_task
            await asyncio.wait((task,))
            if self._closing:
                return
            if task is not self._loop_task:  # somebody else has started it again
                continue
            error = None if task.cancelled() else task.exception()
            logger.error("writing outcomes was ended by %r; starting again", error or "a cancellation")
            self._deaths += 1
            if self._deaths > MAX_DEATHS:
                on_fatal(error or JobError("the task that writes outcomes is cancelled again and again"))
                return
            self._start_loop()
            self._wanted.set()

    async def revive(self) -> None:
        """Write on, if somebody has cancelled the task that does it."""
        task = self._loop_task
        if task is not None and (task.cancelling() or task.done()) and not self._closing:
            await asyncio.wait((task,))
            self._start_loop()
            self._wanted.set()

    def put(self, finished: Finished) -> None:
        """The outcome of one job; returns at once."""
        self.count += 1
        outcome = finished.outcome
        if outcome is None:
            self._completed.append(finished)
            if len(finished.job.raw_payload) > LIGHT or len(self._completed) > MAX_UNWRITTEN:
                self._weigh(finished)
        elif isinstance(outcome, Failed):
            self._failed.append(finished)
            self._weigh(finished)
        else:
            self._interrupted.append(finished)
        if not self._is_awake:
            self._is_awake = True
            self._written.clear()
            self._wanted.set()

    def _weigh(self, finished: Finished) -> None:
        self._weight += weight_of(finished)
        is_too_much = self._weight > MAX_UNWRITTEN_BYTES or len(self._completed) > MAX_UNWRITTEN
        if is_too_much and not self._is_full:
            self._is_full = True
            self._wanted.set()  # delays do not count now
            self._on_full()

    def _leave(self, batch: Sequence[Finished]) -> None:
        """These outcomes are dealt with."""
        if self._weight:
            self._weight -= sum(map(weight_of, batch))
        if not self._is_full:
            return
        if self._weight <= MAX_UNWRITTEN_BYTES // 2 and len(self._completed) <= MAX_UNWRITTEN // 2:
            self._is_full = False
            self._on_room()

    @property
    def is_written(self) -> bool:
        """Whether everything that was put here is committed."""
        return self._written.is_set()

    @property
    def frees_queues(self) -> bool:
        """Whether a named queue will be free with the next write; not where writes are delayed or fail."""
        if self.trouble is not None or any(self._delays):
            return False
        return any(map(_queues, (self._in_flight, self._completed, self._failed, self._interrupted)))

    async def flush(self) -> None:
        """Until everything that was put here is committed; delays do not count."""
        self._hurry = True
        self._wanted.set()
        await self._written.wait()
        self._hurry = False

    async def close(self) -> None:
        """Flush and end."""
        await self.flush()
        self._closing = True
        self._wanted.set()
        if self._loop_task is not None:
            await asyncio.wait((self._loop_task,))

    def abandon(self) -> int:
        """Give up what could not be written; how many outcomes are lost with it."""
        self._closing = True
        if self._loop_task is not None:
            self._loop_task.cancel()
        return len(self._completed) + len(self._failed) + len(self._interrupted)

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(PATIENCE)
        while True:
            if not self._wanted.is_set():
                await self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            if any(self._delays) and not self._hurry:
                await self._gather()
            self._is_awake = True
            while batch := self._next_batch():
                self._in_flight = batch
                try:
                    is_done = await self._write(batch)
                except Exception as error:
                    self._failed_to_write(error)
                    is_done = False
                finally:
                    self._in_flight = []
                self._tell_of_free_queues()
                if is_done:
                    backoff.reset()
                else:
                    await self._pause(backoff.next_delay())
            self._is_awake = False
            self._written.set()

    def _tell_of_free_queues(self) -> None:
        if self._has_freed:
            self._has_freed = False
            self._freed()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try; not for long once somebody flushes, for then the worker is stopping."""
        try_again_at = self._clock.monotonic() + seconds
        while True:
            left = try_again_at - self._clock.monotonic()
            if left <= 0:
                return
            if self._hurry:
                await self._clock.sleep(min(left, HURRIED_PAUSE))
                return
            timer = asyncio.ensure_future(self._clock.sleep(left))
            self._wanted.clear()
            wanted = asyncio.ensure_future(self._wanted.wait())
            try:
                await asyncio.wait((timer, wanted), return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                wanted.cancel()

    async def _gather(self) -> None:
        """Wait the configured delay, unless something is to be written at once or somebody flushes."""
        ends = [math.inf, math.inf]  # of the delays of completed and of failed jobs, once there are some
        while not self._hurry and not self._interrupted and not self._is_full:
            now = self._clock.monotonic()
            for kind, waiting in enumerate((self._completed, self._failed)):
                if waiting and ends[kind] == math.inf:
                    ends[kind] = now + self._delays[kind]
            left = min(ends) - now
            if left <= 0 or left == math.inf:
                return
            self._wanted.clear()
            self._is_awake = False
            timer = asyncio.ensure_future(self._clock.sleep(left))
            wanted = asyncio.ensure_future(self._wanted.wait())
            await asyncio.wait((timer, wanted), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            wanted.cancel()

    def _next_batch(self) -> list[Finished]:
        if self._interrupted:
            return self._next_interrupted()
        batch, self._completed = self._completed[:MAX_BATCH], self._completed[MAX_BATCH:]
        if self._failed:
            count = batch_size(self._failed, MAX_BATCH - len(batch))
            batch += self._failed[:count]
            self._failed = self._failed[count:]
        return batch

    def _next_interrupted(self) -> list[Finished]:
        """Those that go back with the same note."""
        note = _interruption(self._interrupted[0]).message
        batch: list[Finished] = []
        others: list[Finished] = []
        for finished in self._interrupted:
            is_like_first = len(batch) < MAX_BATCH and _interruption(finished).message == note
            (batch if is_like_first else others).append(finished)
        self._interrupted = others
        return batch

    def _put_back(self, batch: Sequence[Finished]) -> None:
        """In front of what came since; it was counted before."""
        by_kind: tuple[list[Finished], list[Finished], list[Finished]] = ([], [], [])
        for finished in batch:
            outcome = finished.outcome
            by_kind[0 if outcome is None else 1 if isinstance(outcome, Failed) else 2].append(finished)
        self._completed[:0], self._failed[:0], self._interrupted[:0] = by_kind

    def _failed_to_write(self, error: BaseException) -> None:
        self.trouble = error
        self._on_error(error)

    def _succeeded_to_write(self) -> None:
        self._given_up_in_a_row = self._deaths = 0
        self.trouble = None
        self._on_written()

    # -- one batch -----------------------------------------------------------------------------------------

    async def _write(self, batch: list[Finished]) -> bool:
        """Write it, in parts if it has to be; False if a part of it must wait.

        What is not dealt with when an error is raised is put back.
        """
        parts: list[list[Finished]] = [batch]
        kept: list[Finished] = []
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
                        kept += parts.pop()
                        continue
                parts.pop()
                self._leave(part)
        except BaseException:
            left = [finished for part in reversed(parts) for finished in part]
            self._unsure.update(finished.job.id for finished in left)
            self._put_back([*kept, *left])
            raise
        self._put_back(kept)
        return not kept

    async def _write_part(self, batch: list[Finished], *, is_last_try: bool = False) -> None:
        """One statement; _RefusedError if the database does not take what is in it."""
        if not self._session.gate.is_open:
            await self._session.gate.passed()
        if self._session.ledger.lost:
            batch = self._drop_lost(batch)
            if not batch:
                self._has_freed = True
                return
        if isinstance(batch[0].outcome, Interrupted):
            self._has_freed = True
            note = "" if is_last_try else _interruption(batch[0]).message
            await self._write_interrupted(batch, note=note)
            return
        outcomes = _outcomes(batch)
        go_on = self._go_on() if outcomes.queues else None
        written = ALL_WRITTEN

        async def write(connection: Connection) -> Sequence[Job]:
            nonlocal written
            written = await write_outcomes(connection, self._schema, self._pool_id, outcomes, go_on=go_on)
            return written.jobs

        with _refusals():
            jobs = await self._session.take(write)
        self._succeeded_to_write()
        self._session.ledger.strike([finished.job for finished in batch])
        if jobs:
            self._adopt(jobs)
        if len(jobs) < len(outcomes.queues):
            self._has_freed = True
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
        self._succeeded_to_write()
        self._session.ledger.strike(jobs)
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
            self._failed_to_write(error)
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
        job, ledger = finished.job, self._session.ledger
        self._given_up_in_a_row += 1
        ledger.give_up(job)
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
            self._has_freed = True

    def _drop_lost(self, batch: list[Finished]) -> list[Finished]:
        """The batch without jobs that were taken from this pool: their outcome is not ours to write."""
        ledger = self._session.ledger
        kept = []
        for finished in batch:
            if not ledger.is_lost(finished.job):
                kept.append(finished)
                continue
            ledger.forget(finished.job)
            self._teller.interrupted(finished, Interrupted(JobInterruptedError(TAKEN_AWAY)))
        return kept


def _failed_plainly(finished: Finished, why: str) -> Finished:
    """The same run as a failure whose text is ours; one that was interrupted goes back without a note."""
    if isinstance(finished.outcome, Interrupted):
        return finished
    error = JobError(why[0].upper() + why[1:])
    if finished.outcome is not None:
        error.__cause__ = finished.outcome.error
    return Finished(finished.job, failed(error), finished.worker_id, finished.duration)


def _queues(batch: Sequence[Finished]) -> list[int]:
    """The named queues that these jobs hold."""
    return [queue for finished in batch if (queue := finished.job.job_queue_id) is not None]


def _outcomes(batch: list[Finished]) -> Outcomes:
    outcomes = Outcomes(
        completed=[finished.job.id for finished in batch if finished.outcome is None],
        queues=_queues(batch),
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

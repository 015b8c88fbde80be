"""Sink: collects outcomes and writes them in batches, one statement at a time.

Outcomes that arrive while a write is in flight form the next batch: no timers, no delay when idle, large
batches when busy. A batch delay (Node's options) holds back outcomes of its kind, counted from the first.

If the database is unavailable, the batch is kept and retried until it is back. A batch that the database
refuses is taken apart by `outcome_writer`. Events are emitted after the commit only. While too much is
unwritten, the pool takes no more jobs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence

from ...database.connections.retry import Backoff, Delays
from ...database.statements.fetch import NO_CEILING
from ...database.statements.write_plan import Outcomes
from ...errors import JobError
from ...hooks.faults import is_our_end
from ...hooks.interceptors import Redactor
from ...metrics.minutes import StatisticsCounter
from ...values.outcome import Finished, queues_of
from ..context import FailureLog, JobTakers, PoolContext, sleep_unless
from ..held.batches import HeldBatches
from ..held.reconcile import HeldWrite
from ..session import Session
from .outcome_writer import OutcomeWriter, PendingWrite
from .recorder import HistoryRecorder
from .unwritten import ROW_GOES, Unwritten

RETRY_DELAYS = Delays(0.2, 5.0)
FLUSH_PAUSE = 0.25  # seconds between two attempts during a flush
LATE = 0.2  # seconds after which a write seems to wait, for a lock for instance: fetches do not wait for it
MAX_RESTARTS = 3  # of the writing task without a write in between, before the worker gives up

logger = logging.getLogger("graphile_worker.worker")


class Sink:
    """Takes the outcomes of finished jobs and writes them to the database."""

    def __init__(
        self,
        context: PoolContext,
        session: Session,
        takers: JobTakers,
        hold: Callable[[Sink], HeldBatches] | None,
        recorder: HistoryRecorder | None,
        statistics: StatisticsCounter | None,
        redactors: Sequence[Redactor],
    ) -> None:
        """`takers`: what takes jobs, and waits while too much is unwritten.

        `hold`: makes what takes the outcomes of held jobs, and passes on what it does not write; None if
        none are held. `recorder`: what to keep in the history; None if there is no history.
        """
        options = context.options
        self._writer = OutcomeWriter(
            context, session, takers, self, recorder=recorder, statistics=statistics, redactors=redactors
        )
        self._owner = context.owner
        self._clock = context.clock
        self._takers = takers
        node = options.node
        self._delays = (node.complete_job_batch_delay or 0.0, node.fail_job_batch_delay or 0.0)
        self._failures = FailureLog(
            context,
            "outcomes could not be written and are kept: %s",
            "outcomes are written again",
            level=logging.ERROR,
        )
        self._unwritten = Unwritten()
        self._in_flight: list[Finished] = []
        self._sent_at = 0.0
        self._is_full = False
        self._restarts = 0
        self._wakeup = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._is_awake = False  # whether the loop picks up new outcomes without a wake-up
        self._flushes = 0  # that wait for the end of writes
        self._is_closing = False
        self._loop_task: asyncio.Task[None] | None = None
        self._priority_cap = NO_CEILING  # the best priority of unwritten jobs of named queues
        self.accepted = 0
        """The number of outcomes put here so far."""
        self.last_error: BaseException | None = None
        """The error of the last write; None if it succeeded."""
        self.held_batches = None if hold is None else hold(self)
        self._held: Collection[int] = () if self.held_batches is None else self.held_batches.by_id
        self._unsettled: Collection[int] = () if self.held_batches is None else self.held_batches.unsettled

    @property
    def not_deleted(self) -> int:
        """The number of outcomes so far that need more than a delete."""
        return self._unwritten.not_deleted

    def held_write(self, finished: Sequence[Finished]) -> HeldWrite:
        """Which of these outcomes of held jobs the end of their batch writes."""
        return self._writer.held_write(finished)

    def is_of_history(self, error: BaseException) -> bool:
        """Whether the end of a batch failed only because of what it keeps; the sink can write it all."""
        return self._writer.is_of_history(error)

    def written_held(self, batch: Sequence[Finished], began: float, outcomes: Outcomes) -> None:
        """A commit has deleted or kept these held jobs or, as `outcomes` says, failed them.

        `began`: when their end began, or the search for it.
        """
        self._writer.written_held(batch, began, outcomes)
        if self.last_error is None:  # otherwise the next write of the sink tells whether the failure is over
            self._failures.succeeded()

    def discarded_held(self, finished: Finished) -> None:
        """Another worker has the job, because the transaction that held it was lost."""
        self._writer.discarded(finished)

    def start(self) -> None:
        """Start writing."""
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker sink")

    async def supervise(self) -> None:
        """Restart the writing task if it was cancelled or failed; the pool dies if that does not help."""
        while self._loop_task is not None:
            task = self._loop_task
            await asyncio.wait((task,))
            if self._is_closing:
                return
            if task is not self._loop_task:  # `restart` was faster
                continue
            error = None if task.cancelled() else task.exception()
            logger.error("the task that writes outcomes ended: %r; restarting it", error or "a cancellation")
            self._restarts += 1
            if self._restarts > MAX_RESTARTS:
                error = error or JobError("the task that writes outcomes is cancelled again and again")
                self._owner.die(error, "write")
                return
            self.start()
            self._wakeup.set()

    async def restart(self) -> None:
        """Restart the writing task if it was cancelled."""
        task = self._loop_task
        if task is not None and (task.cancelling() or task.done()) and not self._is_closing:
            await asyncio.wait((task,))
            self.start()
            self._wakeup.set()

    def put(self, finished: Finished) -> None:
        """Accept the outcome of one job; does not block."""
        self.accepted += 1
        if (
            (self._held or self._unsettled)
            and self.held_batches is not None
            and self.held_batches.take(finished)
        ):
            return
        self.accept(finished)

    def accept(self, finished: Finished) -> None:
        """Accept the outcome of a job that is locked; `put` counts it too."""
        if finished.job.job_queue_id is not None and finished.job.priority < self._priority_cap:
            self._cap_priority(finished.job.priority)
        if self._unwritten.put(finished) and not self._is_full and self._unwritten.is_too_much:
            self._is_full = True
            self._wakeup.set()  # cuts batch delays short
            self._takers.pause()
        if not self._is_awake:
            self._is_awake = True
            self._written.clear()
            self._wakeup.set()

    def _cap_priority(self, priority: int) -> None:
        """Let jobs of a worse priority wait: the next job of the queue may come with the write."""
        if self.last_error is None and not any(self._delays):
            self._priority_cap = priority
            self._takers.cap_priority(priority)

    def _part_done(self, part: Sequence[Finished]) -> None:
        self._takers.jobs_written(part)
        self._unwritten.written(part)
        if self._is_full and self._unwritten.has_room:
            self._is_full = False
            self._takers.resume()

    @property
    def is_written(self) -> bool:
        """Whether everything put here is committed."""
        return self._written.is_set() and (self.held_batches is None or self.held_batches.is_settled)

    def maybe_deleted(self) -> set[int]:
        """Ids of jobs that a write without an answer may have deleted."""
        maybe_written = self._writer.maybe_written
        in_flight = (each for each in self._in_flight if isinstance(each.outcome, ROW_GOES))
        deleting = (*in_flight, *self._unwritten.deleting())
        return {finished.job.id for finished in deleting if finished.job.id in maybe_written}

    @property
    def frees_queues(self) -> bool:
        """Whether the next write frees a named queue soon; False where writes are delayed, wait or fail."""
        if self.last_error is not None or any(self._delays):
            return False
        if self._in_flight and self._clock.monotonic() - self._sent_at > LATE:
            return False
        return bool(queues_of(self._in_flight)) or self._unwritten.frees_queues

    async def flush(self) -> None:
        """Wait until everything put here is committed; cuts batch delays short."""
        if self.held_batches is not None:
            await self.held_batches.flush()
        self._flushes += 1
        self._wakeup.set()
        try:
            await self._written.wait()
        finally:
            self._flushes -= 1

    async def close(self) -> None:
        """Flush, then end the writing task."""
        await self.flush()
        self._is_closing = True
        self._wakeup.set()
        if self._loop_task is not None:
            await asyncio.wait((self._loop_task,))

    def abandon(self) -> None:
        """Drop everything that is unwritten."""
        self._is_closing = True
        if self.held_batches is not None:
            self.held_batches.abandon()
        if self._loop_task is not None:
            self._loop_task.cancel()

    # -- the writing task ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        while True:
            if not self._wakeup.is_set():
                await self._wakeup.wait()
            self._wakeup.clear()
            if self._is_closing:
                return
            if any(self._delays) and not self._flushes:
                await self._wait_for_batch_delay()
            self._is_awake = True
            while batch := self._unwritten.next_write():
                try:
                    is_done = await self._write(batch)
                except BaseException as error:
                    if is_our_end(error):
                        raise
                    self.write_failed(error)
                    is_done = False
                self._announce_freed_queues(is_done)
                if is_done:
                    backoff.reset()
                else:
                    await self._pause(backoff.next_delay())
            self._is_awake = False
            self._written.set()

    def _announce_freed_queues(self, is_done: bool) -> None:
        writer = self._writer
        if writer.has_freed_queues:
            self._takers.queues_freed(self._priority_cap if writer.has_next_jobs and is_done else NO_CEILING)
            writer.has_freed_queues = writer.has_next_jobs = False
        if self._priority_cap < NO_CEILING:
            self._priority_cap = self._unwritten.best_queued if is_done else NO_CEILING
            self._takers.cap_priority(self._priority_cap)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; only briefly during a flush, because the worker is stopping then."""
        retry_at = self._clock.monotonic() + seconds
        while True:
            left = retry_at - self._clock.monotonic()
            if left <= 0:
                return
            if self._flushes:
                await self._clock.sleep(min(left, FLUSH_PAUSE))
                return
            self._wakeup.clear()
            await sleep_unless(self._wakeup, self._clock, left)

    async def _wait_for_batch_delay(self) -> None:
        """Wait for the configured delay, unless a job ended early, a full sink or a flush cuts it short."""
        ends = [math.inf, math.inf]  # of the delays for completed and for failed jobs, once there are any
        unwritten = self._unwritten
        while not (self._flushes or unwritten.is_urgent or self._is_full):
            now = self._clock.monotonic()
            for kind, waiting in enumerate((unwritten.has_completed, unwritten.has_failed)):
                if waiting and ends[kind] == math.inf:
                    ends[kind] = now + self._delays[kind]
            left = min(ends) - now
            if left <= 0 or left == math.inf:
                return
            self._wakeup.clear()
            self._is_awake = False
            await sleep_unless(self._wakeup, self._clock, left)

    async def _write(self, batch: list[Finished]) -> bool:
        """Write the batch and requeue what could not be written; False if part of it must wait."""
        self._in_flight, self._sent_at = batch, self._clock.monotonic()
        pending = PendingWrite(batch)
        try:
            await self._writer.write(pending, self._part_done)
        finally:
            self._in_flight = []
            if pending.parts or pending.kept:
                self._unwritten.requeue(pending.unwritten)
        return not pending.kept

    def write_failed(self, error: BaseException) -> None:
        """A statement has failed, and its outcomes are kept."""
        self.last_error = error
        self.held_write_failed(error)

    def held_write_failed(self, error: BaseException) -> None:
        """The end of a held batch has failed; the next write tells whether the failure is over."""
        self._failures.failed(error)
        self._owner.write_failed(error)

    def write_succeeded(self) -> None:
        """A statement has been committed."""
        self._restarts = 0
        self.last_error = None
        self._failures.succeeded()

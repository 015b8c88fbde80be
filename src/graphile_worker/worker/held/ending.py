"""BatchEnds: how jobs leave held batches, and what the end of a batch writes.

It deletes completed jobs, or moves them to the history if they are kept, writes failures that are retried,
and locks all others as an ordinary fetch would have done. Jobs that have not started are released: their rows
are unchanged. If the transaction is lost, `reconcile` finds out what has become of the batch. Another thread
may end it too, when the event loop is blocked, see `recovery.held_batches`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ...database.connections.connection import Connection
from ...database.connections.retry import is_refusal, may_pass
from ...database.statements.fetch import NO_CEILING
from ...database.statements.held_batches import (
    RowsKeptError,
    commit_batch,
    end_batch,
    end_series,
    roll_back_batch,
)
from ...database.statements.limits import count_no_more
from ...errors.text import message_of
from ...recovery.held_batches import OpenBatch
from ...values.job import Job
from ...values.outcome import Finished
from ..context import JobTakers, PoolContext
from ..session import Sessions
from .cursor import IdCursor
from .policy import HoldPolicy
from .reconcile import BatchReconciler, HeldOutcomes, HeldWrite
from .series import HeldSeries, SeriesPolicy
from .sessions import BatchSession, BatchSessions, HeldBatch

LATE, LATE_PERIODS = 0.05, 4  # seconds that a batch is held longer on a busy machine, and how often at most
NOTHING_MORE = HeldWrite()

logger = logging.getLogger("graphile_worker.worker")


class BatchLostError(Exception):
    """The connection that has the transaction of a batch is gone."""


class BatchEnds:
    """Ends the held batches of one pool."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        batch_sessions: BatchSessions,
        lanes: JobTakers,
        sink: HeldOutcomes,
        *,
        policy: HoldPolicy,
        series_policy: SeriesPolicy,
        cursor: IdCursor,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._batch_sessions = batch_sessions
        self._lanes = lanes
        self._sink = sink
        self._policy = policy
        self._series_policy = series_policy
        self._cursor = cursor
        self._loop = asyncio.get_running_loop()
        # Not while a fetch is in flight that may have locked the same jobs: on its session.
        self.lost = BatchReconciler(context, sessions.fetch, sink, lambda: lanes.queues_freed(NO_CEILING))
        self.by_id: dict[int, HeldBatch] = {}
        """The batch of each held job that has not ended."""

    # -- jobs that did not start ---------------------------------------------------------------------------

    def release(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Let go of held jobs that were not started; returns those that are not held.

        Their batches are ended: the rows are locked until then.
        """
        by_id, locked_jobs = self.by_id, self._sessions.locked_jobs
        if not by_id:
            return jobs
        others, batches = [], set()
        for job in jobs:
            batch = by_id.pop(job.id, None)
            if batch is None:
                others.append(job)
                continue
            if batch.ending is not None:
                batch.released.add(job.id)
            if locked_jobs.jobs.pop(job.id, None) is not None:
                locked_jobs.doubt()  # locked by an ordinary fetch, see `exclude_running`
            batch.ids.discard(job.id)
            batch.left -= 1
            if batch.series is not None:
                self.release_following(batch, batch.series.end(job))
            batches.add(batch)
        for batch in batches:
            self.end_soon(batch)
        return others

    def release_following(self, batch: HeldBatch, jobs: Sequence[Job]) -> None:
        """Release jobs that would have followed others."""
        for job in jobs:
            del self.by_id[job.id]
            batch.ids.discard(job.id)
        batch.left -= len(jobs)

    def _release_waiting(self, batch: HeldBatch) -> None:
        by_id = self.by_id
        following = [] if batch.series is None else batch.series.end_all()
        waiting = self._lanes.drop(lambda job: by_id.get(job.id) is batch)
        if (waiting or following) and not self._batch_sessions.is_closing:
            self._policy_of(batch).overrun(len(batch.jobs) - len(waiting) - len(following))
        self.release_following(batch, following)
        self.release(waiting)

    # -- the end -------------------------------------------------------------------------------------------

    def end_in_time(self, batch: HeldBatch) -> None:
        """End a batch when it was held for as long as it may be."""
        batch.timer = self._loop.call_later(self._policy.seconds, self._time_is_up, batch, LATE_PERIODS)

    def _time_is_up(self, batch: HeldBatch, more: int) -> None:
        """End a batch, or wait `more` times if this process got too little time to start its jobs."""
        if more and batch.ending is None and self._is_late(batch):
            batch.timer = self._loop.call_later(LATE, self._time_is_up, batch, more - 1)
        else:
            self.end_soon(batch)

    def _is_late(self, batch: HeldBatch) -> bool:
        """Whether jobs of a batch wait although slots are free."""
        if batch.series is not None or batch.limits is not None or self._batch_sessions.is_closing:
            return False  # jobs of a rate start soon after it has counted them
        if not self._lanes.has_free_slots(batch.tasks):
            return False
        by_id = self.by_id
        return sum(by_id.get(job.id) is batch for job in self._lanes.running) < batch.left

    def end_soon(self, batch: HeldBatch) -> None:
        """End a batch, if that has not begun."""
        if batch.is_locking:
            return
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        if batch.ending is None:
            if batch.left:
                self._release_waiting(batch)
            if batch.ending is None:
                batch.ending = self._loop.create_task(
                    self._end(batch), name="graphile-worker end of a held batch"
                )
                batch.ending.add_done_callback(lambda _: self._ending_over(batch))

    def _ending_over(self, batch: HeldBatch) -> None:
        """A task that was cancelled before its first step has ended nothing."""
        if batch in self._batch_sessions.batches and not self._batch_sessions.is_abandoned:
            batch.ending = None
            self.end_soon(batch)

    def _policy_of(self, batch: HeldBatch) -> HoldPolicy:
        return self._policy if batch.series is None else self._series_policy

    async def _end(self, batch: HeldBatch) -> None:
        """Write what is known of the batch, and commit."""
        completed, undeleted = batch.take_finished()
        by_id, session = self.by_id, batch.batch_session.session
        running = [job for job in batch.jobs if by_id.get(job.id) is batch] if batch.left else []
        policy, series = self._policy_of(batch), batch.series
        ended, began = [*completed, *undeleted], time.monotonic()
        if series is not None:
            self._series_policy.ran(len(completed), began - series.began_at)
        try:
            write = self._sorted(batch, undeleted)
            outlasting = [*running, *(each.job for each in write.others)]
            burden = len(outlasting) - write.with_errors  # those are soon as many as are kept
            policy.ending(len(batch.jobs), burden)
            async with session.lock:  # until it is known what was locked
                await self._write(batch, completed, outlasting, write)
                if outlasting:
                    self._locked(batch, outlasting)
                if series is not None:
                    self._sessions.locked_jobs.queues.difference_update(series.queues)
        except BaseException as error:
            self._batch_lost(batch, ended, running, error)
            if not isinstance(error, Exception):
                raise
        else:
            if len(batch.ids) < len(batch.jobs):
                self._cursor.released({job.id for job in batch.jobs} - batch.ids)
            else:
                policy.ended(len(batch.jobs), burden)
            self._forget(batch, running)
            for finished in [*write.others, *batch.finished]:
                self._sink.accept(finished)
            batch.finished = []
            if completed or write.finished:
                self._sink.written_held([*completed, *write.finished], began, write.outcomes)
        finally:
            self._over(batch)
            if series is not None:
                self._lanes.queues_freed(NO_CEILING)
            if len(batch.ids) < len(batch.jobs):  # a fetch since then saw the released rows locked
                self._lanes.jobs_freed()

    def _sorted(self, batch: HeldBatch, undeleted: Sequence[Finished]) -> HeldWrite:
        """Which of these outcomes its end writes; none of a series, whose queue waits for the sink."""
        if batch.series is not None or not undeleted:
            return HeldWrite(others=undeleted)
        return self._sink.held_write(undeleted)

    async def lock_all(self, batch: HeldBatch) -> Sequence[Job] | None:
        """End a batch before its jobs run: all are locked as by an ordinary fetch."""
        jobs = list(batch.jobs)
        locked_jobs = self._sessions.locked_jobs
        batch.is_locking = True
        try:
            async with batch.batch_session.session.lock:
                await self._write(batch, (), jobs)
                locked_jobs.add(jobs)
        except Exception as error:
            locked_jobs.doubt()  # it may have been committed, but nothing has started
            if not self._is_refused(batch, error) and not may_pass(error):
                raise
            return None
        finally:
            self._forget(batch, jobs)
            batch.abandon()
            self._batch_sessions.lost_if_gone(batch.batch_session)
            self._over(batch)
        return jobs

    def has_queues(self, series: HeldSeries) -> bool:
        """Whether no other worker can have freed the queues of a batch."""
        lease = self._sessions.lease
        return lease.is_open and lease.epoch == series.epoch

    async def _write(
        self,
        batch: HeldBatch,
        completed: Sequence[Finished],
        outlasting: Sequence[Job],
        write: HeldWrite = NOTHING_MORE,
    ) -> None:
        """Write the end in the transaction of the batch, whose session the caller has locked."""
        if not batch.is_open:  # a new connection would take a while, and not have the transaction
            raise BatchLostError("the connection was lost while its jobs ran")
        if batch.series is not None and not self.has_queues(batch.series):
            raise BatchLostError("the lease ended while its jobs ran")
        commit = partial(self._commit, batch, completed, outlasting, write)
        await batch.batch_session.session.run_exclusive(commit)

    async def _commit(
        self,
        batch: HeldBatch,
        completed: Sequence[Finished],
        outlasting: Sequence[Job],
        write: HeldWrite,
        connection: Connection,
    ) -> None:
        """Delete or keep completed jobs, write failures, lock what outlasts the batch, and commit."""
        batch.is_writing, batch.has_records = True, bool(write.kept)
        deleted = [*(each.job.id for each in completed), *write.outcomes.completed]
        schema, pool_id = self._context.schema, self._context.pool_id
        try:
            if batch.series is not None:
                queues = batch.series.without(outlasting)
                await end_series(connection, schema, pool_id, completed=deleted, queues=queues)
                deleted = []
            batch.retries = await end_batch(
                connection,
                schema,
                pool_id,
                completed=deleted,
                outlasting=[job.id for job in outlasting],
                failed=write.outcomes.failed,
                kept=write.kept,
                released=len(batch.jobs) - len(batch.ids),
                now=self._context.now(),
            )
            if batch.limits and not outlasting:
                await count_no_more(connection, schema, batch.limits)
        except Exception:
            with suppress(Exception):  # the connection may be gone
                await roll_back_batch(connection)
            raise
        batch.is_committing = True
        await commit_batch(connection)

    # -- after the end -------------------------------------------------------------------------------------

    def _locked(self, batch: HeldBatch, jobs: Sequence[Job]) -> None:
        """The commit has locked these jobs. Those that were released meanwhile must be returned."""
        locked_jobs = self._sessions.locked_jobs
        if batch.released:
            jobs = [job for job in jobs if job.id not in batch.released]
            locked_jobs.doubt()
        locked_jobs.add(jobs)

    def _over(self, batch: HeldBatch) -> None:
        """The batch has ended, or is lost: its session is free."""
        self._batch_sessions.over(batch)
        self._check_kept(batch)

    def _forget(self, batch: HeldBatch, running: Sequence[Job]) -> None:
        """The jobs that still run are locked in the ordinary way now."""
        for job in running:
            if self.by_id.get(job.id) is batch:
                del self.by_id[job.id]

    def _batch_lost(
        self, batch: HeldBatch, finished: Sequence[Finished], running: Sequence[Job], error: BaseException
    ) -> None:
        """Nothing of the batch was written, as far as is known: settle it on another session."""
        batch.abandon()
        self._forget(batch, running)
        ended = [*finished, *batch.finished]
        batch.finished = []
        over = {each.job.id for each in ended} | batch.released
        self.lost.add(
            ended,
            [job for job in running if job.id not in over],
            may_be_committed=batch.is_committing,
            retries=batch.retries,
            series=batch.series,
            limits=batch.limits or (),
        )
        self._batch_sessions.lost_if_gone(batch.batch_session)
        if isinstance(error, Exception) and not self._is_refused(batch, error):
            self._sink.held_write_failed(error)

    def _is_refused(self, batch: HeldBatch, error: Exception) -> bool:
        """Whether the database refuses what a batch writes; nothing is held from then on.

        What it keeps in the history does not count: the sink deals with a missing partition, a missing right
        or the one result that is refused. Batches only become rare.
        """
        is_kept = isinstance(error, RowsKeptError)
        is_of_history = batch.has_records and self._sink.is_of_history(error)
        if not is_kept and not is_of_history and (isinstance(error, BatchLostError) or not is_refusal(error)):
            return False
        may_be_one = batch.has_records and not is_kept
        if may_pass(error) or may_be_one:  # it was cancelled, or took too much memory
            self._policy.hold_less()
            return is_of_history
        if not self._policy.is_on:
            return True  # another batch was refused before, and that was said
        self._policy.is_on = False
        reason = "a trigger or a policy kept its rows" if is_kept else message_of(error)
        logger.warning("held batches are off: the database refused the commit of one (%s)", reason)
        return True

    # -- ended by another thread ---------------------------------------------------------------------------

    def open_batches(self) -> list[OpenBatch]:
        """All batches that have written nothing yet; may be called from any thread."""
        found = []
        for batch_session in self._batch_sessions.all:
            pid, batch = batch_session.session.server_pid, batch_session.batch
            if pid is None or not batch_session.is_busy or (batch is not None and batch.is_writing):
                continue
            ids = [] if batch is None else list(batch.ids)
            is_current = partial(_is_current, batch_session, batch)
            begin, end = partial(self._keep, batch, ids), partial(self._keeping_over, batch)
            found.append(OpenBatch(pid, ids, is_current, begin, end, self._context.now()))
        return found

    def _keep(self, batch: HeldBatch | None, ids: Sequence[int]) -> None:
        """Called by the thread that is about to lock these jobs, so that they are not returned meanwhile."""
        if batch is not None:
            batch.is_kept = batch.is_being_kept = True
            self._sessions.locked_jobs.kept.update(ids)

    def _keeping_over(self, batch: HeldBatch | None) -> None:
        """That thread, which calls this, locks nothing more."""
        if batch is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._kept, batch)

    def _kept(self, batch: HeldBatch) -> None:
        batch.is_being_kept = False
        if batch not in self._batch_sessions.batches:  # it ended first
            self._check_kept(batch)

    def _check_kept(self, batch: HeldBatch) -> None:
        """After the end: the thread may have locked all jobs, also those that were released since."""
        if batch.is_kept and not batch.is_being_kept:
            self._policy.hold_less()
            locked_jobs = self._sessions.locked_jobs
            locked_jobs.kept.difference_update(job.id for job in batch.jobs)
            locked_jobs.doubt()


def _is_current(batch_session: BatchSession, batch: HeldBatch | None) -> bool:
    """Whether the session has this batch, which has not written yet, or is fetching one if None."""
    return batch_session.batch is batch and (
        batch_session.is_fetching if batch is None else not batch.is_writing
    )

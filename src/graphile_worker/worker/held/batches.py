"""HeldBatches: runs short jobs inside the transactions that fetched them.

Most of what a job costs the server is the update that locks it, so that the lock outlasts the fetch. A job
that takes a millisecond does not need that. A *held batch* is a transaction that locks the rows of some jobs
with `for update` and stays open while they run. When all have ended, or after `hold` seconds, it is ended:
completed jobs are deleted, failures that are retried are written, and all others, most of which still run,
are locked as an ordinary fetch would have done. The sink writes what is left. Jobs that have not started are
released: their rows are unchanged. Jobs of named queues are held in batches of their own, see `series`.

A few sessions take turns: while one batch runs, another is fetched and a third is committed. If a connection
is lost, `reconcile` finds out what has become of its batch. See docs/design/0030-held-batches.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from ...database.connections.connection import Connection, Row
from ...database.connections.retry import is_refusal, may_pass
from ...database.connections.statement import FetchedJobs
from ...database.statements.fetch import NO_CEILING, Ranges
from ...database.statements.held_batches import (
    ID,
    LAST_ERROR,
    Place,
    RowsKeptError,
    begin_batch,
    commit_batch,
    end_batch,
    first_keyed,
    held_jobs,
    last_place,
    may_have_backlog,
    roll_back_batch,
)
from ...database.statements.held_series import TakenQueues, end_series, get_series, take_queues
from ...database.statements.write_plan import Failure
from ...errors.text import message_of
from ...recovery.held_batches import OpenBatch
from ...recovery.orphaned_jobs import RECOVERED
from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.outcome import Completed, Finished
from ..context import JobTakers, PoolContext
from ..session import Session, Sessions
from .cursor import IdCursor
from .policy import HoldPolicy, Workload
from .reconcile import BatchReconciler, HeldFailures, HeldOutcomes
from .series import Series, SeriesPolicy, SeriesSize
from .sessions import BatchSession, BatchSessions, HeldBatch, SpareConnections

Fetch = Callable[[Connection], Awaitable[tuple[Sequence[Row], bool]]]
"""Locks rows; also whether there may be more."""
MAYBE_ANY = Workload(0, 0.0, 0, 0, lambda seconds: 0)

logger = logging.getLogger("graphile_worker.worker")


class BatchLostError(Exception):
    """The connection that has the transaction of a batch is gone."""


class HeldBatches:
    """The held batches of one pool."""

    def __init__(
        self,
        context: PoolContext,
        sessions: Sessions,
        spare: SpareConnections,
        lanes: JobTakers,
        deciders: Sequence[object],
        sink: HeldOutcomes,
        *,
        flags: FlagRules = NO_RULES,
        has_series: bool = False,
    ) -> None:
        """`deciders`: interceptors that decide about the jobs of dead workers.

        While there are any, nothing is held: a held job would be free without them. `has_series`: whether
        jobs of named queues are held.
        """
        self._sessions = sessions
        self._schema = context.schema
        self._pool_id = context.pool_id
        self._now = context.now
        self._lanes = lanes
        self._deciders = deciders
        self._sink = sink
        self._policy = HoldPolicy(context.options.hold)
        self._series_policy = SeriesPolicy(context.options.hold)
        self._series_policy.is_on = self._policy.is_on and has_series
        self._workload = MAYBE_ANY  # of the last fetch
        # Not while a fetch is in flight that may have locked the same jobs: on its session.
        self._lost = BatchReconciler(context, sessions.fetch, sink, lambda: lanes.queues_freed(NO_CEILING))
        self._batch_sessions = BatchSessions(
            sessions, spare, context.schema, on_short=self._policy.hold_less, flags=flags
        )
        self.may_be_more = True
        """Whether the last batch may have left ready jobs."""
        self.passed_keyed: Place | None = None
        """Where the last batch ended, if jobs with a key come before that; an ordinary fetch locks them."""
        self.followed = 0
        """How many jobs of the last batch of series follow others."""
        self._tied = IdCursor(context.schema)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False
        self._is_abandoned = False
        self.by_id: dict[int, HeldBatch] = {}
        """The batch of each held job that has not ended."""
        self.unsettled = self._lost.jobs
        """The jobs of lost batches."""
        self.open = self._batch_sessions.batches
        """The batches that have not ended."""

    # -- whether to hold -----------------------------------------------------------------------------------

    def plan_fetch(self, workload: Workload) -> tuple[int, bool]:
        """How many jobs the next fetch asks for, and whether it may hold them; call it once for each.

        Starts to open sessions if there are none. The fetches before the first batch are short, so that it
        need not wait for them.
        """
        policy, sessions = self._policy, self._batch_sessions
        self._workload = workload
        if workload.continued:
            self._series_policy.tried()
        may_hold = (
            policy.is_worth_it(workload, is_warming=sessions.are_warming)
            and not (self._is_closing or self._deciders or self._lost.is_busy)
            and policy.is_due(time.monotonic(), self._sink.accepted, self._sink.not_deleted)
            and sessions.are_ready()
        )
        if may_hold or sessions.are_warming:
            return policy.most_of_next(workload, is_warming=sessions.are_warming), may_hold
        return workload.wanted, False

    async def prepare(self) -> None:
        """Open the sessions before the first jobs have run, if many may be waiting."""
        if not self._deciders and self._policy.is_allowed(time.monotonic()):
            with suppress(Exception):  # then they are opened a little later
                if await self._sessions.write.run(lambda session: may_have_backlog(session, self._schema)):
                    self._batch_sessions.open_all()

    def allow(self, after: float) -> None:
        """Hold jobs after this many seconds; nothing is held before it is called."""
        self._policy.allow_from(time.monotonic() + after)
        self._series_policy.allow_from(time.monotonic() + after)

    def may_follow(self, continued: int) -> bool:
        """Whether a fetch may find more jobs of a queue, of which writes have locked so many one by one."""
        policy = self._series_policy
        return (
            continued >= policy.continued
            and policy.is_allowed(time.monotonic())
            and not (self._deciders or self._batch_sessions.are_warming)
        )

    def hold_less(self) -> None:
        """The last batch was of little use, or would have been."""
        self._policy.hold_less()

    # -- fetching ------------------------------------------------------------------------------------------

    async def free_session(self, tasks: Mapping[int, str], is_idle: Callable[[], bool]) -> None:
        """Wait until a session is free.

        `is_idle`: whether slots for these tasks are free and nothing waits for them. They need not be until
        `hold` is over: a batch that has only slow jobs left is ended, or the next fetch holds nothing.
        """
        await self._batch_sessions.until_free(lambda: is_idle() and not self._end_slow(tasks))

    def _end_slow(self, tasks: Mapping[int, str]) -> bool:
        """End the batch of these tasks with the fewest jobs left, unless one ends; False if there is none."""
        batches = [
            batch
            for batch in self.open
            if batch.tasks is tasks and (batch.series is None or not batch.series.waiting)
        ]
        if batches and not any(batch.ending or batch.is_locking for batch in batches):
            self._end_soon(min(batches, key=attrgetter("left")))
        return bool(batches)

    async def fetch(
        self,
        *,
        tasks: Mapping[int, str],
        limit: int,
        flags: FlagRules,
        now: datetime | None,
        ranges: Ranges | None = None,
    ) -> Sequence[Job] | None:
        """Begin a batch of up to `limit` jobs, as `get_held_jobs` says; None if that is not possible now."""
        batch_session, epoch = await self._session()
        if batch_session is None:
            return None
        fetch = partial(self._tied.fetch, ranges=ranges, tasks=tasks, limit=limit, flags=flags, now=now)
        batch, rows, may_be_more = await self._begin_on(
            batch_session, partial(self._begin_with, fetch), tasks
        )
        if not rows:
            self.may_be_more, self.passed_keyed = False, None
            return ()
        jobs = self._begin(batch, rows, tasks)
        if not jobs or self._sessions.lease.epoch != epoch or self._is_closing:
            self._tied.forget()
            self.release(jobs)
            self._end_soon(batch)
            return None
        passed_keyed = None
        if (keyed := first_keyed(rows)) is not None:
            if len(rows) < limit:  # and more may come after the one with which it ended
                may_be_more = True
                self.hold_less()
            if keyed <= (last := last_place(rows)):
                passed_keyed = last
        held: Sequence[Job] | None = jobs
        if RECOVERED in map(itemgetter(LAST_ERROR), rows):
            # It may kill this process too, which counts only if it is locked.
            self.hold_less()
            held = await self._lock_all(batch)
        else:
            self._end_in_time(batch)
        self.may_be_more, self.passed_keyed = may_be_more, passed_keyed
        return held

    async def fetch_series(
        self, *, tasks: Mapping[int, str], limit: int, flags: FlagRules, now: datetime | None
    ) -> Sequence[Job] | None:
        """Begin a batch of up to `limit` jobs of named queues; None if that is not possible, or of no use.

        Returns the first job of each queue. The others follow, see `series`.
        """
        policy, lease = self._series_policy, self._sessions.lease
        size = policy.size(self._workload, limit)
        if size is None or not policy.is_due(time.monotonic(), 0, 0):
            return None
        batch_session, epoch = await self._session()
        if batch_session is None:
            return None
        taken: list[TakenQueues] = []
        terms = {"tasks": tasks, "flags": flags, "now": now}
        begin = partial(self._begin_series, size, terms, taken)
        batch, rows, self.may_be_more = await self._begin_on(batch_session, begin, tasks)
        if rows or not self.has_series:  # of which there may be no others
            policy.found(size, sum(len(each.ids) for each in taken) or 1, len(rows))
        if not rows:
            return None
        jobs = self._begin(batch, rows, tasks)
        series = batch.series = Series(taken[0].ids, taken[0].at, epoch, jobs)
        if len(jobs) < len(rows) or lease.epoch != epoch or self._is_closing:
            self.release(series.first)
            self._end_soon(batch)
            return None
        self._end_in_time(batch)
        series.began_at = time.monotonic()
        self.followed = series.waiting
        return series.first

    async def _begin_series(
        self, size: SeriesSize, terms: dict[str, Any], taken: list[TakenQueues], connection: Connection
    ) -> tuple[Sequence[Row], bool]:
        """Lock queues, and begin a transaction with their next jobs; `taken` gets the queues."""
        terms = {"schema": self._schema, "recovered": RECOVERED, **terms}
        queues = await take_queues(
            connection, pool_id=self._pool_id, limit=size.queues, busy=self._in_series, **terms
        )
        if queues is None:
            return (), False
        taken.append(queues)
        locked_jobs, longest = self._sessions.locked_jobs, size.of_each(len(queues.ids))
        if not locked_jobs.queues.isdisjoint(queues.ids):  # someone has unlocked a queue of another batch
            locked_jobs.doubt()
            return (), False
        locked_jobs.queues.update(queues.ids)

        async def fetch(connection: Connection) -> tuple[Sequence[Row], bool]:
            rows = await get_series(connection, taken=queues, limit=size.jobs, longest=longest, **terms)
            return rows, not queues.are_all

        rows: Sequence[Row] = ()
        try:
            rows, may_be_more = await self._begin_with(fetch, connection)
        finally:
            if not rows:  # let the next statement unlock them
                locked_jobs.queues.difference_update(queues.ids)
                locked_jobs.doubt()
        return rows, may_be_more

    async def _session(self) -> tuple[BatchSession | None, int]:
        """A session that is free, if there is one, and the epoch of the lease."""
        lease = self._sessions.lease
        if not lease.is_open:
            await lease.passed()
        if self._sessions.locked_jobs.in_doubt:
            await self._sessions.reclaim()
        self._loop = asyncio.get_running_loop()
        return None if self._is_closing else self._batch_sessions.free(), lease.epoch

    def _end_in_time(self, batch: HeldBatch) -> None:
        loop = asyncio.get_running_loop()
        batch.timer = loop.call_later(self._policy.seconds, self._end_soon, batch)

    async def _begin_on(
        self, batch_session: BatchSession, begin: Fetch, tasks: Mapping[int, str]
    ) -> tuple[HeldBatch, Sequence[Row], bool]:
        """Begin a transaction on this session. It has the batch then, if there are rows."""

        async def statement(connection: Connection) -> tuple[HeldBatch, Sequence[Row], bool]:
            rows, may_be_more = await begin(connection)
            return HeldBatch(batch_session, tasks, connection), rows, may_be_more

        self._batch_sessions.used()
        batch_session.is_fetching = True
        try:
            async with batch_session.session.lock:
                batch, rows, may_be_more = await batch_session.session.run_exclusive(statement)
            if rows:
                self._batch_sessions.begun(batch)  # before the session could be taken for a free one
        finally:
            batch_session.is_fetching = False
            self._batch_sessions.lost_if_gone(batch_session)
            self._batch_sessions.changed()
        return batch, rows, may_be_more

    async def _begin_with(self, fetch: Fetch, connection: Connection) -> tuple[Sequence[Row], bool]:
        """Begin a transaction and lock rows in it; it is over if there are none."""
        try:
            await begin_batch(connection, self._schema)
            rows, may_be_more = await fetch(connection)
        except Exception:
            with suppress(Exception):
                await roll_back_batch(connection)
            raise
        if not rows:
            await commit_batch(connection)
        return rows, may_be_more

    def _begin(self, batch: HeldBatch, rows: Sequence[Row], tasks: Mapping[int, str]) -> Sequence[Job]:
        """The jobs of the batch, without those that run here already."""
        ids = list(map(itemgetter(ID), rows))
        pool_id = self._pool_id
        batch.jobs = FetchedJobs(len(ids), lambda: held_jobs(rows, pool_id, tasks))
        # Between the end of a session on the server and the moment when this pool notices, its jobs are free.
        if own := self._own(ids):
            batch.jobs = [job for job in batch.jobs if job.id not in own]
            ids = [job.id for job in batch.jobs]
        batch.left = len(ids)
        batch.ids.update(ids)
        self.by_id.update(dict.fromkeys(ids, batch))
        return batch.jobs

    def _own(self, ids: Sequence[int]) -> set[int]:
        """Those of these jobs that run here, or have ended here and are not written."""
        own: set[int] = set()
        if self._lost.jobs:
            own.update(self._lost.jobs.keys() & ids)
        for batch in self.open:
            own.update(batch.ids.intersection(ids))
        return own

    async def _lock_all(self, batch: HeldBatch) -> Sequence[Job] | None:
        """End a batch before its jobs run: all are locked as by an ordinary fetch."""
        jobs = list(batch.jobs)
        session = batch.batch_session.session
        batch.is_locking = True
        try:
            async with session.lock:
                await self._end_on(session, batch, (), jobs)
                self._sessions.locked_jobs.add(jobs)
        except Exception as error:
            self._sessions.locked_jobs.doubt()  # it may have been committed, but nothing has started
            if not self._is_refused(error) and not may_pass(error):
                raise
            return None
        finally:
            self._forget(batch, jobs)
            batch.abandon()
            self._batch_sessions.lost_if_gone(batch.batch_session)
            self._over(batch)
        return jobs

    # -- outcomes ------------------------------------------------------------------------------------------

    def take(self, finished: Finished) -> bool:
        """Accept the outcome of a held job; False if the job is not held."""
        locked_jobs = self._sessions.locked_jobs
        if locked_jobs.lost and locked_jobs.is_lost(finished.job):
            return False
        batch = self.by_id.pop(finished.job.id, None)
        if batch is None:
            return self._lost.take(finished)
        batch.finished.append(finished)
        batch.left -= 1
        if batch.series is not None:
            self._follow(batch, batch.series, finished)
        if not batch.left:
            self._end_soon(batch)
        return True

    def _follow(self, batch: HeldBatch, series: Series, finished: Finished) -> None:
        """Start the next job of the queue, or release those that are left if the queue is not free for it."""
        if type(finished.outcome) is Completed and not self._is_closing and self._has_queues(series):
            if (job := series.next_after(finished.job)) is not None:
                self._lanes.follow(job)
        else:
            self._let_go(batch, series.end(finished.job))

    def _has_queues(self, series: Series) -> bool:
        """Whether no other worker can have freed the queues of a batch."""
        lease = self._sessions.lease
        return lease.is_open and lease.epoch == series.epoch

    def _let_go(self, batch: HeldBatch, jobs: Sequence[Job]) -> None:
        """Release jobs that would have followed others."""
        for job in jobs:
            del self.by_id[job.id]
            batch.ids.discard(job.id)
        batch.left -= len(jobs)

    @property
    def _in_series(self) -> int:
        """How many jobs of series are in open batches."""
        return sum(len(batch.jobs) for batch in self.open if batch.series is not None)

    @property
    def following(self) -> int:
        """How many jobs are held and not with a source yet: they follow others of their queues."""
        return sum(batch.series.waiting for batch in self.open if batch.series is not None)

    @property
    def has_series(self) -> bool:
        """Whether jobs of named queues are held, which a fetch cannot find."""
        return any(batch.series is not None for batch in self.open)

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
                self._let_go(batch, batch.series.end(job))
            batches.add(batch)
        for batch in batches:
            self._end_soon(batch)
        return others

    def exclude_running(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Jobs that an ordinary fetch has locked, without those that run here already.

        The batch of such a job was lost, and the job is ours again: its first run goes on.
        """
        if not self.open and not self._lost.jobs:
            return jobs
        own = self._own([job.id for job in jobs])
        return [job for job in jobs if job.id not in own] if own else jobs

    @property
    def count(self) -> int:
        """How many jobs are held; may be read from any thread."""
        return len(self.by_id) + len(self._lost.jobs)

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
            found.append(OpenBatch(pid, ids, is_current, begin, end, self._now()))
        return found

    def _keep(self, batch: HeldBatch | None, ids: Sequence[int]) -> None:
        """Called by the thread that is about to lock these jobs, so that they are not returned meanwhile."""
        if batch is not None:
            batch.is_kept = batch.is_being_kept = True
            self._sessions.locked_jobs.kept.update(ids)

    def _keeping_over(self, batch: HeldBatch | None) -> None:
        """That thread, which calls this, locks nothing more."""
        if batch is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._kept, batch)

    def _kept(self, batch: HeldBatch) -> None:
        batch.is_being_kept = False
        if batch not in self.open:  # it ended first
            self._check_kept(batch)

    # -- the end of a batch --------------------------------------------------------------------------------

    def _end_soon(self, batch: HeldBatch) -> None:
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
                batch.ending = asyncio.get_running_loop().create_task(
                    self._end(batch), name="graphile-worker end of a held batch"
                )
                batch.ending.add_done_callback(lambda _: self._ending_over(batch))

    def _ending_over(self, batch: HeldBatch) -> None:
        """A task that was cancelled before its first step has ended nothing."""
        if batch in self.open and not self._is_abandoned:
            batch.ending = None
            self._end_soon(batch)

    def _release_waiting(self, batch: HeldBatch) -> None:
        by_id = self.by_id
        following = [] if batch.series is None else batch.series.end_all()
        waiting = self._lanes.drop(lambda job: by_id.get(job.id) is batch)
        if (waiting or following) and not self._is_closing:
            self._policy_of(batch).overrun(len(batch.jobs) - len(waiting) - len(following))
        self._let_go(batch, following)
        self.release(waiting)

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
            failures = self._failures(batch, undeleted)
            others = failures.others
            outlasting = [*running, *(each.job for each in others)]
            burden = len(outlasting) - failures.kept  # those are soon as many as are kept
            policy.ending(len(batch.jobs), burden)
            async with session.lock:  # until it is known what was locked
                await self._end_on(session, batch, completed, outlasting, failures.outcomes.failed)
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
                self._tied.released({job.id for job in batch.jobs} - batch.ids)
            else:
                policy.ended(len(batch.jobs), burden)
            self._forget(batch, running)
            for finished in [*others, *batch.finished]:
                self._sink.accept(finished)
            batch.finished = []
            if completed or failures.finished:
                self._sink.written_held([*completed, *failures.finished], began, failures.outcomes)
        finally:
            self._over(batch)
            if series is not None:
                self._lanes.queues_freed(NO_CEILING)
            if len(batch.ids) < len(batch.jobs):  # a fetch since then saw the released rows locked
                self._lanes.jobs_freed()

    def _failures(self, batch: HeldBatch, undeleted: Sequence[Finished]) -> HeldFailures:
        """Which of these outcomes its end writes; none of a series, whose queue waits for the sink."""
        if batch.series is not None or not undeleted:
            return HeldFailures(others=undeleted)
        return self._sink.held_failures(undeleted)

    async def _end_on(
        self,
        session: Session,
        batch: HeldBatch,
        completed: Sequence[Finished],
        outlasting: Sequence[Job],
        failed: Sequence[Failure] = (),
    ) -> None:
        if not batch.is_open:  # a new connection would take a while, and not have the transaction
            raise BatchLostError("the connection was lost while its jobs ran")
        if batch.series is not None and not self._has_queues(batch.series):
            raise BatchLostError("the lease ended while its jobs ran")
        await session.run_exclusive(partial(self._commit, batch, completed, outlasting, failed))

    async def _commit(
        self,
        batch: HeldBatch,
        completed: Sequence[Finished],
        outlasting: Sequence[Job],
        failed: Sequence[Failure],
        connection: Connection,
    ) -> None:
        """Delete completed jobs, write failures, lock what outlasts the batch, and commit."""
        batch.is_writing = True
        deleted = [each.job.id for each in completed]
        try:
            if batch.series is not None:
                queues = batch.series.without(outlasting)
                await end_series(connection, self._schema, self._pool_id, completed=deleted, queues=queues)
                deleted = []
            await end_batch(
                connection,
                self._schema,
                self._pool_id,
                completed=deleted,
                outlasting=[job.id for job in outlasting],
                failed=failed,
                released=len(batch.jobs) - len(batch.ids),
                now=self._now(),
            )
        except Exception:
            with suppress(Exception):  # the connection may be gone
                await roll_back_batch(connection)
            raise
        batch.is_committing = True
        await commit_batch(connection)

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

    def _check_kept(self, batch: HeldBatch) -> None:
        """After the end: another thread may have locked all jobs, also those that were released since."""
        if batch.is_kept and not batch.is_being_kept:
            self.hold_less()
            locked_jobs = self._sessions.locked_jobs
            locked_jobs.kept.difference_update(job.id for job in batch.jobs)
            locked_jobs.doubt()

    def _batch_lost(
        self,
        batch: HeldBatch,
        finished: Sequence[Finished],
        running: Sequence[Job],
        error: BaseException,
    ) -> None:
        """Nothing of the batch was written, as far as is known: settle it on another session."""
        batch.abandon()
        self._forget(batch, running)
        ended = [*finished, *batch.finished]
        batch.finished = []
        over = {each.job.id for each in ended} | batch.released
        self._lost.add(
            ended,
            [job for job in running if job.id not in over],
            may_be_committed=batch.is_committing,
            series=batch.series,
        )
        self._batch_sessions.lost_if_gone(batch.batch_session)
        if isinstance(error, Exception) and not self._is_refused(error):
            self._sink.held_write_failed(error)

    def _is_refused(self, error: Exception) -> bool:
        """Whether the database refuses what a batch writes; nothing is held from then on."""
        is_kept = isinstance(error, RowsKeptError)
        if not is_kept and (isinstance(error, BatchLostError) or not is_refusal(error)):
            return False
        if may_pass(error):  # it was cancelled, or took too much memory
            self.hold_less()
            return False
        if not self._policy.is_on:
            return True  # another batch was refused before, and that was said
        self._policy.is_on = False
        reason = "a trigger or a policy kept its rows" if is_kept else message_of(error)
        logger.warning("held batches are off: the database refused the commit of one (%s)", reason)
        return True

    # -- stopping ------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether no batch is open and all lost ones are settled."""
        return not self._lost.is_busy and not self._batch_sessions.are_busy

    async def flush(self) -> None:
        """End all present batches, and settle those that were lost."""
        batches = list(self.open)
        for batch in batches:
            self._end_soon(batch)
        while not self.open.isdisjoint(batches):
            await self._batch_sessions.change()
        await self._lost.settled()

    async def end_batches(self) -> None:
        """Hold nothing from now on, and end all batches."""
        self._is_closing = True
        await self._batch_sessions.close()
        while not self.is_settled:
            await self.flush()
            if self._batch_sessions.are_busy:  # a fetch that was in flight
                await self._batch_sessions.change()

    def abandon(self) -> None:
        """Drop everything that is unwritten: the transactions end with their connections."""
        self._is_closing = self._is_abandoned = True
        self._lost.abandon()
        self._batch_sessions.abandon()
        for batch in self.open:
            if batch.timer is not None:
                batch.timer.cancel()
            if batch.ending is not None:
                batch.ending.cancel()


def _is_current(batch_session: BatchSession, batch: HeldBatch | None) -> bool:
    """Whether the session has this batch, which has not written yet, or is fetching one if None."""
    return batch_session.batch is batch and (
        batch_session.is_fetching if batch is None else not batch.is_writing
    )

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
from typing import Any, Protocol

from ...database.connections.connection import Connection, Row
from ...database.connections.statement import FetchedJobs
from ...database.statements.fetch import Ranges
from ...database.statements.held_batches import (
    ID,
    LAST_ERROR,
    Place,
    TakenQueues,
    are_queues_taken,
    begin_batch,
    commit_batch,
    first_keyed,
    get_series,
    held_jobs,
    last_place,
    may_have_backlog,
    roll_back_batch,
    take_queues,
    transaction_number,
)
from ...recovery.held_batches import OpenBatch
from ...recovery.orphaned_jobs import RECOVERED
from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.outcome import Completed, Finished
from ..context import JobTakers, PoolContext
from ..session import Sessions
from .cursor import IdCursor
from .ending import BatchEnds
from .policy import HoldPolicy, Workload
from .reconcile import HeldOutcomes
from .series import HeldSeries, SeriesPolicy, SeriesSize
from .sessions import BatchSession, BatchSessions, HeldBatch, SpareConnections

Fetch = Callable[[Connection], Awaitable[tuple[Sequence[Row], bool]]]
"""Locks rows; also whether there may be more."""
MAYBE_ANY = Workload(0, 0.0, 0, 0, lambda seconds: 0)

logger = logging.getLogger("graphile_worker.worker")


class LimitsOfBatches(Protocol):
    """The limits of a lane, as held batches see them."""

    async def admit(self, number: int, job_ids: Sequence[int]) -> Sequence[str] | None:
        """Let all jobs of a batch use the limits; None if there is no room for all.

        `number`: that of its transaction. Returns the names of the limits that count the jobs.
        """
        ...


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
        self._lanes = lanes
        self._deciders = deciders
        self._sink = sink
        self._policy = HoldPolicy(context.options.hold)
        self._series_policy = SeriesPolicy(context.options.hold)
        self._series_policy.is_on = self._policy.is_on and has_series
        self._workload = MAYBE_ANY  # of the last fetch
        self._cursor = IdCursor(context.schema)
        self._batch_sessions = BatchSessions(
            sessions, spare, context.schema, on_short=self._policy.hold_less, flags=flags
        )
        self._ends = BatchEnds(
            context,
            sessions,
            self._batch_sessions,
            lanes,
            sink,
            policy=self._policy,
            series_policy=self._series_policy,
            cursor=self._cursor,
        )
        self._lost = self._ends.lost
        self.may_be_more = True
        """Whether the last batch may have left ready jobs."""
        self.passed_keyed: Place | None = None
        """Where the last batch ended, if jobs with a key come before that; an ordinary fetch locks them."""
        self.followed = 0
        """How many jobs of the last batch of series follow others."""
        self.by_id = self._ends.by_id
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
            and not (self._batch_sessions.is_closing or self._deciders or self._lost.is_busy)
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
            self._ends.end_soon(min(batches, key=attrgetter("left")))
        return bool(batches)

    async def fetch(
        self,
        *,
        tasks: Mapping[int, str],
        limit: int,
        flags: FlagRules,
        now: datetime | None,
        ranges: Ranges | None = None,
        limits: LimitsOfBatches | None = None,
    ) -> Sequence[Job] | None:
        """Begin a batch of up to `limit` jobs, as `get_held_jobs` says; None if that is not possible now.

        `limits`: those of the tasks, which must have room for the whole batch.
        """
        batch_session, epoch = await self._session()
        if batch_session is None:
            return None
        fetch: Fetch
        fetch = partial(self._cursor.fetch, ranges=ranges, tasks=tasks, limit=limit, flags=flags, now=now)
        numbers: list[int] = []
        if limits is not None:
            fetch = partial(self._fetch_numbered, fetch, numbers)
        batch, rows, may_be_more = await self._begin_on(
            batch_session, partial(self._begin_with, fetch), tasks
        )
        if not rows:
            self.may_be_more, self.passed_keyed = False, None
            return ()
        jobs = self._begin(batch, rows, tasks)
        may_start = bool(jobs)
        if may_start and limits is not None and not await self._admit(batch, rows, limits, numbers[0]):
            self.hold_less()
            may_start = False
        if not may_start or self._sessions.lease.epoch != epoch or self._batch_sessions.is_closing:
            self._refuse(batch, jobs)
            if limits is not None and batch.ending is not None:
                await asyncio.wait((batch.ending,))  # the next fetch finds these jobs
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
            held = await self._ends.lock_all(batch)
        else:
            self._ends.end_in_time(batch)
        self.may_be_more, self.passed_keyed = may_be_more, passed_keyed
        return held

    async def _fetch_numbered(
        self, fetch: Fetch, numbers: list[int], connection: Connection
    ) -> tuple[Sequence[Row], bool]:
        """Lock rows; `numbers` gets the number of the transaction, if there are any."""
        rows, may_be_more = await fetch(connection)
        if rows:
            numbers.append(await transaction_number(connection, self._schema))
        return rows, may_be_more

    async def _admit(
        self, batch: HeldBatch, rows: Sequence[Row], limits: LimitsOfBatches, number: int
    ) -> bool:
        """Whether the jobs of a batch may run; not if they pass one with a key: nothing would lock that."""
        keyed = first_keyed(rows)
        if keyed is not None and keyed <= last_place(rows):
            return False
        batch.is_locking = True  # nothing else ends it meanwhile
        try:
            names = await limits.admit(number, list(batch.ids))
        except BaseException:
            batch.is_locking = False
            self._refuse(batch, batch.jobs)
            raise
        batch.is_locking = False
        batch.limits = names or ()
        return names is not None

    def _refuse(self, batch: HeldBatch, jobs: Sequence[Job]) -> None:
        """End a batch of which no job may start."""
        self._cursor.forget()
        self._ends.release(jobs)
        self._ends.end_soon(batch)

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
        series = batch.series = HeldSeries(taken[0].ids, taken[0].at, epoch, jobs)
        if len(jobs) < len(rows) or lease.epoch != epoch or self._batch_sessions.is_closing:
            self._ends.release(series.first)
            self._ends.end_soon(batch)
            return None
        self._ends.end_in_time(batch)
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
            if rows and not await are_queues_taken(
                connection, self._schema, pool_id=self._pool_id, taken=queues
            ):
                rows = ()  # a queue was paused after it was taken, and another worker may have it by now
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
        return self._batch_sessions.free(), lease.epoch

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
            self._ends.end_soon(batch)
        return True

    def _follow(self, batch: HeldBatch, series: HeldSeries, finished: Finished) -> None:
        """Start the next job of the queue, or release those that are left if the queue is not free for it."""
        is_closing, ends = self._batch_sessions.is_closing, self._ends
        if type(finished.outcome) is Completed and not is_closing and ends.has_queues(series):
            if (job := series.next_after(finished.job)) is not None:
                self._lanes.follow(job)
        else:
            ends.release_following(batch, series.end(finished.job))

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
        """Let go of held jobs that were not started; returns those that are not held."""
        return self._ends.release(jobs)

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
        return self._ends.open_batches()

    # -- stopping ------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether no batch is open and all lost ones are settled."""
        return not self._lost.is_busy and not self._batch_sessions.are_busy

    async def flush(self) -> None:
        """End all present batches, and settle those that were lost."""
        batches = list(self.open)
        for batch in batches:
            self._ends.end_soon(batch)
        while not self.open.isdisjoint(batches):
            await self._batch_sessions.change()
        await self._lost.settled()

    async def end_batches(self) -> None:
        """Hold nothing from now on, and end all batches."""
        await self._batch_sessions.close()
        while not self.is_settled:
            await self.flush()
            if self._batch_sessions.are_busy:  # a fetch that was in flight
                await self._batch_sessions.change()

    def abandon(self) -> None:
        """Drop everything that is unwritten: the transactions end with their connections."""
        self._lost.abandon()
        self._batch_sessions.abandon()
        for batch in self.open:
            if batch.timer is not None:
                batch.timer.cancel()
            if batch.ending is not None:
                batch.ending.cancel()

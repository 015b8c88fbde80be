"""Session: a connection that the pool keeps for fetching and writing, and reopens when it is lost.

Fetching and writing never wait for a connection that a task has borrowed, and use settings made for their
statements. Only one statement is in flight at a time. If a connection breaks before the answer arrives, jobs
may be locked that this pool does not know of; they are returned before the next statement (see
`LockedJobs`). A statement that times out is abandoned together with its connection: a network may drop
packets silently.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from ..database.connections import sqlstates
from ..database.connections.bound import give_back, is_gone, throw_away
from ..database.connections.connection import Connection, Pool
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import sqlstate_of
from ..database.connections.retry import BROKEN_CONNECTION, UNREACHABLE, delays_for
from ..database.sql import load
from ..errors import WorkerStoppedError
from ..recovery.lease import Lease
from ..recovery.orphaned_jobs import end_lost_sessions, reclaim_jobs
from ..values.job import Job
from .context import PoolContext

SESSIONS_WITH_LISTENER = 3
ANSWER_WITHIN = 30.0  # seconds for the answer to a statement; doubled after each timeout
LONGEST_WAIT = 600.0
CLOSE_WITHIN = 2.0  # seconds to reset a connection before it is thrown away
END_WITHIN = 5.0  # seconds for the server to end an abandoned session
END_PAUSE = 0.05
CLEAN_UP_WITHIN = 2.0  # seconds for what cancelled work does at its end, before it is cancelled again
MOST_REPLACED = 1_000  # jobs; far more than can run at once

T = TypeVar("T")
Statement = Callable[[Connection], Awaitable[T]]


class SessionClosedError(Exception):
    """The worker has ended, and nothing would release a new connection."""


class Sessions:
    """The sessions of one pool, with the locked jobs and the lease that they share."""

    def __init__(self, context: PoolContext, pool: Pool, lease: Lease, *, reserved: int = 0) -> None:
        """`reserved`: connections of `pool` that are in use elsewhere."""
        self.pool = pool
        self.schema = context.schema
        self.pool_id = context.pool_id
        self.is_tuned = context.options.prepared_statements
        """Whether a connection keeps its settings: behind a pooler, others would use the session too."""
        self._all: list[Session] = []
        self._abandoned: set[int] = set()  # backend pids of sessions that may still be open on the server
        self.locked_jobs = LockedJobs()
        self.lease = lease
        self.answered_at = time.monotonic()
        """When the database last answered a statement."""
        self._is_closed = False
        self.fetch = self.open()
        # A small pool keeps one connection for tasks, so fetches and writes share a session.
        is_small = pool.get_max_size() < SESSIONS_WITH_LISTENER + 1 + reserved
        self.write = self.fetch if is_small else self.open()
        self._usual = self.fetch

    def open(self, *, hold: bool = False) -> Session:
        """Add a session, which connects on first use; `hold`: for held batches."""
        self._all.append(Session(self, holds_for=self.pool_id if hold else None))
        return self._all[-1]

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement, without retries, on a connection that tasks cannot occupy."""
        if self._is_closed:
            raise WorkerStoppedError("the worker has ended")
        return await self._usual.run(statement)

    def started(self) -> None:
        """Other statements must not delay a fetch from now on. Until then they share its connection."""
        self._usual = self.write

    async def reclaim(self) -> None:
        """Return jobs that this pool may have locked without knowing it."""
        if not self.locked_jobs.in_doubt:
            return
        async with AsyncExitStack() as stack:
            for session in self._all:  # no statement may be in flight while we compare
                await stack.enter_async_context(session.lock)
            if self.locked_jobs.in_doubt:
                await self._all[0].run_exclusive(self._reclaim)

    async def _reclaim(self, connection: Connection) -> None:
        await self._end_abandoned(connection)
        locked_jobs = self.locked_jobs
        doubts = locked_jobs.doubts
        known = [*locked_jobs.jobs, *locked_jobs.given_up, *locked_jobs.unsettled, *locked_jobs.kept]
        await reclaim_jobs(connection, self.schema, self.pool_id, known, locked_jobs.queues)
        locked_jobs.reclaimed(doubts)

    async def _end_abandoned(self, connection: Connection) -> None:
        """Make sure that no statement sent on an abandoned connection can still commit."""
        pids = set(self._abandoned)
        async with asyncio.timeout(END_WITHIN):
            left = pids
            while left:
                try:
                    left = set(await end_lost_sessions(connection, self.schema, sorted(left)))
                except Exception as error:
                    if sqlstate_of(error) != sqlstates.INSUFFICIENT_PRIVILEGE:
                        raise
                    break
                if left:
                    await asyncio.sleep(END_PAUSE)
        self._abandoned -= pids

    def abandon(self, connection: Connection) -> None:
        """Remember a connection that we dropped and the server may still consider open."""
        self._abandoned.add(connection.get_server_pid())

    async def return_all(self) -> None:
        """Return every job that this pool still has locked, known or not; no task may be running."""
        if self.locked_jobs.jobs or self.locked_jobs.queues:
            self.locked_jobs.jobs.clear()
            self.locked_jobs.queues.clear()
            self.locked_jobs.doubt()
        await self.reclaim()

    def refuse(self) -> None:
        """Run no more statements for others; `reopen` takes it back."""
        self._is_closed = True

    def reopen(self) -> None:
        """Run statements again: the shutdown that refused them was cancelled."""
        self._is_closed = False

    async def close(self) -> None:
        """Release all connections to the database pool."""
        await asyncio.gather(*(session.close(is_last=True) for session in self._all), return_exceptions=True)


class Session:
    """Runs statements one at a time on a connection that it keeps until it is closed."""

    def __init__(self, group: Sessions, *, holds_for: str | None) -> None:
        """`holds_for`: the id of the pool whose held batches it has; None if it has none."""
        self._holds_for = holds_for
        self._group = group
        self._pool = group.pool
        self._is_tuned = group.is_tuned
        self.locked_jobs = group.locked_jobs
        self.lease = group.lease
        self._connection: Connection | None = None
        self._patience = ANSWER_WITHIN
        self._deadline = Deadline()
        self._is_over = False
        self.round_trip = 0.0
        """Seconds that the fastest statement took on this connection: hardly more than the distance."""
        self.lock = asyncio.Lock()

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection that can be used, as far as is known."""
        return self._connection is not None and not is_gone(self._connection)

    @property
    def server_pid(self) -> int | None:
        """The backend's; may be read from any thread."""
        connection = self._connection
        return None if connection is None or is_gone(connection) else connection.get_server_pid()

    async def connect(self) -> None:
        """Connect before the first statement."""
        async with self.lock:
            if self._connection is None:
                async with asyncio.timeout(self._patience):
                    await self._open()

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement without retries. After a lost connection the next call opens a new one."""
        await self._group.reclaim()
        async with self.lock:
            return await self.run_exclusive(statement)

    async def run_under_lease(self, statement: Statement[Sequence[Job]]) -> Sequence[Job]:
        """Run one statement that locks jobs or writes outcomes; add the jobs it returns to the locked ones.

        Waits while the pool has no lease. If the lease ended before the answer arrived, other workers may
        have recovered the jobs, and those that are still ours are returned to the queue.
        """
        lease, locked_jobs = self.lease, self.locked_jobs
        while True:
            # There is nearly always nothing to wait for, and each call delays an announced job.
            if not lease.is_open:
                await lease.passed()
            if locked_jobs.in_doubt:
                await self._group.reclaim()
            async with self.lock:
                if not lease.is_open:
                    continue
                epoch = lease.epoch
                jobs = await self.run_exclusive(statement)
                if lease.epoch != epoch:
                    locked_jobs.doubt()
                    return []
                locked_jobs.add(jobs)
                return jobs

    async def run_exclusive(self, statement: Statement[T]) -> T:
        """Run one statement; the caller holds `lock`."""
        connection = self._connection
        if connection is None or is_gone(connection):
            async with asyncio.timeout(self._patience):
                connection = await self._open()
        began = time.monotonic()
        try:
            self._deadline.begin(self._patience)
            try:
                result = await statement(connection)
            finally:
                self._deadline.end()
            self._patience = ANSWER_WITHIN
            self._group.answered_at = ended = time.monotonic()
            if ended - began < self.round_trip:
                self.round_trip = ended - began
            return result
        except BaseException as error:
            was_missed = self._deadline.was_missed(error)
            if was_missed:  # the server may just be slow
                self._patience = min(self._patience * 2, LONGEST_WAIT)
            # A cancelled statement leaves an unread answer on the connection.
            if is_gone(connection) or isinstance(error, asyncio.CancelledError) or _is_lost(error):
                self.locked_jobs.doubt()
                await self._drop(may_be_open=not is_gone(connection))
            if was_missed:
                raise TimeoutError from error
            raise

    async def close(self, *, is_last: bool = False) -> None:
        """Reset the connection and release it to the database pool.

        `is_last`: the worker ends, so that a connection for held batches is not worth a reset, and none is
        opened for them later. The others may be needed again, see `WorkerPool.end_after_cancellation`.
        """
        if is_last and self._holds_for is not None:
            self._is_over = True  # before waiting: what comes next for the lock may be a warm-up
        async with self.lock:
            self._deadline.stop()
            connection, self._connection = self._connection, None
            if connection is None:
                return
            if is_last and self._holds_for is not None:
                await throw_away(self._pool, connection)
                return
            if self._is_tuned and not is_gone(connection):
                try:
                    await connection.reset(timeout=CLOSE_WITHIN)
                except BaseException as error:
                    await throw_away(self._pool, connection)
                    if not isinstance(error, Exception):  # cancelled, with every other task of the loop
                        raise
                    return
            await give_back(self._pool, connection)

    async def _open(self) -> Connection:
        if self._connection is not None and is_gone(self._connection):
            await self._drop()
        if self._is_over:
            raise SessionClosedError("the session was closed")
        if self._connection is None:
            connection: Connection = await self._pool.acquire()
            teach_arrays(connection)  # the caller's own pool has not done that
            try:
                if self._is_tuned:
                    began = time.monotonic()
                    await connection.execute(load("session/tune_session", self._group.schema))
                    self.round_trip = time.monotonic() - began
                if self._holds_for is not None:
                    names = self._group.schema.name, self._holds_for
                    await connection.fetch(load("session/tune_hold_session"), *names)
            except BaseException:
                await throw_away(self._pool, connection)
                raise
            self._connection = connection
        return self._connection

    async def _drop(self, *, may_be_open: bool = False) -> None:
        """Close the connection; `may_be_open`: the server may go on with its statement."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if may_be_open and self._is_tuned:  # behind a pooler the backend is unknown
                self._group.abandon(connection)
            await throw_away(self._pool, connection)


def _is_lost(error: BaseException) -> bool:
    """Whether a new connection may work, perhaps to another server after a failover."""
    return delays_for(error) in (BROKEN_CONNECTION, UNREACHABLE)


class LockedJobs:
    """Which jobs a pool knows it has locked, and whether it may have locked others.

    If a connection breaks during a statement, the statement may still have been committed. It then has locked
    jobs that this pool does not know of, and that stay locked while the pool is alive. This tells them from
    the jobs that were locked knowingly, so that they can be returned. It also records lost jobs, which were
    recovered by another worker while they ran here: this pool must not write their outcomes.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._added: list[Sequence[Job]] = []  # not in `_jobs` yet: unpacking a batch can wait
        self._replaced: deque[Job] = deque(maxlen=MOST_REPLACED)
        self.given_up: set[int] = set()
        """Ids of jobs that have ended and stay locked, because the database refuses every outcome.

        They are left to recovery. To return them would be refused as well, and block all other jobs.
        """
        self.unsettled: Mapping[int, Job] = {}
        """Jobs of held batches whose transaction was lost: they may be locked by this pool."""
        self.queues: set[int] = set()
        """Ids of the queues that are locked for held batches: none of their jobs need be locked."""
        self.kept: set[int] = set()
        """Ids of jobs of held batches that another thread locks, until it and their batches have ended."""
        self.doubts = 0
        """How often a statement may have locked jobs without this pool knowing it."""
        self._reclaimed = 0  # of those
        self.lost: dict[int, Job] = {}
        """Jobs that were recovered by another worker and are not dropped everywhere yet.

        By identity: the pool may lock the same job again while its first run continues in a thread.
        """

    @property
    def jobs(self) -> dict[int, Job]:
        """The jobs by id."""
        if self._added:
            added, self._added = self._added, []
            known = self._jobs
            for jobs in added:
                for job in jobs:
                    if job.id in known:
                        self._replaced.append(known[job.id])
                    known[job.id] = job
            if self.given_up:
                self.given_up.difference_update(self._jobs)
        return self._jobs

    def take_replaced(self) -> list[Job]:
        """Jobs whose id was locked again since the last call: their lock has ended unnoticed.

        The schema may have been dropped and installed again, so that another job has the id.
        """
        replaced = list(self._replaced)
        self._replaced.clear()
        return replaced

    @property
    def in_doubt(self) -> bool:
        """Whether jobs may be locked that this pool does not know of."""
        return self.doubts > self._reclaimed

    def doubt(self) -> None:
        """Jobs may be locked that are not among these; a reclaim that has begun does not settle it."""
        self.doubts += 1

    def reclaimed(self, doubts: int) -> None:
        """All unknown jobs were returned, as of when there were this many doubts."""
        self._reclaimed = doubts

    @property
    def count(self) -> int:
        """How many jobs are locked; may be read from any thread."""
        return len(self._jobs) + sum(map(len, self._added))

    def add(self, jobs: Sequence[Job]) -> None:
        """Record jobs that were locked."""
        self._added.append(jobs)

    def remove(self, jobs: Iterable[Job]) -> None:
        """Forget jobs whose outcome was written or that were returned."""
        jobs_by_id = self.jobs
        for job in jobs:
            if jobs_by_id.get(job.id) is job:
                del jobs_by_id[job.id]

    def give_up(self, job: Job) -> None:
        """Leave a job locked: it has ended, but its outcome cannot be written."""
        self.remove((job,))
        self.given_up.add(job.id)

    def lose(self, jobs: Iterable[Job]) -> None:
        """Record jobs that were recovered by another worker."""
        for job in jobs:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]
            self.lost[id(job)] = job

    def is_lost(self, job: Job) -> bool:
        """Whether this run of the job belongs to another worker now."""
        return id(job) in self.lost

    def forget(self, job: Job) -> None:
        """Forget a lost job whose run has ended here."""
        self.lost.pop(id(job), None)


class Deadline:
    """Call `begin` before each piece of work, and `end` after it in any case.

    Works like `asyncio.timeout`, but with one timer for all statements instead of one for each. Nearly
    all of them take a thousandth of their time, and everything done before a fetch delays an announced
    job. And it cancels again until the work ends: a cancelled transaction sends a rollback, and waits for
    that answer.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._at = math.inf
        self._cancels = 0
        self._is_missed = False
        self._timer: asyncio.TimerHandle | None = None  # may be set for an earlier time than needed

    def begin(self, seconds: float) -> None:
        """Cancel the current task unless `end` is called in time."""
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._at = self._loop.time() + seconds
        self._cancels = 0
        self._is_missed = False
        if self._timer is None:
            self._timer = self._loop.call_at(self._at, self._check)
        elif self._timer.when() > self._at:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._at, self._check)

    def end(self) -> None:
        """Stop the clock."""
        task, self._task = self._task, None
        if self._cancels and task is not None:
            for _ in range(self._cancels):
                task.uncancel()
            self._is_missed = task.cancelling() <= self._cancelling

    def was_missed(self, error: BaseException) -> bool:
        """After `end`: whether the work was cancelled by the deadline and by nothing else."""
        return self._is_missed and isinstance(error, asyncio.CancelledError)

    def stop(self) -> None:
        """Cancel the timer, at the end of the session."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._check)
            return
        self._cancels += 1
        self._task.cancel()
        self._at = self._loop.time() + CLEAN_UP_WITHIN
        self._timer = self._loop.call_at(self._at, self._check)

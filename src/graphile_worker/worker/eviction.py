"""EvictionCheck: after the lease lapsed, finds out which jobs the pool still has.

Other workers may have declared the pool dead and recovered its jobs. Such jobs are dropped here: those that
were prefetched are forgotten, those that run are cancelled, and their outcomes are not written. A job whose
row is gone, and whose write got no answer, counts as written: this pool has most likely deleted it itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Protocol

from ..database.connections.retry import Delays, with_retries
from ..hooks.events import PoolEvicted
from ..recovery.orphaned_jobs import gone_jobs, still_ours
from ..values.job import Job
from .context import PoolContext
from .session.locked_jobs import LockedJobs
from .session.session import Sessions, Statement

RETRY_DELAYS = Delays(0.1, 1.0)


class EvictedLanes(Protocol):
    """The lanes of the pool."""

    @property
    def running(self) -> Collection[Job]: ...

    def pulse(self) -> None: ...

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]: ...

    def cancel_lost(self, is_lost: Callable[[Job], bool]) -> None: ...


class DoubtfulWrites(Protocol):
    """The sink of the pool."""

    def maybe_deleted(self) -> Collection[int]:
        """Ids of jobs that a write without an answer may have deleted."""
        ...


class EvictionCheck:
    """Runs after each lapse of the lease and lets it open again."""

    def __init__(
        self, context: PoolContext, sessions: Sessions, lanes: EvictedLanes, sink: DoubtfulWrites
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._sink = sink

    async def run(self) -> None:
        """Drop the jobs that this pool has lost, then settle the lease."""
        lease, locked_jobs = self._sessions.lease, self._sessions.locked_jobs
        epoch = lease.epoch
        jobs = list(locked_jobs.jobs.values())
        schema, pool_id = self._context.schema, self._context.pool_id
        ours = await self._read(lambda connection: still_ours(connection, schema, pool_id, jobs))
        if maybe_deleted := list(self._sink.maybe_deleted()):  # no more is sent until the lease is settled
            ours |= await self._read(lambda connection: gone_jobs(connection, schema, maybe_deleted))
        lost = lost_jobs(locked_jobs, jobs, ours)
        running = set(map(id, self._lanes.running))
        lost += [job for job in locked_jobs.take_replaced() if id(job) in running]
        if lost:
            self.evict(lost)
        locked_jobs.doubt()  # a fetch that was given up may have been committed late
        lease.settle(epoch)
        self._lanes.pulse()
        with suppress(Exception):  # the next statement retries it
            await self._sessions.reclaim()

    async def _read(self, statement: Statement[set[int]]) -> set[int]:
        """Retried until the database answers."""
        return await with_retries(
            lambda: self._sessions.run(statement),
            clock=self._context.clock,
            max_attempts=sys.maxsize,
            fallback=RETRY_DELAYS,
        )

    def evict(self, lost: list[Job]) -> None:
        """Drop jobs that other workers have taken, and cancel those of them that run."""
        locked_jobs = self._sessions.locked_jobs
        locked_jobs.lose(lost)
        self._context.events.emit(PoolEvicted(pool_id=self._context.pool_id, jobs=lost))
        for job in self._lanes.drop(locked_jobs.is_lost):
            locked_jobs.forget(job)
        self._lanes.cancel_lost(locked_jobs.is_lost)


def lost_jobs(locked_jobs: LockedJobs, jobs: Iterable[Job], ours: Collection[int]) -> list[Job]:
    """Those that are not the pool's any more, without those that it finished or locked again since."""
    return [job for job in jobs if job.id not in ours and locked_jobs.jobs.get(job.id) is job]

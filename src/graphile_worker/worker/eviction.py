"""EvictionCheck: after the lease lapsed, finds out which jobs the pool still has.

Other workers may have declared the pool dead and recovered its jobs. Such jobs are dropped here: those that
were prefetched are forgotten, those that run are cancelled, and their outcomes are not written. A job whose
row is gone, and whose write got no answer, counts as written: this pool has most likely deleted it itself.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import TypeVar

from ..clock import Clock
from ..db.retry import Delays, with_retries
from ..hooks import Events
from ..hooks.events import PoolEvicted
from ..job import Job
from .lanes import AllSlots, AllSources
from .session.locked_jobs import LockedJobs
from .session.session import Sessions

RETRY_DELAYS = Delays(0.1, 1.0)

T = TypeVar("T")


class EvictionCheck:
    """Runs after each lapse of the lease and lets it open again."""

    def __init__(
        self,
        pool_id: str,
        events: Events,
        clock: Clock,
        *,
        sessions: Sessions,
        source: AllSources,
        read_locked: Callable[[list[Job]], Awaitable[set[int]]],
        read_gone: Callable[[list[int]], Awaitable[set[int]]],
        maybe_deleted: Callable[[], Collection[int]],
    ) -> None:
        """`read_locked`: the ids of those jobs that this pool has locked. `read_gone`: which have no row.

        `maybe_deleted`: the jobs that a write without an answer may have deleted.
        """
        self._pool_id = pool_id
        self._events = events
        self._clock = clock
        self._sessions = sessions
        self._source = source
        self._read_locked = read_locked
        self._read_gone = read_gone
        self._maybe_deleted = maybe_deleted
        self.slots: AllSlots | None = None
        """None until the pool has started."""

    async def run(self) -> None:
        """Drop the jobs that this pool has lost, then settle the lease."""
        lease, locked_jobs = self._sessions.lease, self._sessions.locked_jobs
        epoch = lease.epoch
        jobs = list(locked_jobs.jobs.values())
        ours = await self._retried(self._read_locked, jobs)
        if maybe_deleted := self._maybe_deleted():  # nothing more is sent until the lease is settled
            ours |= await self._retried(self._read_gone, list(maybe_deleted))
        lost = lost_jobs(locked_jobs, jobs, ours)
        running = set(map(id, self.slots.running)) if self.slots is not None else set()
        lost += [job for job in locked_jobs.take_replaced() if id(job) in running]
        if lost:
            self.evict(lost)
        locked_jobs.doubt()  # a fetch that was given up may have been committed late
        lease.settle(epoch)
        self._source.pulse()
        with suppress(Exception):  # the next statement retries it
            await self._sessions.reclaim()

    async def _retried(self, read: Callable[[T], Awaitable[set[int]]], jobs: T) -> set[int]:
        """Retried until the database answers."""
        return await with_retries(
            lambda: read(jobs),
            clock=self._clock,
            max_attempts=sys.maxsize,
            fallback=RETRY_DELAYS,
        )

    def evict(self, lost: list[Job]) -> None:
        """Drop jobs that other workers have taken, and cancel those of them that run."""
        locked_jobs = self._sessions.locked_jobs
        locked_jobs.lose(lost)
        self._events.emit(PoolEvicted(pool_id=self._pool_id, jobs=lost))
        for job in self._source.drop(locked_jobs.is_lost):
            locked_jobs.forget(job)
        if self.slots is not None:
            self.slots.cancel_lost(locked_jobs.is_lost)


def lost_jobs(locked_jobs: LockedJobs, jobs: Iterable[Job], ours: Collection[int]) -> list[Job]:
    """Those that are not the pool's any more, without those that it finished or locked again since."""
    return [job for job in jobs if job.id not in ours and locked_jobs.jobs.get(job.id) is job]

"""JobSource: where slots get their jobs. What the two sources have in common.

`AdaptiveSource` is the default. `LocalQueue` is Node's, with its options.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from typing import Any

from ...database.connections.retry import Delays, with_retries
from ...hooks.events import LocalQueueReturnJobs, PoolJobsReturned
from ...hooks.faults import Supervised, Work
from ...values.job import Job
from ..context import PoolContext
from ..run.slots import Slots
from .fetcher import Fetcher

RETRY_DELAYS = Delays(0.2, 5.0)  # seconds between attempts while the database is down

_run_order = attrgetter("priority", "raw_run_at")


class PrefetchedJobs(deque[Job]):
    """A deque, so that a slot takes the next job with a plain `popleft`."""

    __slots__ = ()

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs, which are in run order, to the others.

        Usually they come after all others, which costs one comparison.
        """
        if self and jobs and _run_order(jobs[0]) < _run_order(self[-1]):
            merged = sorted([*self, *jobs], key=_run_order)  # linear for two sorted runs
            self.clear()
            self.extend(merged)
        else:
            self.extend(jobs)

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the jobs for which `is_dropped` is true."""
        dropped = [job for job in self if is_dropped(job)]
        if dropped:
            kept = [job for job in self if not is_dropped(job)]
            self.clear()
            self.extend(kept)
        return dropped

    def take_all(self) -> list[Job]:
        """Remove and return all jobs."""
        jobs = list(self)
        self.clear()
        return jobs


class JobSource:
    """Hands out jobs that are locked for this pool. It has prefetched jobs, and a loop that fetches."""

    _returned: type[PoolJobsReturned] | type[LocalQueueReturnJobs] = PoolJobsReturned

    def __init__(self, context: PoolContext, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._events = context.events
        self._clock = context.clock
        self._owner = context.owner
        self._prefetched = PrefetchedJobs()
        self._due = asyncio.Event()  # wakes the loop
        self._idle = asyncio.Event()  # no fetch is in flight or due
        self._slots: Slots | None = None
        self._loop: Supervised | None = None
        self._is_paused: Callable[[Job], bool] | None = None
        self._returning: set[asyncio.Task[None]] = set()
        self._wanted_since: float | None = None

    # -- what each source does in its own way --------------------------------------------------------------

    def take(self) -> Job | None:
        """The next job, or None if none is prefetched; starts a fetch if one is due."""
        raise NotImplementedError

    def ran(self, duration: float) -> None:
        """Learn how long a job ran, in seconds."""

    def pulse(self, count: int = 1) -> None:
        """Fetch soon: this many jobs were announced."""
        raise NotImplementedError

    def poll(self) -> None:
        """Fetch soon, although no job was announced."""
        raise NotImplementedError

    def adopt(self, jobs: Sequence[Job]) -> None:
        """Add jobs that a write has locked; not to be called after a release."""
        raise NotImplementedError

    def follow(self, job: Job) -> None:
        """Add a held job whose queue has just become free; the slot that has freed it asks for a job next."""
        raise NotImplementedError

    def cap_priority(self, above: int) -> None:
        """Start no job of a worse priority than this: that of a named queue whose next job may come soon."""

    def queues_freed(self, above: int) -> None:
        """Fetch soon: the next job of a freed queue may be ready, and of this priority or a worse one."""
        self.pulse()

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the prefetched jobs for which `is_dropped` is true."""
        raise NotImplementedError

    def resize(self, concurrency: int) -> None:
        """Fetch for this many slots from now on: their number has changed."""
        raise NotImplementedError

    def start(self, slots: Slots) -> None:
        """Begin to fetch for these slots; the pool dies if that cannot continue."""
        raise NotImplementedError

    async def release(self) -> None:
        """Stop fetching and return the prefetched jobs."""
        raise NotImplementedError

    @property
    def is_released(self) -> bool:
        """Whether it hands out no more jobs."""
        raise NotImplementedError

    @property
    def can_continue_queue(self) -> bool:
        """Whether a named queue may continue with its next job because no other job is ready."""
        raise NotImplementedError

    @property
    def is_quiet(self) -> bool:
        """Whether no job is prefetched, no fetch is in flight and none is due."""
        raise NotImplementedError

    async def fetch_once(self) -> None:
        """Make a full fetch, whatever the last one found, and wait for it."""
        raise NotImplementedError

    # -- what all sources have in common -------------------------------------------------------------------

    @property
    def wanted_since(self) -> float | None:
        """Since when a slot has been free without a successful fetch, by `time.monotonic`; else None.

        May be read from any thread.
        """
        return None if self.is_released else self._wanted_since

    def _want(self) -> None:
        """Note that a free slot wants a job; the loop forgets it when it has fetched, or need not."""
        if self._wanted_since is None and self._free > 0:
            self._wanted_since = time.monotonic()

    @property
    def _free(self) -> int:
        """How many slots could run a job now."""
        return 0 if self._slots is None else self._slots.free

    async def quiet(self) -> None:
        """Wait until no fetch is in flight or due."""
        await self._idle.wait()

    def reconsider(self) -> None:
        """Make the fetch that waited for a write, if there is one."""
        self._due.set()

    def _start_loop(self, loop: Work, slots: Slots, name: str) -> None:
        """Run the loop that fetches; it must be able to begin again wherever it ended."""
        self._slots = slots
        self._loop = Supervised(
            loop,
            name,
            on_fatal=lambda error: self._owner.die(error, "getJob"),
            is_over=lambda: self.is_released,
        )
        self._loop.start()

    def withhold(self, is_paused: Callable[[Job], bool] | None) -> None:
        """Return prefetched jobs that are paused, and those that arrive later; None if nothing is paused."""
        self._is_paused = is_paused
        if is_paused is not None:
            paused = self.drop(is_paused)
            if paused:
                self._return_soon(self._return(paused))
        self.poll()

    async def _end_loop(self) -> None:
        """Wait for the loop of a released source to end; if cancelled, cancel it as well."""
        self._due.set()
        if self._loop is not None:
            await self._loop.end()
        self._idle.set()

    def _wake(self, count: int) -> None:
        if self._slots is not None:
            self._slots.wake(count)

    async def _return_prefetched(self) -> None:
        """Return all prefetched jobs to the queue."""
        await self._return(self._prefetched.take_all())

    def _return(self, jobs: Sequence[Job]) -> Coroutine[Any, Any, None]:
        """Return jobs that were not started; held ones are released before the coroutine runs.

        If their batch were lost in between, they would count as running. And they are released only once:
        when the rest is retried, they may have been fetched again.
        """
        return self._unlock(self._fetcher.release(jobs), jobs)

    async def _unlock(self, locked: Sequence[Job], jobs: Sequence[Job]) -> None:
        """Unlock those of these jobs that are locked, and tell observers of all."""
        if locked:
            try:
                await with_retries(  # until the database is back; giving up would leave jobs locked
                    lambda: self._fetcher.return_jobs(locked),
                    clock=self._clock,
                    max_attempts=sys.maxsize,
                    fallback=RETRY_DELAYS,
                    on_retry=lambda error, _attempts, _delay: self._owner.fetch_failed(error),
                )
            except BaseException:
                self._fetcher.forget_jobs(locked)  # no one else has them
                raise
        if jobs:
            self._events.emit(self._returned(pool_id=self._fetcher.pool_id, jobs=jobs))

    def _return_soon(self, returning: Coroutine[Any, Any, None]) -> None:
        """Return jobs in the background; a release waits for it."""
        task = asyncio.get_running_loop().create_task(returning, name="graphile-worker return of jobs")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def _without_paused(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The jobs that may run; those that were paused while the fetch was in flight are returned."""
        is_paused = self._is_paused
        if is_paused is None:
            return jobs
        paused = list(filter(is_paused, jobs))
        if not paused:
            return jobs
        self._return_soon(self._return(paused))
        return [job for job in jobs if not is_paused(job)]

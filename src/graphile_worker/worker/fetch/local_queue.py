"""LocalQueue: Node's local queue, with its options. Fetches `size` jobs at a time.

    STARTING ──▶ POLLING ──a fetch found more jobs than free slots──▶ WAITING
                   ▲ ▲                                                  │ │
                   │ └────────────the last prefetched job was taken─────┘ │ ttl over: jobs are returned
                   └────────a slot wants a job───── TTL_EXPIRED ◀─────────┘
    any ──the pool stops──▶ RELEASED

One fetch is in flight at a time, and only in POLLING. A fetch that found few jobs may be followed by a delay
(see RefetchDelay).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence

from ...database.connections.retry import Backoff
from ...hooks.events import (
    LocalQueueGetJobsComplete,
    LocalQueueInit,
    LocalQueueRefetchDelayAbort,
    LocalQueueRefetchDelayExpired,
    LocalQueueRefetchDelayStart,
    LocalQueueReturnJobs,
    LocalQueueSetMode,
)
from ...hooks.faults import Supervised, as_exception, is_our_end
from ...values.job import Job
from ...values.option_groups import LocalQueueOptions, RefetchDelayOptions
from ..context import PoolContext
from ..run.slots import Slots
from .fetcher import Fetcher, may_have_left_some
from .source import RETRY_DELAYS, JobSource

STARTING, POLLING, WAITING = "STARTING", "POLLING", "WAITING"
TTL_EXPIRED, RELEASED = "TTL_EXPIRED", "RELEASED"


class LocalQueue(JobSource):
    """Hands out jobs from memory and refills it in batches of a fixed size.

    As in Node, what is in the local queue runs in its order, also if the next job of a queue comes before it.
    """

    _returned = LocalQueueReturnJobs

    def __init__(self, context: PoolContext, fetcher: Fetcher, options: LocalQueueOptions) -> None:
        super().__init__(context, fetcher)
        self._options = options
        self._mode = STARTING
        self._delay = RefetchDelay(options.refetch_delay, options.size) if options.refetch_delay else None
        self._is_requested = True
        self._is_awaited = False  # announced jobs have ended a delay, and none was found since
        self._may_be_more = True
        self._timers: dict[str, Supervised] = {}

    # -- for the slots -------------------------------------------------------------------------------------

    def take(self) -> Job | None:
        if self._prefetched:
            job = self._prefetched.popleft()
            if not self._prefetched:
                self._all_taken()
            return job
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
            self._want_fetch()
        return None

    def pulse(self, count: int = 1) -> None:
        if self._delay is not None and self._delay.announced(count):
            self._abort_delay(self._delay)
        elif self._mode == POLLING:
            self._want_fetch()

    def poll(self) -> None:
        if self._mode == POLLING:
            self._want()
            self._want_fetch()

    def adopt(self, jobs: Sequence[Job]) -> None:
        jobs = self._without_paused(jobs)
        self._prefetched.add(jobs)
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
        self._wait_if_all_are_busy()
        self._wake(len(jobs))

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        dropped = self._prefetched.drop(is_dropped)
        if dropped and not self._prefetched:
            self._all_taken()
        return dropped

    def resize(self, concurrency: int) -> None:
        """Its size is fixed; jobs without a slot are returned when their time to live is over."""
        self._wait_if_all_are_busy()
        self.poll()

    @property
    def is_released(self) -> bool:
        return self._mode == RELEASED

    @property
    def can_continue_queue(self) -> bool:
        return not self._may_be_more and self._mode != RELEASED

    @property
    def is_quiet(self) -> bool:
        return self._idle.is_set() and not self._prefetched

    async def fetch_once(self) -> None:
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
        self._fetcher.forget_watermarks()
        self._idle.clear()
        if self._delay is not None and self._delay.active:
            self._end_delay()
        self._want_fetch()
        await self._idle.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    def start(self, slots: Slots) -> None:
        self._events.emit(LocalQueueInit(pool_id=self._fetcher.pool_id))
        self._set_mode(POLLING)
        self._start_loop(self._run, slots, "local queue")

    async def release(self) -> None:
        if self._mode != RELEASED:
            self._set_mode(RELEASED)
        for timer in self._timers.values():
            timer.cancel()
        await self._end_loop()
        await asyncio.gather(*self._returning, self._return_prefetched())

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        self._is_requested = True
        self._due.set()
        while self._mode != RELEASED:
            await self._due.wait()
            self._due.clear()
            if self._mode != POLLING or self._prefetched or not self._is_requested:
                self._wanted_since = None
                if self._mode != POLLING or not self._is_requested:
                    self._idle.set()
                continue
            self._is_requested = False
            self._idle.clear()
            if self._delay is not None:
                self._delay.fetch_begins()
            try:
                jobs = await self._fetcher.fetch(self._options.size, announced=True)
            except BaseException as error:
                self._is_requested = True
                if is_our_end(error):
                    raise
                self._owner.fetch_failed(as_exception(error))
                self._after("retry", backoff.next_delay(), self._due.set)
                continue
            backoff.reset()
            self._wanted_since = None
            self._received(jobs)

    def _received(self, jobs: Sequence[Job]) -> None:
        full = len(jobs) >= self._options.size
        self._may_be_more = may_have_left_some(len(jobs), self._options.size) if self._delay is None else full
        self._events.emit(LocalQueueGetJobsComplete(pool_id=self._fetcher.pool_id, jobs=jobs))
        jobs = self._without_paused(jobs)
        self._prefetched.add(jobs)
        if not self._wait_if_all_are_busy() and self._may_be_more:
            self._is_requested = True
        self._wake(len(jobs))
        is_awaited, self._is_awaited = self._is_awaited and not jobs, False
        seconds = self._fetcher.full_fetch_in()
        if seconds is not None:
            self._after("full fetch", seconds, self._fetch_awaited if is_awaited else self.poll)
        if self._delay is not None and self._mode == POLLING:
            self._maybe_delay(len(jobs), full)
        self._due.set()

    def _wait_if_all_are_busy(self) -> bool:
        """Switch to WAITING and start the time to live if more jobs are prefetched than slots are free."""
        if self._mode != POLLING or len(self._prefetched) <= self._free:
            return False
        self._set_mode(WAITING)
        self._after("ttl", self._options.ttl, self._expire)
        return True

    def _all_taken(self) -> None:
        if self._mode == WAITING:
            self._cancel("ttl")
            self._set_mode(POLLING)
            self._want_fetch()
        elif self._is_requested:  # the fetch had to wait until no job was prefetched
            self._due.set()

    def _want_fetch(self) -> None:
        if self._delay is not None and self._delay.active:
            self._delay.fetch_wanted = True
            return
        self._is_requested = True
        self._idle.clear()
        self._due.set()

    # -- delays, expiry, returning jobs --------------------------------------------------------------------

    def _maybe_delay(self, job_count: int, full: bool) -> None:
        delay = self._delay
        if delay is None:
            return
        seconds = delay.starts_after(job_count, full=full)
        if seconds is None:
            return
        if self._is_requested:
            self._is_requested, delay.fetch_wanted = False, True
        self._events.emit(
            LocalQueueRefetchDelayStart(
                pool_id=self._fetcher.pool_id,
                job_count=job_count,
                threshold=delay.options.threshold,
                delay=seconds,
                abort_threshold=delay.abort_threshold,
            )
        )
        self._after("refetch delay", seconds, self._delay_over)
        if delay.announced(0):  # enough jobs were announced while the fetch was in flight
            self._abort_delay(delay)

    def _abort_delay(self, delay: RefetchDelay) -> None:
        self._events.emit(
            LocalQueueRefetchDelayAbort(
                pool_id=self._fetcher.pool_id, count=delay.count, abort_threshold=delay.abort_threshold
            )
        )
        self._fetch_awaited()

    def _fetch_awaited(self) -> None:
        """Find jobs whose announcements have ended a delay; after a fetch without result, again."""
        self._is_awaited = True
        self._end_delay()
        self._want_fetch()

    def _delay_over(self) -> None:
        if self._delay is None or not self._delay.active:
            return
        self._events.emit(LocalQueueRefetchDelayExpired(pool_id=self._fetcher.pool_id))
        if self._delay.ended():
            self._want_fetch()

    def _end_delay(self) -> None:
        self._cancel("refetch delay")
        if self._delay is not None:
            self._delay.ended()

    def _expire(self) -> None:
        if self._mode == WAITING and self._prefetched:
            self._set_mode(TTL_EXPIRED)
            self._return_soon(self._return_prefetched())

    def _set_mode(self, mode: str) -> None:
        old, self._mode = self._mode, mode
        self._events.emit(LocalQueueSetMode(pool_id=self._fetcher.pool_id, old_mode=old, new_mode=mode))

    def _after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Set the timer of this name, replacing the last one."""

        async def wait() -> None:
            await self._clock.sleep(seconds)
            if self._timers.get(name) is timer:
                del self._timers[name]
                action()

        self._cancel(name)
        timer = Supervised(wait, f"local queue {name}", is_over=lambda: self.is_released)
        self._timers[name] = timer
        timer.start()

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class RefetchDelay:
    """Counts announced jobs since the last fetch, and decides when they end the delay early."""

    def __init__(
        self,
        options: RefetchDelayOptions,
        size: int,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
        share: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self._max_threshold = 5 * size if options.max_abort_threshold is None else options.max_abort_threshold
        self._uniform = uniform
        self._share = share
        self.active = False
        self.count = 0
        self.abort_threshold = math.inf
        self.fetch_wanted = False

    def fetch_begins(self) -> None:
        """Start to count announced jobs."""
        self.count = 0

    def starts_after(self, job_count: int, *, full: bool) -> float | None:
        """Seconds to pause after a fetch with this result; None for no pause."""
        if full or job_count > self.options.threshold:
            return None
        self.active = True
        self.fetch_wanted = False
        threshold = self._share() * self._max_threshold
        self.abort_threshold = threshold if threshold > 0 else math.inf
        return self.options.duration * self._uniform(0.5, 1.5)

    def announced(self, count: int) -> bool:
        """Count announced jobs; whether they end the delay."""
        self.count += count
        return self.active and self.count >= self.abort_threshold

    def ended(self) -> bool:
        """End the delay; whether a fetch was requested while it lasted."""
        self.active = False
        wanted, self.fetch_wanted = self.fetch_wanted, False
        return wanted

"""AdaptiveSource: the default source. It fetches on demand and prefetches short jobs.

At most one fetch is in flight. It asks for as many jobs as there are free slots and, while jobs are short,
for `prefetch` seconds of work more, estimated from recent run times. Slow jobs are not prefetched, so no job
waits here that another worker could run; prefetched jobs stuck behind a slow one are returned. With
`prefetch` 0 a job is locked only when a slot is free.

Jobs are handed out by priority and run_at, whichever fetch brought them. While nothing is prefetched, a fetch
also waits for the writes that free named queues: otherwise it would find those queues busy and take a later
job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..clock import Clock
from ..db.retry import Backoff
from ..hooks import Events
from ..hooks.events import PoolJobsReturned
from ..job import Job
from .fetcher import Fetcher
from .holds import FEWEST
from .source import RETRY_DELAYS, BufferedSource, IdleSlots

MAX_FETCH = 2000  # jobs; larger fetches gain nothing
MAX_PREFETCH = 2 * MAX_FETCH  # so that one fetch is in flight while the jobs of the last one run
RECENT = 1 / 16  # the weight of the latest job in the average run time
GROWTH = 16  # times the last limit, at most: the first jobs show how long they take
HELD_SHARE = 0.5  # of `hold` that the jobs of a held batch may take: it waits for the batch before it
HELD_RUN_TIME = 0.1  # of `hold` that a job may run on average: longer ones would outlast the batch
PACE_SAMPLE = 100  # jobs handed out between two fetches: fewer tell little about the pace
OVERSTAY = 0.1  # seconds that a prefetched job may wait beyond twice the prefetch


class Pace:
    """How long a job takes with all overhead: decoding, events, its share of the write.

    A trivial task takes a microsecond, but the worker needs ten times as long for each job, and on a loaded
    machine a hundred times. Measured between two fetches, if no slot had to wait for a job.
    """

    def __init__(self) -> None:
        self.received = 0
        """How many jobs have come in."""
        self.starved = True
        """Whether a slot had to wait for a job since the last measurement."""
        self._seconds_per_job = 0.0  # unknown
        self._handed_out = 0
        self._measured_at = 0.0

    def measure(self, now: float, prefetched: int) -> None:
        """Update the pace after a fetch; `prefetched` jobs of earlier ones have not been handed out."""
        handed_out = self.received - prefetched
        count = handed_out - self._handed_out
        if self.starved:
            self._seconds_per_job /= 2  # the true pace may be faster
        elif count >= PACE_SAMPLE:
            self._seconds_per_job = (now - self._measured_at) / count
        else:
            return
        self._handed_out, self._measured_at, self.starved = handed_out, now, False

    def jobs_in(self, seconds: float) -> int:
        """How many jobs can run in this time, at most."""
        if self._seconds_per_job * MAX_PREFETCH <= seconds:
            return MAX_PREFETCH
        return int(seconds / self._seconds_per_job)


class AdaptiveSource(BufferedSource):
    """Fetches on demand, with a prefetch measured in time."""

    def __init__(
        self,
        fetcher: Fetcher,
        events: Events,
        clock: Clock,
        *,
        concurrency: int,
        prefetch: float,
        on_error: Callable[[BaseException], None],
        frees_queues: Callable[[], bool] = lambda: False,
    ) -> None:
        """`frees_queues`: whether an outcome is unwritten that will free a named queue."""
        super().__init__(fetcher, events, clock, on_error)
        self._concurrency = concurrency
        self._prefetch = 0.0 if fetcher.one_at_a_time else prefetch
        self._frees_queues = frees_queues
        self._arrived: Sequence[Job] = ()  # the last fetch, until it is unpacked
        self._received_at = 0.0
        self._run_time = 0.0  # seconds; average of the latest jobs
        self._pace = Pace()
        self._last_limit = 0
        self._last_found = 0
        self._prefetch_count = 0  # jobs that may be locked beyond the free slots
        self._refill_at = 0  # fetch more when this few jobs are prefetched
        self._may_be_more = True  # whether the last fetch may have left ready jobs
        self._is_requested = False  # whether a fetch was requested since the last one began
        self._is_announced = False  # whether a job was announced since the last fetch began
        self._released = False
        self._overstay_timer: asyncio.TimerHandle | None = None
        self._full_fetch_timer: asyncio.TimerHandle | None = None

    # -- for the slots -------------------------------------------------------------------------------------

    def take(self) -> Job | None:
        prefetched = self._prefetched
        if not prefetched:
            if self._arrived:
                self._unpack()
                return self.take()
            self._pace.starved = True
            self._due.set()
            return None
        job = prefetched.popleft()
        if len(prefetched) <= self._refill_at and (self._may_be_more or self._is_requested):
            self._due.set()
        return job

    def ran(self, duration: float) -> None:
        self._run_time += (duration - self._run_time) * RECENT if self._run_time else duration

    def pulse(self, count: int = 1) -> None:
        self._is_requested = self._is_announced = True
        self._idle.clear()
        self._due.set()

    def poll(self) -> None:
        self._is_requested = True
        self._idle.clear()
        self._due.set()

    def adopt(self, jobs: Sequence[Job]) -> None:
        self._unpack()
        if not self._prefetched:
            self._received_at = self._clock.monotonic()
        self._add(self._without_paused(jobs))
        self._watch_prefetched()

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        self._unpack()
        dropped = self._prefetched.drop(is_dropped)
        self._pace.received -= len(dropped)
        if dropped:
            self.pulse()  # they may be free soon, and below a watermark
        return dropped

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def may_go_on(self) -> bool:
        return not self._may_be_more and not self._is_requested and not self._released

    @property
    def is_quiet(self) -> bool:
        return self._idle.is_set() and not self._count

    async def fetch_once(self) -> None:
        self._fetcher.forget_watermarks()
        self.pulse()
        await self._idle.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    def start(self, slots: IdleSlots) -> None:
        self._fetcher.is_idle = self._is_idle
        self._start_loop(self._run(), slots, "graphile-worker source")

    async def release(self) -> None:
        self._released = True
        for timer in (self._overstay_timer, self._full_fetch_timer):
            if timer is not None:
                timer.cancel()
        await self._end_loop()
        await asyncio.gather(*self._returning, self._return_all())
        await self._fetcher.let_go()

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        while not self._released:
            if not self._due.is_set():
                await self._due.wait()
            self._due.clear()
            if self._prefetched or self._arrived:
                await self._return_overstayed()
            limit = self._limit()
            if self._released or limit <= 0 or not (self._may_be_more or self._is_requested):
                if not (self._may_be_more or self._is_requested):
                    self._idle.set()
                continue
            if not self._prefetch_count and self._frees_queues():
                continue  # the sink pulses after that write
            self._idle.clear()
            announced, self._is_requested, self._is_announced = self._is_announced, False, False
            try:
                may_hold = self._may_hold(limit) and self._fetcher.is_ready_to_hold()
                if may_hold or self._fetcher.is_about_to_hold:
                    limit = min(limit, self._most_held())
                jobs = await self._fetcher.fetch(limit, announced=announced, may_hold=may_hold)
            except Exception as error:
                self._on_error(error)
                self._is_requested = True
                await self._pause(backoff.next_delay())
                continue
            backoff.reset()
            self._received(jobs, limit)
            del jobs  # otherwise they are freed when the next ones arrive, while the server waits

    def _received(self, jobs: Sequence[Job], limit: int) -> None:
        self._last_limit, self._last_found = limit, len(jobs)
        self._may_be_more = self._fetcher.may_have_left_some(len(jobs), limit)
        self._unpack()
        self._pace.measure(self._clock.monotonic(), len(self._prefetched))
        self._arrived = jobs = self._without_paused(jobs)
        if jobs:
            self._received_at = self._clock.monotonic()
            self._watch_prefetched()
        if self._may_be_more:
            # Send the next fetch first, so that the server does not wait while we unpack.
            asyncio.get_running_loop().call_soon(self._unpack)
        else:
            self._unpack()
        if self._may_be_more or self._is_requested:
            self._due.set()
        else:
            self._idle.set()
            seconds = self._fetcher.full_fetch_in()
            if seconds is not None and not self._released:
                self._poll_in(seconds)

    def _unpack(self) -> None:
        arrived, self._arrived = self._arrived, ()
        if arrived:
            self._add(arrived)

    def _add(self, jobs: Sequence[Job]) -> None:
        self._prefetched.add(jobs)
        self._pace.received += len(jobs)
        self._wake(len(jobs))

    @property
    def _count(self) -> int:
        """How many jobs are prefetched."""
        return len(self._prefetched) + len(self._arrived)

    def _poll_in(self, seconds: float) -> None:
        if self._full_fetch_timer is not None:
            self._full_fetch_timer.cancel()
        self._full_fetch_timer = asyncio.get_running_loop().call_later(seconds, self._full_fetch_due)

    def _full_fetch_due(self) -> None:
        self._full_fetch_timer = None
        self._is_requested = True
        self._due.set()

    def _limit(self) -> int:
        """How many jobs to fetch: for free slots, and to prefetch if jobs are short."""
        free = self._slots.free if self._slots is not None else 0
        if self._fetcher.one_at_a_time:
            return min(1, free - self._count)
        ahead = 0
        if 0 < self._run_time < self._prefetch and self._fetcher.may_prefetch:
            ahead = int(self._prefetch / self._run_time * self._concurrency)
            # Twice the prefetch: more is fetched when half is left, and urgent jobs pass others.
            ahead = min(ahead, self._pace.jobs_in(2 * self._prefetch), self._last_limit * GROWTH)
        self._prefetch_count = ahead
        self._refill_at = ahead // 2
        prefetched = self._count
        # Half a prefetch is worth a round trip. Less is not, unless a slot is free.
        if prefetched > self._refill_at and free <= prefetched:
            return 0
        return min(free + ahead - prefetched, MAX_FETCH)

    def _is_idle(self) -> bool:
        """Whether slots are free and there is no job for them."""
        return self._slots is not None and self._slots.free > 0 and not self._count

    def _may_hold(self, limit: int) -> bool:
        """Whether jobs are short and many, so that they can run inside the transaction that fetches them."""
        hold = self._fetcher.hold
        return (
            0 < self._run_time < hold * HELD_RUN_TIME
            and limit >= FEWEST
            and self._last_found >= min(self._last_limit, FEWEST)
            and self._most_held() >= FEWEST
        )

    def _most_held(self) -> int:
        return min(self._pace.jobs_in(self._fetcher.hold * HELD_SHARE), self._fetcher.most_held)

    # -- returning jobs ------------------------------------------------------------------------------------

    @property
    def _max_wait(self) -> float:
        return self._prefetch * 2 + OVERSTAY

    def _watch_prefetched(self) -> None:
        """Check after a while whether a slow job blocks the prefetched ones, and again later."""
        if self._overstay_timer is None and self._count and not self._released:
            loop = asyncio.get_running_loop()
            self._overstay_timer = loop.call_later(self._max_wait + 0.001, self._check_prefetched)

    def _check_prefetched(self) -> None:
        self._overstay_timer = None
        if self._count:
            self._due.set()
            self._watch_prefetched()

    async def _return_overstayed(self) -> None:
        """Return prefetched jobs that are stuck behind slow ones, so that other workers can run them."""
        if not self._count or self._slots is None or self._slots.free > 0:
            return
        if self._clock.monotonic() - self._received_at > self._max_wait:
            self._may_be_more = True
            self._run_time = max(self._run_time, self._prefetch)
            await self._return_all()

    async def _return_all(self) -> None:
        self._unpack()
        self._pace.received -= len(self._prefetched)
        await self._return_prefetched(PoolJobsReturned)

    async def _pause(self, seconds: float) -> None:
        """Wait after an error; a release ends it early."""
        waiting = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            while not waiting.done() and not self._released:
                self._due.clear()
                due = asyncio.ensure_future(self._due.wait())
                await asyncio.wait((waiting, due), return_when=asyncio.FIRST_COMPLETED)
                due.cancel()
        finally:
            waiting.cancel()
            self._due.set()

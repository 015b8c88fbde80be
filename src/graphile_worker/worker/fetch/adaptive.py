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
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ...database.connections.retry import Backoff
from ...database.statements.fetch import LOWEST, NO_CEILING
from ...hooks.faults import as_exception, is_our_end
from ...values.job import Job
from ..context import PoolContext, sleep_unless
from ..held.policy import Workload
from ..run.slots import Slots
from .fetcher import Fetcher
from .source import RETRY_DELAYS, JobSource

MAX_FETCH = 2000  # jobs; larger fetches gain nothing
MAX_PREFETCH = 2 * MAX_FETCH  # so that one fetch is in flight while the jobs of the last one run
RECENT = 1 / 16  # the weight of the latest job in the average run time
GROWTH = 16  # times the last limit, at most: the first jobs show how long they take
PACE_SAMPLE = 100  # jobs handed out between two fetches: fewer tell little about the pace
URGENT = 50  # at least this many jobs of better priorities are fetched at once although enough are prefetched
URGENT_WAIT = 0.02  # seconds to the next such fetch after one that found nothing; doubled each time, ...
LONGEST_URGENT_WAIT = 1.0  # ... up to this: where all priorities are alike, it must cost nothing
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
        self.last_limit = 0
        self.last_found = 0
        """How many jobs the last fetch asked for, and how many it found."""
        self.continued = 0
        """How many jobs of named queues writes have locked since."""
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


class Overtaking:
    """What may come before prefetched jobs: the next job of a named queue, and urgent jobs.

    Apart from the source, whose attributes are read for each job: Python reads those of an object with more
    than thirty more slowly.
    """

    __slots__ = (
        "freed", "is_urgent", "unfetched", "unfetched_at", "unwritten", "unwritten_at",
        "urgent_at", "urgent_timer", "urgent_wait",
    )  # fmt: skip

    def __init__(self) -> None:
        self.unwritten = NO_CEILING
        """The priority of a queue whose next job may come with the write of the job before it ..."""
        self.unfetched = NO_CEILING
        """... or else with the fetch that follows."""
        self.unwritten_at = self.unfetched_at = 0.0
        """When these were set."""
        self.freed = 0
        """How often queues were freed."""
        self.is_urgent = False
        """Whether a job was announced that may overtake prefetched ones."""
        self.urgent_at = 0.0
        """No look for urgent jobs before this time ..."""
        self.urgent_wait = 0.0
        """... by the last wait."""
        self.urgent_timer: asyncio.TimerHandle | None = None


class PendingWrites(Protocol):
    """The sink, as a source sees it."""

    @property
    def frees_queues(self) -> bool:
        """Whether an outcome is unwritten that will soon free a named queue."""
        ...


class AdaptiveSource(JobSource):
    """Fetches on demand, with a prefetch measured in time."""

    def __init__(
        self,
        context: PoolContext,
        fetcher: Fetcher,
        writes: PendingWrites,
        *,
        concurrency: int,
        prefetch: float,
    ) -> None:
        super().__init__(context, fetcher)
        self._concurrency = concurrency
        self._prefetch = 0.0 if fetcher.one_at_a_time else prefetch
        self._writes = writes
        self._arrived: Sequence[Job] = ()  # the last fetch, until it is unpacked
        self._received_at = 0.0
        self._run_time = 0.0  # seconds; average of the latest jobs
        self._pace = Pace()
        self._prefetch_count = 0  # jobs that may be locked beyond the free slots
        self._refill_at = 0  # fetch more when this few jobs are prefetched
        self._may_be_more = True  # whether the last fetch may have left ready jobs
        self._is_requested = False  # whether a fetch was requested since the last one began
        self._is_announced = False  # whether a job was announced since the last fetch began
        self._released = asyncio.Event()
        self._overstay_timer: asyncio.TimerHandle | None = None
        self._full_fetch_timer: asyncio.TimerHandle | None = None
        # Jobs of a worse priority than the ceiling are not started: the next job of a queue comes first.
        self._ceiling = NO_CEILING
        self._overtaking = Overtaking()

    # -- for the slots -------------------------------------------------------------------------------------

    def take(self) -> Job | None:
        prefetched = self._prefetched
        if not prefetched:
            if self._arrived:
                self._unpack()
                return self.take()
            self._pace.starved = True
            self._want()
            self._due.set()
            return None
        if self._ceiling < NO_CEILING and prefetched[0].priority > self._ceiling:
            if self._overtaking.unfetched < NO_CEILING:
                self._due.set()
            return None
        job = prefetched.popleft()
        if len(prefetched) <= self._refill_at and (self._may_be_more or self._is_requested):
            self._due.set()
        return job

    def ran(self, duration: float) -> None:
        self._run_time += (duration - self._run_time) * RECENT if self._run_time else duration

    def pulse(self, count: int = 1) -> None:
        self._is_requested = self._is_announced = self._overtaking.is_urgent = True
        self._idle.clear()
        self._due.set()

    def poll(self) -> None:
        self._want()
        self._is_requested = True
        self._idle.clear()
        self._due.set()

    def adopt(self, jobs: Sequence[Job]) -> None:
        self._unpack()
        if not self._prefetched:
            self._received_at = self._clock.monotonic()
        self._pace.continued += len(jobs)
        self._add(self._without_paused(jobs))
        self._watch_prefetched()

    def follow(self, job: Job) -> None:
        if self._is_paused is not None and not self._without_paused((job,)):
            return
        prefetched = self._prefetched
        if not prefetched:
            self._received_at = self._clock.monotonic()
        if not prefetched or job.priority <= prefetched[0].priority:
            prefetched.appendleft(job)  # those with the same priority wait for the batch at most
        else:
            prefetched.add((job,))
        self._pace.received += 1

    def cap_priority(self, above: int) -> None:
        self._overtaking.unwritten = above if self._may_overtake else NO_CEILING
        self._overtaking.unwritten_at = self._clock.monotonic()
        self._set_ceiling()

    def queues_freed(self, above: int) -> None:
        if above < self._overtaking.unfetched and self._may_overtake:
            self._overtaking.unfetched = above
            self._overtaking.unfetched_at = self._clock.monotonic()
            self._set_ceiling()
        self._overtaking.freed += 1
        self.pulse()

    @property
    def _may_overtake(self) -> bool:
        return self._fetcher.may_overtake and not self._fetcher.is_wide

    def _set_ceiling(self) -> None:
        last, self._ceiling = self._ceiling, min(self._overtaking.unwritten, self._overtaking.unfetched)
        if self._ceiling > last:
            self._wake(self._count)

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        self._unpack()
        dropped = self._prefetched.drop(is_dropped)
        self._pace.received -= len(dropped)
        if dropped:
            self.pulse()  # they may be free soon, and below a watermark
        return dropped

    def resize(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._limit()
        if self._count > self._prefetch_count:
            self._received_at = -math.inf  # if no slot is free, they are returned now
        self.poll()

    @property
    def is_released(self) -> bool:
        return self._released.is_set()

    @property
    def can_continue_queue(self) -> bool:
        if self._released.is_set():
            return False
        if self._pace.continued and self._fetcher.may_follow(self._pace.continued):
            return False
        # With enough prefetched, the queue's next job takes its place among them. More come before it is due.
        return 0 < self._refill_at < len(self._prefetched) or not (self._may_be_more or self._is_requested)

    @property
    def is_quiet(self) -> bool:
        return self._idle.is_set() and not self._count

    async def fetch_once(self) -> None:
        self._fetcher.forget_watermarks()
        self.pulse()
        await self._idle.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    def start(self, slots: Slots) -> None:
        self._start_loop(self._run, slots, "source")

    async def release(self) -> None:
        self._released.set()
        for timer in (self._overstay_timer, self._full_fetch_timer, self._overtaking.urgent_timer):
            if timer is not None:
                timer.cancel()
        await self._end_loop()
        await asyncio.gather(*self._returning, self._return_all())
        if self._fetcher.held_batches is not None:
            await self._fetcher.held_batches.end_batches()

    async def _run(self) -> None:
        backoff = Backoff(RETRY_DELAYS)
        self._unpack()  # an earlier run may have ended after a fetch
        self._is_requested = True
        self._due.set()
        while not self._released.is_set():
            if not self._due.is_set():
                await self._due.wait()
            self._due.clear()
            if self._prefetched or self._arrived:
                await self._return_overstayed()
            limit = self._limit()
            up_to = None
            if self._released.is_set() or limit <= 0 or not (self._may_be_more or self._is_requested):
                up_to = self._priority_to_overtake()
                if up_to is None:
                    self._wanted_since = None
                    if not (self._may_be_more or self._is_requested):
                        self._idle.set()
                    continue
            elif not self._prefetch_count and self._writes.frees_queues:
                continue  # the sink pulses after that write
            freed, self._overtaking.is_urgent = self._overtaking.freed, False
            try:
                if up_to is None:
                    await self._fetch(limit)
                    backoff.reset()
                else:
                    await self._fetch_urgent(up_to)
            except BaseException as error:
                self._fetched(self._overtaking.freed)
                if is_our_end(error):
                    raise
                self._owner.fetch_failed(as_exception(error))
                await sleep_unless(self._released, self._clock, backoff.next_delay())
                self._due.set()
            else:
                self._fetched(freed)

    async def _fetch(self, limit: int) -> None:
        self._idle.clear()
        announced, self._is_requested, self._is_announced = self._is_announced, False, False
        try:
            held_batches, may_hold = self._fetcher.held_batches, False
            if held_batches is not None:
                limit, may_hold = held_batches.plan_fetch(self._workload(limit))
                if may_hold:
                    await held_batches.free_session(self._fetcher.tasks, self._is_idle)
            jobs = await self._fetcher.fetch(limit, announced=announced, may_hold=may_hold)
        except BaseException:
            self._is_requested = True
            self._is_announced = self._is_announced or announced
            raise
        self._wanted_since = None
        self._received(jobs, limit)

    def _priority_to_overtake(self) -> int | None:
        """Fetch what comes before prefetched jobs, up to this priority, although enough are prefetched."""
        self._unpack()
        prefetched = self._prefetched
        if self._released.is_set() or not prefetched:
            return None
        worst = prefetched[-1].priority
        is_too_much = worst == LOWEST or len(prefetched) > 2 * MAX_PREFETCH
        if is_too_much or not self._prefetch_count or not self._may_overtake:
            self._fetched(self._overtaking.freed)
            return None
        if self._overtaking.unfetched < NO_CEILING:
            return worst - 1
        if not self._overtaking.is_urgent:
            return None
        wait = self._overtaking.urgent_at - self._clock.monotonic()
        if wait <= 0:
            return worst - 1
        if self._overtaking.urgent_timer is None:
            self._overtaking.urgent_timer = asyncio.get_running_loop().call_later(wait, self._urgent_due)
        return None

    def _urgent_due(self) -> None:
        self._overtaking.urgent_timer = None
        self._due.set()

    async def _fetch_urgent(self, up_to: int) -> None:
        limit, overtaking = max(URGENT, 2 * self._concurrency), self._overtaking
        try:
            jobs = await self._fetcher.fetch(limit, up_to=up_to)
        except BaseException:
            overtaking.is_urgent = True
            raise
        if jobs:
            self.adopt(jobs)
            overtaking.urgent_wait = 0.0
        else:
            overtaking.urgent_wait = min(max(2 * overtaking.urgent_wait, URGENT_WAIT), LONGEST_URGENT_WAIT)
        overtaking.urgent_at = self._clock.monotonic() + overtaking.urgent_wait
        if len(jobs) >= limit:  # look again when half of them have run
            overtaking.is_urgent = True
            half = limit * self._run_time / self._concurrency / 2
            overtaking.urgent_at += min(half, LONGEST_URGENT_WAIT)
            self._due.set()

    def _fetched(self, freed: int) -> None:
        """Stop holding jobs back for a fetch, unless queues were freed after it began."""
        if self._overtaking.unfetched < NO_CEILING and freed == self._overtaking.freed:
            self._overtaking.unfetched = NO_CEILING
            self._set_ceiling()

    def _received(self, jobs: Sequence[Job], limit: int) -> None:
        pace = self._pace
        pace.continued = 0
        if jobs or not self._fetcher.has_series:  # of which a fetch finds nothing more
            pace.last_limit, pace.last_found = limit, len(jobs) + self._fetcher.followed
        self._may_be_more = self._fetcher.may_have_left_some(len(jobs), limit)
        self._unpack()
        self._arrived = jobs = self._without_paused(jobs)  # first of all: they are locked
        self._pace.measure(self._clock.monotonic(), len(self._prefetched))
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
            if seconds is not None and not self._released.is_set():
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
        free = self._free
        if self._fetcher.one_at_a_time:
            return min(1, free - self._count)
        ahead = 0
        if 0 < self._run_time < self._prefetch and self._fetcher.may_prefetch:
            ahead = int(self._prefetch / self._run_time * self._concurrency)
            # Twice the prefetch: more is fetched when half is left, and urgent jobs pass others.
            ahead = min(ahead, self._pace.jobs_in(2 * self._prefetch), self._pace.last_limit * GROWTH)
        self._prefetch_count = ahead
        self._refill_at = ahead // 2
        prefetched = self._count + self._fetcher.following
        # Half a prefetch is worth a round trip. Less is not, unless a slot is free.
        if prefetched > self._refill_at and free <= prefetched:
            return 0
        return min(free + ahead - prefetched, MAX_FETCH)

    def _is_idle(self) -> bool:
        """Whether slots are free and there is no job for them."""
        return self._free > 0 and not self._count

    def _workload(self, limit: int) -> Workload:
        pace = self._pace
        limits = limit, self._run_time, pace.last_limit, pace.last_found, pace.jobs_in
        return Workload(*limits, self._concurrency, pace.continued)

    # -- returning jobs ------------------------------------------------------------------------------------

    @property
    def _max_wait(self) -> float:
        return self._prefetch * 2 + OVERSTAY

    def _watch_prefetched(self) -> None:
        """Check after a while whether a slow job blocks the prefetched ones, and again later."""
        if self._overstay_timer is None and self._count and not self._released.is_set():
            loop = asyncio.get_running_loop()
            self._overstay_timer = loop.call_later(self._max_wait + 0.001, self._check_prefetched)

    def _check_prefetched(self) -> None:
        self._overstay_timer = None
        if self._count:
            self._lift_priority_cap()
            self._due.set()
            self._watch_prefetched()

    def _lift_priority_cap(self) -> None:
        """Start what was held back for a write or a fetch that waits itself: for a lock, or the database."""
        if self._ceiling < NO_CEILING:
            before = self._clock.monotonic() - self._max_wait
            if self._overtaking.unwritten_at < before:
                self._overtaking.unwritten = NO_CEILING
            if self._overtaking.unfetched_at < before:
                self._overtaking.unfetched = NO_CEILING
            self._set_ceiling()

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
        await self._return_prefetched()

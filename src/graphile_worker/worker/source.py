"""Where slots get their jobs from: the protocol of a source, and the one that serves by default.

`AdaptiveSource` has at most one fetch in flight. It asks for as many jobs as there are free slots and, while
jobs are short, for some more: about `prefetch` seconds of work, judged by how long jobs took. Slow jobs are
not locked ahead, so no other worker waits for a job that sits here; what was locked ahead and got stuck
behind a slow job goes back. With `prefetch` 0 every job is locked only when a slot is free.

Jobs are handed out by priority and run_at, whichever fetch brought them. While nothing is locked ahead, a
fetch also waits for the writes that free named queues: otherwise it would see those queues as busy and take
a job that comes later.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ..clock import Clock
from ..db.retry import Backoff, Delays, with_retries
from ..hooks import Events
from ..hooks.events import PoolJobsReturned
from ..job import Job
from .fetcher import Fetcher, may_have_left_some
from .run_order import insert_in_order

MAX_FETCH = 2000  # jobs per fetch; beyond this larger ones gain nothing
MAX_PREFETCH = 2 * MAX_FETCH  # so that the server works on one fetch while the jobs of the last one run
RECENT = 1 / 16  # the weight of the latest job in the average run time
GROWTH = (
    16  # a fetch asks for at most so many times more than the last: the first jobs show how long they take
)
PACE_SAMPLE = 100  # jobs handed out between two fetches: fewer say little about the pace
PATIENCE = Delays(0.2, 5.0)  # seconds between tries while the database is away
OVERSTAY = 0.1  # seconds that a job may wait here beyond its share before it goes back

logger = logging.getLogger("graphile_worker.worker")


class Crew(Protocol):
    """The slots, as a source sees them."""

    @property
    def free(self) -> int: ...

    def wake(self, count: int) -> None: ...


class JobSource(Protocol):
    """Hands out jobs that are locked for this pool."""

    def take(self) -> Job | None:
        """The next job, if there is one here and now; asking makes the source fetch more when it is due."""
        ...

    def ran(self, duration: float) -> None:
        """A job ran for so long."""
        ...

    def pulse(self, count: int = 1) -> None:
        """Somebody announced so many jobs."""
        ...

    def poll(self) -> None:
        """It is time to look for jobs that nobody announced."""
        ...

    def adopt(self, jobs: Sequence[Job]) -> None:
        """Jobs that were locked along with a write are here to be run next; not after a release."""
        ...

    def drop(self, is_lost: Callable[[Job], bool]) -> list[Job]:
        """Let go of those jobs held here that others have taken from this pool, and return them."""
        ...

    def start(self, crew: Crew) -> None:
        """Begin to fetch for these slots."""
        ...

    async def release(self) -> None:
        """Fetch no more and give back what was not started."""
        ...

    @property
    def is_released(self) -> bool:
        """Whether it hands out nothing any more."""
        ...

    @property
    def may_go_on(self) -> bool:
        """Whether a named queue may go on with its next job without regard to other jobs."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether no job is held here, no fetch is in flight and none is due."""
        ...

    async def quiet(self) -> None:
        """Until that is so, as far as fetching goes."""
        ...

    async def look(self) -> None:
        """Fetch once, whatever the last fetch brought, and return when it is over."""
        ...


async def surely(
    operation: Callable[[], Awaitable[None]], clock: Clock, on_error: Callable[[BaseException], None]
) -> None:
    """Do it, however long the database is away: a locked job that nobody runs must not be forgotten."""
    await with_retries(
        operation,
        clock=clock,
        max_attempts=sys.maxsize,
        fallback=PATIENCE,
        on_retry=lambda error, _tries, _delay: on_error(error),
    )


async def end_loop(task: asyncio.Task[None]) -> None:
    """Until a loop that was told to end has done so; cancelled, it takes the loop with it."""
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        raise


class Pace:
    """How long a job takes with everything around it: decoding, events, its share of the write.

    A trivial task takes a microsecond, but the worker needs ten times as long for each job, and on a loaded
    machine a hundred times. Measured between two fetches, while slots never had to wait for a job.
    """

    def __init__(self) -> None:
        self.received = 0
        """How many jobs have come in."""
        self.starved = True
        """Whether a slot had to wait for a job since the last measurement."""
        self._seconds_per_job = 0.0  # unknown
        self._handed_out = 0
        self._measured_at = 0.0

    def measure(self, now: float, held: int) -> None:
        """A fetch came back while `held` jobs of earlier ones are still here."""
        handed_out = self.received - held
        count = handed_out - self._handed_out
        if self.starved:
            self._seconds_per_job /= 2  # it may be faster than we know
        elif count >= PACE_SAMPLE:
            self._seconds_per_job = (now - self._measured_at) / count
        else:
            return
        self._handed_out, self._measured_at, self.starved = handed_out, now, False

    def jobs_in(self, seconds: float) -> int:
        """How many jobs are at most run in this time."""
        if self._seconds_per_job * MAX_PREFETCH <= seconds:
            return MAX_PREFETCH
        return int(seconds / self._seconds_per_job)


class AdaptiveSource:
    """Fetches by demand, with a prefetch measured in time."""

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
        """`frees_queues` says whether the outcome of a job in a named queue is not written yet."""
        self._fetcher = fetcher
        self._events = events
        self._clock = clock
        self._concurrency = concurrency
        self._prefetch = 0.0 if fetcher.one_at_a_time else prefetch
        self._on_error = on_error
        self._frees_queues = frees_queues
        self._held: deque[Job] = deque()
        self._arrived: Sequence[Job] = ()  # the last fetch, if it is not unpacked yet
        self._received_at = 0.0
        self._typical = 0.0  # seconds a job takes, averaged over the last ones
        self._pace = Pace()
        self._last_limit = 0
        self._ahead = 0  # how many jobs may be locked beyond those that slots are free for
        self._refill_at = 0  # when so few jobs are held it is time to fetch more
        self._more = True  # whether the last fetch left something behind
        self._pulsed = False
        self._promised = False  # whether somebody announced a job that was not fetched yet
        self._released = False
        self._due = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._crew: Crew | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._looking_again: asyncio.TimerHandle | None = None
        self._loop_task: asyncio.Task[None] | None = None

    # -- for the slots -------------------------------------------------------------------------------------

    def take(self) -> Job | None:
        held = self._held
        if not held:
            if self._arrived:
                self._unpack()
                return self.take()
            self._pace.starved = True
            self._due.set()
            return None
        job = held.popleft()
        if len(held) <= self._refill_at and (self._more or self._pulsed):
            self._due.set()
        return job

    def ran(self, duration: float) -> None:
        self._typical += (duration - self._typical) * RECENT if self._typical else duration

    def pulse(self, count: int = 1) -> None:
        self._pulsed = self._promised = True
        self._at_rest.clear()
        self._due.set()

    def poll(self) -> None:
        promised = self._promised
        self.pulse()
        self._promised = promised

    def adopt(self, jobs: Sequence[Job]) -> None:
        self._unpack()
        if not self._held:
            self._received_at = self._clock.monotonic()
        self._hold(jobs)
        self._watch_held()

    def drop(self, is_lost: Callable[[Job], bool]) -> list[Job]:
        self._unpack()
        held, self._held = self._held, deque(job for job in self._held if not is_lost(job))
        self._pace.received -= len(held) - len(self._held)
        self.pulse()
        return [job for job in held if is_lost(job)]

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def may_go_on(self) -> bool:
        return not self._more and not self._pulsed and not self._released

    @property
    def is_quiet(self) -> bool:
        return self._at_rest.is_set() and not self._count

    async def quiet(self) -> None:
        await self._at_rest.wait()

    async def look(self) -> None:
        self._fetcher.look_everywhere()
        self.pulse()
        await self._at_rest.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    def start(self, crew: Crew) -> None:
        self._crew = crew
        self._due.set()
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker source")

    async def release(self) -> None:
        self._released = True
        self._due.set()
        for timer in (self._watching, self._looking_again):
            if timer is not None:
                timer.cancel()
        if self._loop_task is not None:
            await end_loop(self._loop_task)
        self._at_rest.set()
        await self._give_back()

    async def _run(self) -> None:
        backoff = Backoff(PATIENCE)
        while not self._released:
            if not self._due.is_set():
                await self._due.wait()
            self._due.clear()
            if self._held or self._arrived:
                await self._return_overstayed()
            limit = self._limit()
            if self._released or limit <= 0 or not (self._more or self._pulsed):
                if not (self._more or self._pulsed):
                    self._at_rest.set()
                continue
            if not self._ahead and self._frees_queues():
                continue  # the sink pulses when that is written
            self._at_rest.clear()
            promised, self._pulsed, self._promised = self._promised, False, False
            try:
                jobs = await self._fetcher.fetch(limit, promised=promised)
            except Exception as error:
                self._on_error(error)
                self._pulsed = True
                await self._rest(backoff.next_delay())
                continue
            backoff.reset()
            self._received(jobs, limit)
            del jobs  # else they are freed when the next ones arrive, and the server waits for that

    def _received(self, jobs: Sequence[Job], limit: int) -> None:
        self._last_limit = limit
        self._more = may_have_left_some(len(jobs), limit)
        self._unpack()
        self._pace.measure(self._clock.monotonic(), len(self._held))
        self._arrived = jobs
        if jobs:
            self._received_at = self._clock.monotonic()
            self._watch_held()
        if self._more:
            # There is more: the next fetch goes out first, so that the server does not wait while we unpack.
            asyncio.get_running_loop().call_soon(self._unpack)
        else:
            self._unpack()
        if self._more or self._pulsed:
            self._due.set()
        else:
            self._at_rest.set()
            later = self._fetcher.look_again_in()
            if later is not None and not self._released:
                self._look_again_in(later)

    def _unpack(self) -> None:
        arrived, self._arrived = self._arrived, ()
        if arrived:
            self._hold(arrived)

    def _hold(self, jobs: Sequence[Job]) -> None:
        insert_in_order(self._held, jobs)
        self._pace.received += len(jobs)
        self._wake(len(jobs))

    @property
    def _count(self) -> int:
        """How many jobs are held here."""
        return len(self._held) + len(self._arrived)

    def _look_again_in(self, seconds: float) -> None:
        if self._looking_again is not None:
            self._looking_again.cancel()
        self._looking_again = asyncio.get_running_loop().call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._looking_again = None
        self._pulsed = True
        self._due.set()

    def _limit(self) -> int:
        """How many jobs to ask for: free slots, and what short jobs allow beyond them."""
        free = self._crew.free if self._crew is not None else 0
        if self._fetcher.one_at_a_time:
            return min(1, free - self._count)
        ahead = 0
        if 0 < self._typical < self._prefetch:
            ahead = int(self._prefetch / self._typical * self._concurrency)
            # Twice that: more are fetched when half is left, and a job of better priority passes those.
            ahead = min(ahead, self._pace.jobs_in(2 * self._prefetch), self._last_limit * GROWTH)
        self._ahead = ahead
        self._refill_at = ahead // 2
        held = self._count
        # Half a prefetch is worth a round trip; less is not, unless a slot has nothing to do.
        return min(free + ahead - held, MAX_FETCH) if held <= self._refill_at or free > held else 0

    def _wake(self, count: int) -> None:
        if self._crew is not None:
            self._crew.wake(count)

    # -- giving back ---------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return self._prefetch * 2 + OVERSTAY

    def _watch_held(self) -> None:
        """See after a while whether a slow job holds up what is held, and again as long as something is."""
        if self._watching is None and self._count and not self._released:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(self._patience + 0.001, self._look_at_held)

    def _look_at_held(self) -> None:
        self._watching = None
        if self._count:
            self._due.set()
            self._watch_held()

    async def _return_overstayed(self) -> None:
        """A slow job holds up those behind it: give them to other workers."""
        if not self._count or self._crew is None or self._crew.free > 0:
            return
        if self._clock.monotonic() - self._received_at > self._patience:
            self._more = True
            self._typical = max(self._typical, self._prefetch)
            await self._give_back()

    async def _give_back(self) -> None:
        self._unpack()
        jobs, self._held = list(self._held), deque()
        self._pace.received -= len(jobs)
        if jobs:
            await surely(lambda: self._fetcher.give_back(jobs), self._clock, self._on_error)
            self._events.emit(PoolJobsReturned(pool_id=self._fetcher.pool_id, jobs=jobs))

    async def _rest(self, seconds: float) -> None:
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

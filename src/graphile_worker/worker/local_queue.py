"""LocalQueue: Node's local queue, for those who want its knobs. Locks `size` jobs at a time.

    STARTING ──▶ POLLING ──a fetch brought more than the free slots take──▶ WAITING
                   ▲ ▲                                                        │ │
                   │ └────────────the last cached job was handed out──────────┘ │ ttl over: jobs go back
                   └──────a slot asks for a job────── TTL_EXPIRED ◀─────────────┘
    any ──the pool stops──▶ RELEASED

One fetch at a time, only in POLLING. After a fetch that found little it may rest (see refetch_delay).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ..clock import Clock
from ..db.retry import Backoff
from ..hooks import Events
from ..hooks.events import (
    LocalQueueGetJobsComplete,
    LocalQueueInit,
    LocalQueueRefetchDelayAbort,
    LocalQueueRefetchDelayExpired,
    LocalQueueRefetchDelayStart,
    LocalQueueReturnJobs,
    LocalQueueSetMode,
)
from ..job import Job
from ..options import LocalQueueOptions
from .fetcher import Fetcher, may_have_left_some
from .refetch_delay import RefetchDelay
from .run_order import insert_in_order
from .source import PATIENCE, Crew, end_loop, surely

STARTING, POLLING, WAITING, TTL_EXPIRED, RELEASED = (
    "STARTING",
    "POLLING",
    "WAITING",
    "TTL_EXPIRED",
    "RELEASED",
)


class LocalQueue:
    """Hands out jobs from memory and refills by batches of a fixed size."""

    def __init__(
        self,
        fetcher: Fetcher,
        events: Events,
        clock: Clock,
        options: LocalQueueOptions,
        *,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._fetcher = fetcher
        self._events = events
        self._clock = clock
        self._options = options
        self._on_error = on_error
        self._mode = STARTING
        self._held: deque[Job] = deque()
        self._delay = RefetchDelay(options.refetch_delay, options.size) if options.refetch_delay else None
        self._again = True
        self._may_be_more = True
        self._due = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._crew: Crew | None = None

    # -- for the slots -------------------------------------------------------------------------------------

    def take(self) -> Job | None:
        if self._held:
            job = self._held.popleft()
            if not self._held:
                self._all_handed_out()
            return job
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
            self._want_fetch()
        return None

    def ran(self, duration: float) -> None:
        """Sizes are fixed here; how long jobs take changes nothing."""

    def pulse(self, count: int = 1) -> None:
        if self._delay is not None and self._delay.announced(count):
            self._abort_delay(self._delay)
        elif self._mode == POLLING:
            self._want_fetch()

    def poll(self) -> None:
        if self._mode == POLLING:
            self._want_fetch()

    def adopt(self, jobs: Sequence[Job]) -> None:
        insert_in_order(self._held, jobs)
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
        self._wait_if_all_are_busy()
        self._wake(len(jobs))

    def drop(self, is_lost: Callable[[Job], bool]) -> list[Job]:
        held, self._held = self._held, deque(job for job in self._held if not is_lost(job))
        if held and not self._held:
            self._all_handed_out()
        return [job for job in held if is_lost(job)]

    @property
    def is_released(self) -> bool:
        return self._mode == RELEASED

    @property
    def may_go_on(self) -> bool:
        return not self._may_be_more and self._mode != RELEASED

    @property
    def is_quiet(self) -> bool:
        return self._at_rest.is_set() and not self._held

    async def quiet(self) -> None:
        await self._at_rest.wait()

    async def look(self) -> None:
        if self._mode == TTL_EXPIRED:
            self._set_mode(POLLING)
        self._fetcher.look_everywhere()
        self._at_rest.clear()
        if self._delay is not None and self._delay.active:
            self._end_delay()
        self._want_fetch()
        await self._at_rest.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    def start(self, crew: Crew) -> None:
        self._crew = crew
        self._events.emit(LocalQueueInit(pool_id=self._fetcher.pool_id))
        self._set_mode(POLLING)
        self._due.set()
        self._loop_task = asyncio.get_running_loop().create_task(
            self._run(), name="graphile-worker local queue"
        )

    async def release(self) -> None:
        if self._mode != RELEASED:
            self._set_mode(RELEASED)
        self._due.set()
        for timer in self._timers.values():
            timer.cancel()
        if self._loop_task is not None:
            await end_loop(self._loop_task)
        self._at_rest.set()
        await asyncio.gather(*self._returning, self._give_back())

    async def _run(self) -> None:
        backoff = Backoff(PATIENCE)
        while self._mode != RELEASED:
            await self._due.wait()
            self._due.clear()
            if self._mode != POLLING or self._held or not self._again:
                self._rest_if_nothing_is_due()
                continue
            self._again = False
            self._at_rest.clear()
            if self._delay is not None:
                self._delay.fetch_begins()
            try:
                jobs = await self._fetcher.fetch(self._options.size, promised=True)
            except Exception as error:
                self._on_error(error)
                self._again = True
                self._after("retry", backoff.next_delay(), self._due.set)
                continue
            backoff.reset()
            self._received(jobs)

    def _received(self, jobs: Sequence[Job]) -> None:
        full = len(jobs) >= self._options.size
        self._may_be_more = may_have_left_some(len(jobs), self._options.size) if self._delay is None else full
        self._events.emit(LocalQueueGetJobsComplete(pool_id=self._fetcher.pool_id, jobs=jobs))
        insert_in_order(self._held, jobs)
        if not self._wait_if_all_are_busy() and self._may_be_more:
            self._again = True
        self._wake(len(jobs))
        later = self._fetcher.look_again_in()
        if later is not None:
            self._after("look again", later, self.poll)
        if self._delay is not None and self._mode == POLLING:
            self._maybe_delay(len(jobs), full)
        self._due.set()

    def _wait_if_all_are_busy(self) -> bool:
        """Begin to wait, and to count the time to live, if more is held than the free slots take."""
        waiting = self._crew.free if self._crew is not None else 0
        if self._mode != POLLING or len(self._held) <= waiting:
            return False
        self._set_mode(WAITING)
        self._after("ttl", self._options.ttl, self._expire)
        return True

    def _all_handed_out(self) -> None:
        if self._mode == WAITING:
            self._cancel("ttl")
            self._set_mode(POLLING)
            self._want_fetch()
        elif self._again:  # a fetch had to wait until nothing was held
            self._due.set()

    def _want_fetch(self) -> None:
        if self._delay is not None and self._delay.active:
            self._delay.fetch_wanted = True
            return
        self._again = True
        self._at_rest.clear()
        self._due.set()

    def _rest_if_nothing_is_due(self) -> None:
        if not self._again or self._mode != POLLING:
            self._at_rest.set()

    # -- resting, expiring, giving back --------------------------------------------------------------------

    def _maybe_delay(self, job_count: int, full: bool) -> None:
        delay = self._delay
        if delay is None:
            return
        seconds = delay.starts_after(job_count, full=full)
        if seconds is None:
            return
        if self._again:
            self._again, delay.fetch_wanted = False, True
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
        if delay.announced(0):  # enough was announced while the fetch was under way
            self._abort_delay(delay)

    def _abort_delay(self, delay: RefetchDelay) -> None:
        self._events.emit(
            LocalQueueRefetchDelayAbort(
                pool_id=self._fetcher.pool_id, count=delay.count, abort_threshold=delay.abort_threshold
            )
        )
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
        if self._mode == WAITING and self._held:
            self._set_mode(TTL_EXPIRED)
            task = asyncio.get_running_loop().create_task(
                self._give_back(), name="graphile-worker local queue return"
            )
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _give_back(self) -> None:
        jobs, self._held = list(self._held), deque()
        if jobs:
            await surely(lambda: self._fetcher.give_back(jobs), self._clock, self._on_error)
            self._events.emit(LocalQueueReturnJobs(pool_id=self._fetcher.pool_id, jobs=jobs))

    def _set_mode(self, mode: str) -> None:
        old, self._mode = self._mode, mode
        self._events.emit(LocalQueueSetMode(pool_id=self._fetcher.pool_id, old_mode=old, new_mode=mode))

    def _wake(self, count: int) -> None:
        if self._crew is not None:
            self._crew.wake(count)

    def _after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Set the timer of this name; it replaces the one that was set before."""

        async def wait() -> None:
            await self._clock.sleep(seconds)
            if self._timers.get(name) is asyncio.current_task():
                del self._timers[name]
                action()

        self._cancel(name)
        self._timers[name] = asyncio.get_running_loop().create_task(
            wait(), name=f"graphile-worker local queue {name}"
        )

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

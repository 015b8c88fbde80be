"""The lanes of a pool, and what the pool does with all of them at once.

A lane is a fetcher, a source and slots. Lanes share the sessions, the sink, the executor and the locked
jobs of their pool. A slot talks to the source of its own lane only, so lanes cost a running job nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from ..clock import Clock
from ..errors import JobInterruptedError
from ..hooks import Events
from ..job import Job
from ..lane import FAIR
from ..options import WorkerOptions
from ..outcome import Finished, Interrupted
from ..queries.write_plan import Continuation
from .fetch.adaptive import AdaptiveSource
from .fetch.fetcher import Fetcher
from .fetch.local_queue import LocalQueue
from .fetch.source import JobSource
from .lane_plan import LanePlan
from .run.end_reason import EndReason
from .run.slots import Slot, Slots
from .write.sink import Sink

logger = logging.getLogger("graphile_worker.worker")


class PoolLane:
    """One lane of a pool."""

    __slots__ = ("fetcher", "plan", "slots", "source")

    def __init__(self, plan: LanePlan, fetcher: Fetcher, source: JobSource) -> None:
        self.plan = plan
        self.fetcher = fetcher
        self.source = source
        self.slots: Slots | None = None
        """None until the pool starts."""

    def continuation(self) -> Continuation | None:
        """What the next job of a freed queue must satisfy to run here; None if none may."""
        return self.fetcher.continuation() if self.source.can_continue_queue else None

    @property
    def has_free_slot(self) -> bool:
        return self.slots is not None and self.slots.free > 0


class AllSources:
    """The sources of all lanes."""

    def __init__(self, lanes: Sequence[PoolLane]) -> None:
        self._sources = [lane.source for lane in lanes]

    def pulse(self, count: int = 1) -> None:
        """Fetch soon in every lane: this many jobs were announced."""
        for source in self._sources:
            source.pulse(count)

    def poll(self) -> None:
        """Fetch soon in every lane, although no job was announced."""
        for source in self._sources:
            source.poll()

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the prefetched jobs for which `is_dropped` is true."""
        return [job for source in self._sources for job in source.drop(is_dropped)]

    async def release(self) -> None:
        """Stop fetching and return the prefetched jobs."""
        await asyncio.gather(*(source.release() for source in self._sources))

    @property
    def wanted_since(self) -> float | None:
        """Since when one has had a free slot without a successful fetch; may be read from any thread."""
        wanted = (source.wanted_since for source in self._sources)
        return min((since for since in wanted if since is not None), default=None)

    @property
    def is_quiet(self) -> bool:
        """Whether no job is prefetched, no fetch is in flight and none is due."""
        return all(source.is_quiet for source in self._sources)

    async def quiet(self) -> None:
        """Wait until no fetch is in flight or due."""
        for source in self._sources:
            await source.quiet()

    async def fetch_once(self) -> None:
        """Make a full fetch in every lane, and wait for all of them."""
        await asyncio.gather(*(source.fetch_once() for source in self._sources))


class AllSlots:
    """The slots of all lanes."""

    def __init__(self, slots: Sequence[Slots]) -> None:
        self._all = slots

    def start(self) -> None:
        """Start every slot."""
        for slots in self._all:
            slots.start()

    @property
    def running(self) -> list[Job]:
        """The jobs that run now; may be read from any thread."""
        return [job for slots in self._all for job in slots.running]

    @property
    def running_since(self) -> dict[int, float]:
        """Ids of running jobs and when each was started; may be read from any thread."""
        return {job_id: since for slots in self._all for job_id, since in slots.running_since.items()}

    def slot_of(self, job_id: int) -> Slot | None:
        """The slot that runs this job; None if none does."""
        return next((slot for slots in self._all if (slot := slots.slot_of(job_id)) is not None), None)

    @property
    def on_busy(self) -> Callable[[], None] | None:
        """Called when a slot wakes up; may be set from any thread."""
        return self._all[0].on_busy

    @on_busy.setter
    def on_busy(self, function: Callable[[], None] | None) -> None:
        for slots in self._all:
            slots.on_busy = function

    @property
    def is_idle(self) -> bool:
        """Whether every slot waits for a job."""
        return all(slots.is_idle for slots in self._all)

    async def idle(self) -> None:
        """Wait for the slots of each lane to be idle or ended; others may have become busy since."""
        for slots in self._all:
            await slots.idle()

    async def wait(self) -> None:
        """Wait until every slot has ended."""
        for slots in self._all:
            await slots.wait()

    @property
    def error(self) -> BaseException | None:
        """The error of which a slot died."""
        return next((slots.error for slots in self._all if slots.error is not None), None)

    def release(self) -> None:
        """Let every slot end after the job it runs."""
        for slots in self._all:
            slots.release()

    def pause(self) -> None:
        """Take no more jobs for now; running ones continue."""
        for slots in self._all:
            slots.pause()

    def resume(self) -> None:
        """Take jobs again."""
        for slots in self._all:
            slots.resume()

    def cancel(self, reason: str) -> None:
        """Cancel every running task."""
        for slots in self._all:
            slots.cancel(reason)

    def cancel_lost(self, is_lost: Callable[[Job], bool]) -> None:
        """Cancel the jobs that other workers have taken over."""
        for slots in self._all:
            slots.cancel_lost(is_lost)

    def end_job(self, job_id: int, cause: EndReason, grace: float) -> bool:
        """End one running job for this cause; returns whether it runs here. See `Slots.end_job`."""
        return any(slots.end_job(job_id, cause, grace) for slots in self._all)

    def abandon(self, reason: str) -> list[Finished]:
        """Cancel running jobs without waiting for them, and return them as interrupted."""
        return [finished for slots in self._all for finished in slots.abandon(reason)]


class LaneContinuation:
    """Implements the sink's `QueueContinuation`: the next job of a queue runs in the lane of its task."""

    def __init__(self, lanes: Sequence[PoolLane], put: Callable[[Finished], None]) -> None:
        self._lanes = lanes
        self._put = put

    def terms(self) -> Continuation | None:
        """What the next job of a queue must satisfy; None if other jobs may come first."""
        if len(self._lanes) == 1:
            return self._lanes[0].continuation()
        found = [terms for lane in self._lanes if lane.has_free_slot and (terms := lane.continuation())]
        if not found:
            return None
        tasks = {number: name for terms in found for number, name in terms.tasks.items()}
        return replace(found[0], tasks=tasks)

    def adopt(self, jobs: Sequence[Job]) -> None:
        """Run these jobs next, or return them if the pool is stopping."""
        if self._lanes[0].source.is_released:
            for job in jobs:
                self._put(Finished(job, Interrupted(JobInterruptedError("")), "", 0.0))
        elif len(self._lanes) == 1:
            self._lanes[0].source.adopt(jobs)
        else:
            for lane in self._lanes:
                own = [job for job in jobs if job.task_identifier in lane.plan.tasks]
                if own:
                    lane.source.adopt(own)
                lane.source.reconsider()

    def cap_priority(self, above: int) -> None:
        """Start no job of a worse priority, until a write has locked the next job of a queue."""
        for lane in self._lanes:
            lane.source.cap_priority(above)

    def queues_freed(self, above: int) -> None:
        """Fetch: the next job of a freed queue may be ready."""
        for lane in self._lanes:
            lane.source.queues_freed(above)


def choose_fetcher(plan: LanePlan) -> Callable[..., Fetcher]:
    """What locks the jobs of a lane: a class, or a call that makes one."""
    if plan.limits:
        from .fetch.limited import LimitedFetcher

        return partial(LimitedFetcher, limits=plan.limits)
    if plan.order == FAIR:
        from .fetch.limited import FairFetcher

        return FairFetcher
    return Fetcher


def choose_source(
    options: WorkerOptions,
    plan: LanePlan,
    fetcher: Fetcher,
    events: Events,
    clock: Clock,
    *,
    on_error: Callable[[BaseException], None],
    frees_queues: Callable[[], bool],
) -> JobSource:
    """Node's local queue for the main lane if the options ask for it, else the adaptive source.

    Forbidden flags must be read at every fetch, so they bypass the local queue, as in Node.
    """
    local_queue = options.local_queue
    if local_queue is not None and plan.is_main and not fetcher.has_flags:
        if local_queue.size < plan.concurrency:
            logger.warning(
                "local_queue.size is %d, less than concurrency, %d: some slots will often have no job",
                local_queue.size,
                plan.concurrency,
            )
        return LocalQueue(fetcher, events, clock, local_queue, on_error=on_error)
    return AdaptiveSource(
        fetcher,
        events,
        clock,
        concurrency=plan.concurrency,
        prefetch=0.0 if local_queue is not None else options.prefetch,
        on_error=on_error,
        frees_queues=frees_queues,
    )


async def drain(source: AllSources, slots: AllSlots, sink: Sink, is_stopping: Callable[[], bool]) -> None:
    """Fetch and run jobs, named queues to their end, until a fetch finds nothing; or until the pool stops."""
    while True:
        before = sink.accepted
        await source.fetch_once()
        await _until_settled(source, slots, sink, is_stopping)
        if sink.accepted == before or is_stopping():
            return


async def _until_settled(
    source: AllSources, slots: AllSlots, sink: Sink, is_stopping: Callable[[], bool]
) -> None:
    """Until nothing runs, nothing is prefetched and everything is written."""
    while True:
        await slots.idle()
        await source.quiet()
        await sink.flush()
        # The last write may have locked the next job of a queue, and that job may be running.
        if (source.is_quiet and slots.is_idle and sink.is_written) or is_stopping():
            return

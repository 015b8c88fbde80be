"""The lanes of a pool, and what the pool does with all of them at once.

A lane is a fetcher, a source and slots. Lanes share the sessions, the sink, the executor and the locked
jobs of their pool. A slot talks to the source of its own lane only, so lanes cost a running job nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..database.statements.fetch import register_tasks
from ..database.statements.limits import register_limits
from ..database.statements.write_plan import Continuation
from ..values.concurrency import FAIR
from ..values.job import Job
from ..values.outcome import Finished
from .context import FailureLog, PoolContext
from .fetch.adaptive import AdaptiveSource
from .fetch.fetcher import Fetcher
from .fetch.local_queue import LocalQueue
from .fetch.source import JobSource
from .fetch.wide_queues import WideQueues
from .plan import LanePlan, PoolPlan
from .run.execute import Executor
from .run.outcomes import EndReason
from .run.slots import Slots
from .run.termination import LeakedTasks, Slot
from .session import Sessions
from .write.sink import Sink

if TYPE_CHECKING:
    from .fetch.limited import ReadyTasks

logger = logging.getLogger("graphile_worker.worker")


class PoolLane(msgspec.Struct, eq=False):
    """One lane of a pool."""

    plan: LanePlan
    fetcher: Fetcher
    source: JobSource
    slots: Slots

    def resize(self, count: int) -> None:
        """Have this many slots. Running jobs go on, also those above the number."""
        self.slots.resize(count)
        self.source.resize(count)

    def continuation(self) -> Continuation | None:
        """What the next job of a freed queue must satisfy to run here; None if none may."""
        return self.fetcher.continuation() if self.source.can_continue_queue else None


class Lanes:
    """All lanes of a pool.

    Parts that the lanes need refer to them as well, so they are made empty and built when those parts exist.
    """

    def __init__(self, context: PoolContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions
        self._all: list[PoolLane] = []
        self._limited: dict[str, PoolLane] = {}  # by task identifier
        self.is_started = False
        """Whether slots were started; not whether they still run."""

    def build(
        self,
        plan: PoolPlan,
        sink: Sink,
        executor: Executor,
        leaked_tasks: LeakedTasks,
        wide_queues: WideQueues,
    ) -> None:
        """Make the lanes of this plan."""
        context, ready = self._context, None
        if sum(1 for lane in plan.lanes if lane.limits) > 1:  # for one alone it would be another statement
            from .fetch.limited import ReadyTasks

            ready = ReadyTasks(context, self._sessions.fetch)
        for lane in plan.lanes:
            fetcher = self._make_fetcher(plan, lane, sink, wide_queues, ready)
            source = _make_source(context, plan, lane, fetcher, sink)
            slots = Slots(context, lane.concurrency, lane.tasks, source, executor, sink.put, leaked_tasks)
            self._all.append(PoolLane(lane, fetcher, source, slots))
        self._limited = {name: lane for lane in self._all if lane.plan.limits for name in lane.plan.tasks}

    def _make_fetcher(
        self, pool: PoolPlan, lane: LanePlan, sink: Sink, wide_queues: WideQueues, ready: ReadyTasks | None
    ) -> Fetcher:
        which = "jobs" if lane.is_main else f"jobs of the lane {lane.name!r}"
        failures = FailureLog(
            self._context, f"{which} cannot be fetched: %s; trying again", f"{which} are fetched again"
        )
        parts = (self._context, self._sessions.fetch, lane.tasks)
        options = {
            "flags": pool.flags,
            "has_queue_indexes": pool.has_queue_indexes,
            "failures": None if pool.once else failures,
            "held_batches": sink.held_batches if pool.may_hold_in(lane) else None,
            "wide_queues": wide_queues,
        }
        if lane.limits:
            from .fetch.limited import LimitedFetcher

            return LimitedFetcher(*parts, limits=lane.limits, ready=ready, **options)  # type: ignore[arg-type]
        if lane.order == FAIR:
            from .fetch.limited import FairFetcher

            return FairFetcher(*parts, **options)
        return Fetcher(*parts, **options)  # type: ignore[arg-type]

    def start(self) -> None:
        """Start to fetch and to run jobs."""
        self.is_started = True
        for lane in self._all:
            lane.slots.start()
        for lane in self._all:
            lane.source.start(lane.slots)

    def __iter__(self) -> Iterator[PoolLane]:
        return iter(self._all)

    # -- tasks ---------------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Read the ids of the tasks of every lane, and write limits that are missing."""
        wanted = [(lane.fetcher, lane.fetcher.identifiers) for lane in self._all]
        schema, names = self._context.schema, [name for _, names in wanted for name in names]
        tasks = await self._sessions.fetch.run(lambda connection: register_tasks(connection, schema, names))
        ids = {name: task_id for task_id, name in tasks.items()}
        for fetcher, identifiers in wanted:
            fetcher.registered(ids, identifiers)
        await self.register_limits(only_missing=True)

    async def register_limits(self, *, only_missing: bool = False) -> None:
        """Write the bounds of this worker's limits: the last start wins."""
        limits = {limit: tasks for lane in self._all for limit, tasks in lane.plan.limits.items()}
        if limits:
            schema = self._context.schema
            await self._sessions.run(
                lambda connection: register_limits(connection, schema, limits, only_missing=only_missing)
            )

    def has_limit(self, identifier: str) -> bool:
        """Whether a lane keeps the limits of this task."""
        return identifier in self._limited

    def set_tasks(self, identifiers: Collection[str]) -> None:
        """Fetch jobs of these tasks from now on, each in its lane; those of no lane in the first."""
        first, *others = self._all
        further = {name for lane in others for name in lane.plan.tasks}
        first.fetcher.set_tasks([name for name in identifiers if name not in further])
        for lane in others:
            lane.fetcher.set_tasks([name for name in lane.plan.tasks if name in identifiers])
        self.poll()

    # -- fetching ------------------------------------------------------------------------------------------

    def pulse(self, count: int = 1) -> None:
        """Fetch soon in every lane: this many jobs were announced."""
        for lane in self._all:
            lane.source.pulse(count)

    def poll(self) -> None:
        """Fetch soon in every lane, although no job was announced."""
        for lane in self._all:
            lane.source.poll()

    def jobs_freed(self) -> None:
        """Fetch soon: jobs were returned, unlocked or rescheduled, and may have been due for long."""
        for lane in self._all:
            lane.fetcher.jobs_freed()
        self.poll()

    def limits_changed(self) -> None:
        """Fetch where a limit left no room: another pool has left some, or the bounds have changed."""
        for lane in self._all:
            if lane.fetcher.is_refused:
                lane.source.poll()

    def jobs_written(self, finished: Sequence[Finished]) -> None:
        """Fetch where jobs have ended that a limit counts: there may be room for others."""
        if self._limited:
            for name in {each.job.task_identifier for each in finished} & self._limited.keys():
                lane = self._limited[name]
                if lane.fetcher.made_room():
                    lane.source.poll()

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the prefetched jobs for which `is_dropped` is true."""
        return [job for lane in self._all for job in lane.source.drop(is_dropped)]

    @property
    def wanted_since(self) -> float | None:
        """Since when one has had a free slot without a successful fetch; may be read from any thread."""
        wanted = (lane.source.wanted_since for lane in self._all)
        return min((since for since in wanted if since is not None), default=None)

    @property
    def is_quiet(self) -> bool:
        """Whether no job is prefetched, no fetch is in flight and none is due."""
        return all(lane.source.is_quiet for lane in self._all)

    async def quiet(self) -> None:
        """Wait until no fetch is in flight or due."""
        for lane in self._all:
            await lane.source.quiet()

    # -- the next job of a named queue ---------------------------------------------------------------------

    def terms(self) -> Continuation | None:
        """What the next job of a queue must satisfy; None if other jobs may come first."""
        if len(self._all) == 1:
            return self._all[0].continuation()
        found = [terms for lane in self._all if lane.slots.free > 0 and (terms := lane.continuation())]
        if not found:
            return None
        tasks = {number: name for terms in found for number, name in terms.tasks.items()}
        return replace(found[0], tasks=tasks)

    def adopt(self, jobs: Sequence[Job]) -> None:
        """Run these jobs next, each in the lane of its task; or return them if the pool is stopping."""
        first = self._all[0]
        if first.source.is_released:
            first.slots.refuse(jobs)
        elif len(self._all) == 1:
            first.source.adopt(jobs)
        else:
            for lane in self._all:
                own = [job for job in jobs if job.task_identifier in lane.plan.tasks]
                if own:
                    lane.source.adopt(own)
                lane.source.reconsider()

    def follow(self, job: Job) -> None:
        """Run a job whose queue has just become free for it; only the pool's only lane has such jobs."""
        self._all[0].source.follow(job)

    def cap_priority(self, above: int) -> None:
        """Start no job of a worse priority, until a write has locked the next job of a queue."""
        for lane in self._all:
            lane.source.cap_priority(above)

    def queues_freed(self, above: int) -> None:
        """Fetch: the next job of a freed queue may be ready."""
        for lane in self._all:
            lane.source.queues_freed(above)

    # -- slots ---------------------------------------------------------------------------------------------

    @property
    def slots(self) -> dict[str, int]:
        """How many slots each lane has; may be read from any thread."""
        return {lane.plan.name: lane.slots.count for lane in self._all}

    def resize(self, name: str, count: int) -> None:
        """Give a lane another number of slots, until the pool ends."""
        next(lane for lane in self._all if lane.plan.name == name).resize(count)

    def has_free_slots(self, tasks: Mapping[int, str]) -> bool:
        """Whether a slot could take a job now of the lane that fetches these tasks."""
        return any(lane.slots.free > 0 for lane in self._all if lane.fetcher.tasks is tasks)

    @property
    def running(self) -> list[Job]:
        """The jobs that run now; may be read from any thread."""
        return [job for lane in self._all for job in lane.slots.running]

    @property
    def running_since(self) -> dict[int, float]:
        """Ids of running jobs and when each was started; may be read from any thread."""
        return {job_id: since for lane in self._all for job_id, since in lane.slots.running_since.items()}

    def slot_of(self, job_id: int) -> Slot | None:
        """The slot that runs this job; None if none does."""
        return next((slot for lane in self._all if (slot := lane.slots.slot_of(job_id)) is not None), None)

    @property
    def on_busy(self) -> Callable[[], None] | None:
        """Called when a slot wakes up; may be set from any thread."""
        return self._all[0].slots.on_busy

    @on_busy.setter
    def on_busy(self, function: Callable[[], None] | None) -> None:
        for lane in self._all:
            lane.slots.on_busy = function

    @property
    def is_idle(self) -> bool:
        """Whether every slot waits for a job."""
        return all(lane.slots.is_idle for lane in self._all)

    async def ended(self) -> None:
        """Wait until every slot has ended."""
        for lane in self._all:
            await lane.slots.wait()

    def pause(self) -> None:
        """Take no more jobs for now; running ones continue."""
        for lane in self._all:
            lane.slots.pause()

    def resume(self) -> None:
        """Take jobs again."""
        for lane in self._all:
            lane.slots.resume()

    def end_job(self, job_id: int, cause: EndReason, grace: float) -> bool:
        """End one running job for this cause; returns whether it runs here. See `Slots.end_job`."""
        return any(lane.slots.end_job(job_id, cause, grace) for lane in self._all)


def _make_source(
    context: PoolContext, pool: PoolPlan, plan: LanePlan, fetcher: Fetcher, sink: Sink
) -> JobSource:
    """Node's local queue for the main lane if the options ask for it, else the adaptive source.

    Rules for flags must be read at every fetch, so they bypass the local queue, as in Node.
    """
    local_queue = context.options.local_queue
    if local_queue is not None and plan.is_main and not pool.flags.is_set:
        if local_queue.size < plan.concurrency:
            logger.warning(
                "local_queue.size is %d, less than concurrency, %d: some slots will often have no job",
                local_queue.size,
                plan.concurrency,
            )
        return LocalQueue(context, fetcher, local_queue)
    prefetch = 0.0 if local_queue is not None else context.options.prefetch
    return AdaptiveSource(context, fetcher, sink, concurrency=plan.concurrency, prefetch=prefetch)


async def drain(context: PoolContext, lanes: Lanes, sink: Sink) -> None:
    """Fetch and run jobs, named queues to their end, until a full fetch finds nothing or the pool stops."""
    while True:
        before = sink.accepted
        await asyncio.gather(*(lane.source.fetch_once() for lane in lanes))
        await _until_settled(context, lanes, sink)
        if sink.accepted == before or context.owner.is_stopping:
            return


async def _until_settled(context: PoolContext, lanes: Lanes, sink: Sink) -> None:
    """Until nothing runs, nothing is prefetched and everything is written."""
    while True:
        for lane in lanes:
            await lane.slots.idle()
        await lanes.quiet()
        if not (lanes.is_idle or context.owner.is_stopping):
            continue  # that fetch has found jobs, and a flush would end their batch
        await sink.flush()
        # The last write may have locked the next job of a queue, and that job may be running.
        if (lanes.is_quiet and lanes.is_idle and sink.is_written) or context.owner.is_stopping:
            return

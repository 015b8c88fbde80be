"""LimitedFetcher: locks jobs of tasks that have limits, as many as the limits leave room for.

If there is no room, the lane must learn when to fetch again. A rate says it itself: when the next job may
start. Room among the running jobs comes from a job that ends. The pool that ran it fetches after it has
written the outcome, and so uses the room itself. If it leaves some, and another pool was refused since, the
fetch notifies that pool. So the room of a limit is used at once, by any pool, and a notification is sent only
if another pool has to be told. Polling finds what is left: a limit that a stopping pool has freed.

A lane that knows of no ready job asks `ReadyTasks` first, together with all others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from ...database.connections.connection import Connection
from ...database.connections.errors import explained, sqlstate_of
from ...database.connections.sqlstates import INSUFFICIENT_PRIVILEGE, UNDEFINED_FUNCTION
from ...database.statements.fetch import FairJobs, get_fair_jobs
from ...database.statements.limits import (
    LimitState,
    admit_held_jobs,
    get_limited_jobs,
    ready_tasks,
    register_limits,
)
from ...hooks.events import PoolJobsFetched
from ...values.concurrency import Limit
from ...values.job import Job
from ..context import PoolContext
from ..held.batches import LimitsOfBatches
from ..held.policy import FEWEST
from ..session import Session
from .fetcher import Fetcher
from .plan import FAIR, HELD, WHOLE, WIDE, Demand, Fetch

SHORTEST_WAIT = 0.01  # seconds: a fast rate yields several jobs per fetch
BUSY_WAIT = (0.002, 0.010)  # seconds, chosen at random: a fetch of another pool takes about that long
BUSY_ATTEMPTS = 50
AFTER_BUSY = 0.1  # seconds
SHARE_OF_BATCH = 4  # a held batch has at most a quarter of the jobs that may run: so that several have room
LONGEST_DELAY = 0.2  # seconds from the moment when a rate counts a job to its start, as the function says
ADMISSIONS = 3  # attempts while the limits are in use
ADMISSION_WAIT = (0.0005, 0.0015)  # seconds, chosen at random
MANY = 1000  # jobs that one statement reads
LOOKS = 10  # statements at most, while each is full; then the remaining tasks are assumed to be ready
MOST_STATEMENTS = 50  # per fetch, if all queues that are visited are busy

logger = logging.getLogger("graphile_worker.worker")


class LimitedFetcher(Fetcher):
    """Fetches through a database function that keeps the limits."""

    may_prefetch = False  # until the database has said that it keeps the rate
    may_continue_queues = False
    may_overtake = False  # each fetch takes from the limits

    def __init__(
        self,
        context: PoolContext,
        *arguments: Any,
        limits: Mapping[Limit, Sequence[str]],
        ready: ReadyTasks | None,
        **options: Any,
    ) -> None:
        """`limits`: those of the lane, each with the identifiers of its tasks in this worker.

        `ready`: fetch only if this finds ready jobs; None to fetch without asking.
        """
        super().__init__(context, *arguments, is_limited=True, **options)
        self._limits = limits
        self._names = [limit.name for limit in limits]
        self._state = LimitState()
        self._fetches = {WHOLE: self._get_jobs, WIDE: partial(self._get_jobs, is_wide=True)}
        self._ready = ready
        if ready is not None:
            ready.add(self)
        has_rate = any(limit.rate is not None for limit in limits)
        self._may_hold = not has_rate or context.options.hold <= LONGEST_DELAY
        self._is_counted = False  # whether the number of running jobs is limited
        self._is_fetching = False
        self._has_made_room = False
        self._has_only_asked = False  # instead of the last fetch
        self._seen = 0  # ready jobs that were reported to it and that it has not tried to fetch
        self.knows_more = False
        """Whether jobs are probably ready that it could not lock: it fetches without asking."""

    def made_room(self) -> bool:
        """Jobs of this lane have ended; if they are counted, a fetch must follow: it may tell other pools."""
        self._has_made_room = self._has_made_room or self._is_counted
        return self._is_counted

    @property
    def is_refused(self) -> bool:
        """Whether the last fetch found less room than it wanted, or the present one may.

        The news that there is room again may be faster than the answer to the fetch that was refused.
        """
        return self._is_fetching or self._state.is_full or self._state.wait is not None

    async def register(self) -> None:
        """Read the ids of the tasks, and write limits that are missing: the schema may be a new one."""
        await super().register()
        await self._session.run(
            lambda connection: register_limits(connection, self._schema, self._limits, only_missing=True)
        )

    async def fetch(
        self, limit: int, *, announced: bool = False, may_hold: bool = False, up_to: int | None = None
    ) -> Sequence[Job]:
        """Lock up to `limit` jobs. Waits a little while fetches of other pools use the same limits."""
        self._is_fetching = True
        try:
            for _ in range(BUSY_ATTEMPTS):
                last = self._state
                jobs = await super().fetch(limit, announced=announced, may_hold=may_hold, up_to=up_to)
                if self._state is last:  # every task is paused, and nothing was sent
                    break
                if self._state.is_missing:
                    await self.register()
                elif not self._state.is_busy:
                    break
                else:
                    await asyncio.sleep(random.uniform(*BUSY_WAIT))  # noqa: S311
        finally:
            self._is_fetching = False
        return jobs

    async def _fetch(self, demand: Demand) -> Sequence[Job]:
        if self._ready is not None and not (self._has_made_room or self.knows_more or self._state.is_busy):
            self._seen = await self._ready.count(self, demand)
            self._has_only_asked = not self._seen
            if self._has_only_asked:
                if self._state.wait is not None:
                    self._state = replace(self._state, wait=None)  # there is nothing to wait for
                return ()
            demand = replace(demand, tasks=self._tasks)  # their ids may be new
        self._has_only_asked = False
        has_made_room, self._has_made_room = self._has_made_room, False
        try:
            jobs = await super()._fetch(demand)
        except BaseException:
            self._has_made_room = self._has_made_room or has_made_room
            raise
        if not self._state.is_busy:
            found, seen, self._seen = len(jobs), self._seen, 0
            is_left = found < seen or super().may_have_left_some(found, demand.limit)
            self.knows_more = is_left or (self.knows_more and found >= self._state.room)
        return jobs

    async def _answer(self, fetch: Fetch, demand: Demand) -> Sequence[Job] | None:
        jobs = await super()._answer(fetch, demand)
        might_hold = self.held_batches if fetch.kind == WHOLE and demand.may_hold else None
        if might_hold is not None and any(job.job_queue_id is not None for job in jobs or ()):
            might_hold.hold_less()  # a batch has none of a queue
        return jobs

    async def _hold(
        self, terms: dict[str, Any], limits: LimitsOfBatches | None = None
    ) -> Sequence[Job] | None:
        bound = self._state.bound
        limit: int = terms["limit"] if bound is None else min(terms["limit"], bound // SHARE_OF_BATCH)
        if not self._may_hold or limit < FEWEST:
            return None
        return await super()._hold(terms | {"limit": limit}, self)

    async def admit(self, number: int, job_ids: Sequence[int]) -> Sequence[str] | None:
        """See `LimitsOfBatches`."""
        schema, pool_id, names = self._schema, self.pool_id, self._names
        for attempt in range(ADMISSIONS):
            if attempt:
                await asyncio.sleep(random.uniform(*ADMISSION_WAIT))  # noqa: S311
            try:
                state = await self._session.run(
                    lambda connection: admit_held_jobs(
                        connection, schema, pool_id=pool_id, number=number, job_ids=job_ids, limits=names
                    )
                )
            except Exception as error:
                if sqlstate_of(error) not in (INSUFFICIENT_PRIVILEGE, UNDEFINED_FUNCTION):
                    raise
                self._may_hold = False
                reason = explained(error)
                logger.warning("jobs with the limit %s are not held: %s", " + ".join(names), reason)
                return None
            if not state.is_busy:
                break
        if state.room < len(job_ids):
            return None
        self._learn(state)
        self._plan.room = None  # the batch was not cut short by it
        return names if state.is_counted else ()

    async def _get_jobs(
        self, connection: Connection, schema: Any, *, limit: int, **arguments: Any
    ) -> Sequence[Job]:
        jobs, state = await get_limited_jobs(connection, schema, limit=limit, limits=self._names, **arguments)
        self._learn(state)
        return jobs

    def _learn(self, state: LimitState) -> None:
        self._state = state
        self._plan.room = state.room
        self.may_prefetch = state.may_prefetch
        if not (state.is_busy or state.is_missing):  # then it tells nothing else
            self._is_counted = state.is_counted

    def may_have_left_some(self, found: int, limit: int) -> bool:
        if self._last_kind == HELD:
            return super().may_have_left_some(found, limit)
        if self._state.is_busy or found >= self._state.room < limit:
            return False  # there is no room now
        return super().may_have_left_some(found, limit)

    def full_fetch_in(self) -> float | None:
        if self._ready is not None and self._has_only_asked:
            return self._ready.full_fetch_in()
        waits = [super().full_fetch_in(), AFTER_BUSY if self._state.is_busy else None]
        if self._state.wait is not None:
            waits.append(max(self._state.wait, SHORTEST_WAIT))
        return min((wait for wait in waits if wait is not None), default=None)

    async def _are_ids_new(self, *, announced: bool) -> bool:
        if self._has_only_asked:  # they were read for all lanes together, if necessary
            return False
        return await super()._are_ids_new(announced=announced)

    def forget_watermarks(self) -> None:
        super().forget_watermarks()
        if self._ready is not None:
            self._ready.forget_watermarks()

    def forget(self) -> None:
        super().forget()
        if self._ready is not None:
            self._ready.forget()

    def jobs_freed(self) -> None:
        super().jobs_freed()
        if self._ready is not None:
            self._ready.jobs_freed()

    async def return_jobs(self, jobs: Sequence[Job]) -> None:
        await super().return_jobs(jobs)
        self.jobs_freed()


class ReadyTasks(Fetcher):
    """Finds ready jobs and locks none.

    Each limit has its own lane and fetch, so hundreds of limits would be hundreds of statements whenever
    a job is announced, and at every poll. So lanes that know of no job ask here first. All that ask while
    a statement is in flight share the next one, and only those with ready jobs fetch. Like a fetch, the
    statement starts at watermarks while reading past the jobs of other tasks is slow.
    """

    def __init__(self, context: PoolContext, session: Session) -> None:
        super().__init__(context, session, (), has_queue_indexes=False)
        self._lanes: list[LimitedFetcher] = []
        self._found: dict[int, int] = {}  # ready jobs by task, until their lane asks
        self._current: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        self._was_announced = False

    def add(self, lane: LimitedFetcher) -> None:
        """Ask for the tasks of this lane, too."""
        self._lanes.append(lane)

    async def count(self, lane: LimitedFetcher, demand: Demand) -> int:
        """How many jobs of a lane are ready, at least; 0 if none is."""
        found = self._take(lane.tasks)
        if not found:
            self._was_announced = self._was_announced or demand.announced
            await self._ask_together(demand)
            found = self._take(lane.tasks)
        return found

    def _take(self, tasks: Mapping[int, str]) -> int:
        return sum(self._found.pop(task_id, 0) for task_id in tasks)

    async def _ask_together(self, demand: Demand) -> None:
        """Wait for the answer to a statement that is sent after this call."""
        if self._next is None or self._next.done():  # cancelled by others, before it began
            self._next = asyncio.ensure_future(self._ask_after(self._current, demand))
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)  # a lane that is released must not end it for the others

    async def _ask_after(self, current: asyncio.Future[None] | None, demand: Demand) -> None:
        if current is not None:
            await asyncio.wait((current,))
        self._current, self._next = self._next, None
        announced, self._was_announced = self._was_announced, False
        await self._ask(announced, demand.now)
        if not self._found and await self._are_ids_new(announced=announced):
            await self._ask(announced, demand.now)

    async def _read_ids(self) -> None:
        self._identifiers = tuple(name for lane in self._lanes for name in lane.identifiers)
        await super()._read_ids()

    def registered(self, ids: Mapping[str, int], identifiers: Sequence[str]) -> None:
        super().registered(ids, identifiers)
        for lane in self._lanes:
            if all(name in ids for name in lane.identifiers):
                lane.registered(ids, lane.identifiers)

    async def _ask(self, announced: bool, now: datetime | None) -> None:
        tasks = {
            task_id: name
            for lane in self._lanes
            if not lane.knows_more
            for task_id, name in lane.tasks.items()
        }
        if not tasks:
            return
        demand = Demand(MANY, tasks, announced, now=now)
        await self._fetch(demand)
        rest = demand.tasks
        for look in range(LOOKS):
            if not self._plan.has_left_some:
                return
            # Not by the plan: its watermarks are those of all tasks.
            rest = {task_id: name for task_id, name in rest.items() if task_id not in self._found}
            if look < LOOKS - 1:
                await self._answer(Fetch(WHOLE, MANY), Demand(MANY, rest, now=demand.now))
            else:
                self._found |= dict.fromkeys(rest, 1)

    async def _answer(self, fetch: Fetch, demand: Demand) -> Sequence[Job]:
        """What is ready of these tasks; the plan looks only at what it has in common with jobs."""
        found = await self._session.run(
            partial(
                ready_tasks,
                schema=self._schema,
                tasks=demand.tasks,
                limit=fetch.limit,
                now=demand.now,
                ranges=fetch.ranges,
            )
        )
        queued = sum(ready.jobs for ready in found if ready.job_queue_id is not None)
        plain = sum(ready.jobs for ready in found) - queued
        has_left_some = self._plan.has_left_some = max(plain, queued) >= fetch.limit
        for ready in found:
            self._found[ready.task_id] = (
                MANY if has_left_some else self._found.get(ready.task_id, 0) + ready.jobs
            )
        return cast("Sequence[Job]", found)

    def _give_up(self, jobs: Sequence[Job]) -> None:
        """Nothing was locked."""

    def _emit(self, fetch: Fetch, count: int, seconds: float) -> None:
        """Nothing was fetched."""


def _retrieve(future: asyncio.Future[None]) -> None:
    """The lanes raise its error, unless all of them have been released."""
    if not future.cancelled():
        future.exception()


class FairFetcher(Fetcher):
    """Locks the next jobs of the queues that are next.

    Each fetch starts after the queue where the last one ended. A queue with many jobs gets no more turns
    than a queue with one. Nothing is stored: each worker takes turns by itself.
    """

    may_overtake = False  # between queues, priorities do not count
    may_continue_queues = False  # the next turn is that of another queue

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._last_queue = 0

    async def _fetch(self, demand: Demand) -> Sequence[Job]:
        began = time.monotonic()
        for _ in range(MOST_STATEMENTS):
            found = await self._session.run_under_lease(
                partial(
                    get_fair_jobs,
                    schema=self._schema,
                    pool_id=self.pool_id,
                    tasks=demand.tasks,
                    limit=demand.limit,
                    flags=demand.flags,
                    now=demand.now,
                    after=self._last_queue,
                    is_wide=self.is_wide,
                )
            )
            if not isinstance(found, FairJobs):  # the lease ended before the answer came
                break
            self._last_queue = found.last_queue
            if found or found.is_whole:
                break
        if found and self._wide_queues is not None:
            self._wide_queues.notice(found)
        if PoolJobsFetched in self._events.observed:
            self._emit(Fetch(FAIR, demand.limit), len(found), time.monotonic() - began)
        return found

"""ReadyTasks: which limited lanes of a pool have jobs to fetch, asked for all of them at once.

Each limit has its own lane and fetch, so hundreds of limits would be hundreds of statements whenever a job
is announced, and at every poll. So lanes that know of no job ask here first. All that ask while a
statement is in flight share the next one, and only those with ready jobs fetch. Like a fetch, the statement
starts at watermarks while reading past the jobs of other tasks is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..job import Job
from ..queries.limits import ready_tasks
from .fetch_plan import WHOLE, Demand, Fetch
from .fetcher import Fetcher

if TYPE_CHECKING:
    from .limited_fetcher import LimitedFetcher

MANY = 1000  # jobs that one statement reads
LOOKS = 10  # statements at most, while each is full; then the remaining tasks are assumed to be ready


class ReadyTasks(Fetcher):
    """Finds ready jobs and locks none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, identifiers=(), has_queue_indexes=False)
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

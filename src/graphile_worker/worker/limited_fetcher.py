"""LimitedFetcher: locks jobs of tasks that have limits, as many as the limits leave room for.

If there is no room, the lane must learn when to fetch again. A rate says it itself: when the next job may
start. Room among the running jobs comes from a job that ends. The pool that ran it fetches after it has
written the outcome, and so uses the room itself. If it leaves some, and another pool was refused since, the
fetch notifies that pool. So the room of a limit is used at once, by any pool, and a notification is sent only
if another pool has to be told. Polling finds what is left: a limit that a stopping pool has freed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..db.connection import Connection
from ..job import Job
from ..limit import Limit
from ..queries.limits import LimitState, get_limited_jobs, register_limits
from .fetch_plan import WHOLE, WIDE, FetchPlan
from .fetcher import Fetcher

SHORTEST_WAIT = 0.01  # seconds: a fast rate yields several jobs per fetch
BUSY_WAIT = (0.002, 0.010)  # seconds, chosen at random: a fetch of another pool takes about that long
BUSY_ATTEMPTS = 50
AFTER_BUSY = 0.1  # seconds


class LimitedFetcher(Fetcher):
    """Fetches through a database function that keeps the limits."""

    may_prefetch = False  # until the database has said that it keeps the rate
    may_continue_queues = False

    def __init__(self, *arguments: Any, limits: Mapping[Limit, Sequence[str]], **options: Any) -> None:
        """`limits`: those of the lane, each with the identifiers of its tasks in this worker."""
        super().__init__(*arguments, **options)
        self._limits = limits
        self._names = [limit.name for limit in limits]
        self._state = LimitState()
        self._plan = FetchPlan(has_queue_indexes=False)  # one statement for everything
        self._fetches = {WHOLE: self._get_jobs, WIDE: partial(self._get_jobs, is_wide=True)}

    @property
    def is_counted(self) -> bool:
        """Whether the number of running jobs is limited."""
        return self._state.is_counted

    @property
    def is_refused(self) -> bool:
        """Whether the last fetch found less room than it wanted."""
        return self._state.is_full or self._state.wait is not None

    async def register(self) -> None:
        """Read the ids of the tasks, and write limits that are missing: the schema may be a new one."""
        await super().register()
        await self._session.run(
            lambda connection: register_limits(connection, self._schema, self._limits, only_missing=True)
        )

    async def fetch(self, limit: int, *, announced: bool = False, may_hold: bool = False) -> Sequence[Job]:
        """Lock up to `limit` jobs. Waits a little while fetches of other pools use the same limits."""
        for _ in range(BUSY_ATTEMPTS):
            last = self._state
            jobs = await super().fetch(limit, announced=announced, may_hold=may_hold)
            if self._state is last:  # every task is paused, and nothing was sent
                break
            if self._state.is_missing:
                await self.register()
            elif not self._state.is_busy:
                break
            else:
                await asyncio.sleep(random.uniform(*BUSY_WAIT))  # noqa: S311
        return jobs

    async def _get_jobs(
        self, connection: Connection, schema: Any, *, limit: int, **arguments: Any
    ) -> Sequence[Job]:
        jobs, self._state = await get_limited_jobs(
            connection, schema, limit=limit, limits=self._names, **arguments
        )
        self._plan.room = self._state.room
        self.may_prefetch = self._state.may_prefetch
        return jobs

    def may_have_left_some(self, found: int, limit: int) -> bool:
        if self._state.is_busy or found >= self._state.room < limit:
            return False  # there is no room now
        return super().may_have_left_some(found, limit)

    def full_fetch_in(self) -> float | None:
        waits = [super().full_fetch_in(), AFTER_BUSY if self._state.is_busy else None]
        if self._state.wait is not None:
            waits.append(max(self._state.wait, SHORTEST_WAIT))
        return min((wait for wait in waits if wait is not None), default=None)

"""FairFetcher: serves named queues in turn, for lanes with `order="fair"`.

Each fetch starts after the queue where the last one ended. A queue with many jobs gets no more turns than a
queue with one. Nothing is stored: each worker has a round of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..hooks.events import PoolJobsFetched
from ..job import Job
from ..queries.fetch import FairJobs, get_fair_jobs
from ..queries.write_plan import Continuation
from .fetch_plan import FAIR, Demand, Fetch
from .fetcher import Fetcher

MOST_STATEMENTS = 50  # per fetch, if all queues that are visited are busy


class FairFetcher(Fetcher):
    """Locks the next jobs of the queues that are next."""

    may_overtake = False  # between queues, priorities do not count

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
                    forbidden_flags=demand.forbidden_flags,
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
        if self.on_queued is not None and found:
            self.on_queued(found)
        if PoolJobsFetched in self._events._observed:
            self._emit(Fetch(FAIR, demand.limit), len(found), time.monotonic() - began)
        return found

    def continuation(self) -> Continuation | None:
        """None: the next turn is that of another queue."""
        return None

"""Fetcher: what every source shares, asking the database for jobs on behalf of one pool."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import cast

from ..clock import Clock
from ..errors import ConfigError
from ..hooks.interceptors import resolve
from ..job import Job
from ..queries.fetch import (
    MANY_PRIORITIES,
    Ranges,
    get_announced_jobs,
    get_jobs,
    get_plain_jobs,
    list_priorities,
    may_queues_be_next,
)
from ..queries.names import register_tasks
from ..queries.write import Continuation, return_jobs
from ..schema_name import SchemaName
from .failure_log import FailureLog
from .session import Session
from .watermarks import Watermarks, ranges

Way = Callable[..., Awaitable[Sequence[Job]]]
LARGE = 100  # jobs
LIST_AGAIN = 10.0  # seconds after which there may be fewer priorities
LONG_WAYS = 50  # fetches after which it is worth a look whether what was in the way still is

FlagSource = Sequence[str] | Callable[[], Sequence[str] | Awaitable[Sequence[str] | None] | None] | None
"""Flags that are forbidden now: a list, or a function or coroutine function that says so at each fetch."""


def may_have_left_some(found: int, limit: int) -> bool:
    """Whether more may be ready after a fetch: a large one is content with a quarter (see `parts/queued`)."""
    return found >= (limit if limit < LARGE else limit // 4)


class Fetcher:
    """Locks jobs for one pool and gives back those that were not run."""

    def __init__(
        self,
        session: Session,
        schema: SchemaName,
        *,
        pool_id: str,
        identifiers: Sequence[str],
        forbidden_flags: FlagSource,
        clock: Clock,
        use_local_time: bool,
        has_queue_indexes: bool = True,
        trouble: FailureLog | None = None,
    ) -> None:
        """`trouble` is told when fetching fails, and when it works."""
        self.pool_id = pool_id
        self._session = session
        self._schema = schema
        self._identifiers = identifiers
        self._forbidden_flags = forbidden_flags
        self._last_flags: Sequence[str] | None = None
        self._clock = clock
        self._use_local_time = use_local_time
        self._tasks: dict[int, str] = {}
        self._trouble = trouble
        # What marks go by is how long the server really takes, also where a test has a clock of its own.
        self._marks = Watermarks()
        self._promised = False
        self._announced = False  # whether a job was announced since the last full fetch
        self._long_ways = 0 if has_queue_indexes else sys.maxsize  # fetches for which the short way is no use
        self._vain_ways = 0  # announced jobs for which the shortest way is no use
        self._server_ahead = 0.0  # of our monotonic clock
        self._everything: Ranges | None = None  # all jobs, while there are too many priorities to walk over
        self._listed_at = 0.0

    @property
    def one_at_a_time(self) -> bool:
        """Whether flags may change from job to job, so that nothing may be locked ahead."""
        return callable(self._forbidden_flags)

    @property
    def has_flags(self) -> bool:
        """Whether any forbidden flags were given, be it an empty list."""
        return self._forbidden_flags is not None

    async def register(self) -> None:
        """Learn the ids of the tasks; asked again when it may have changed."""
        self._tasks = await self._session.run(
            lambda connection: register_tasks(connection, self._schema, self._identifiers)
        )

    def forget(self) -> None:
        """The schema may be another one now: no id that was learnt may be used any more."""
        self._tasks = {}
        self._marks = Watermarks()
        self._everything = None

    async def fetch(self, limit: int, *, promised: bool = False) -> Sequence[Job]:
        """Up to `limit` jobs, locked by this pool; `promised` if somebody announced one."""
        try:
            if not self._tasks and self._identifiers:
                await self.register()
            jobs = await self._fetch(limit, promised=promised)
        except Exception as error:
            if self._trouble is not None:
                self._trouble.failed(error)
            raise
        if self._trouble is not None:
            self._trouble.over()
        return jobs

    async def _fetch(self, limit: int, *, promised: bool) -> Sequence[Job]:
        self._last_flags = flags = None if self._forbidden_flags is None else await self._flags()
        self._promised |= promised
        self._announced |= promised
        if self.one_at_a_time or self._marks.is_full_due(time.monotonic()):
            self._promised = False
            return await self._fetch_all(limit, flags, announced=promised)
        jobs = await self._fetch_beyond(limit, flags)
        if jobs:
            self._promised = False
        elif self._promised and self._marks.is_full_due(time.monotonic(), promised=True):
            self._promised = False
            return await self._fetch_all(limit, flags)
        return jobs

    def look_again_in(self) -> float | None:
        """Seconds until a full fetch may find what was announced and may lie behind a mark; None: nothing."""
        if not self._announced:
            return None
        return max(0.0, self._marks.full_due_in(time.monotonic(), promised=self._promised))

    def look_everywhere(self) -> None:
        """Let the next fetch be a full one, whatever it costs."""
        self._marks = Watermarks()

    async def _fetch_all(
        self, limit: int, flags: Sequence[str] | None, *, announced: bool = False
    ) -> Sequence[Job]:
        now, began = self.now(), time.monotonic()
        self._announced = False
        jobs: Sequence[Job] = ()
        if announced and self._is_shortest_way_good():
            jobs = await self._lock_by(get_announced_jobs, limit, flags, now, None)
            self._vain_ways = 0 if jobs else LONG_WAYS
        if not jobs:
            if self._everything is not None and began > self._listed_at + LIST_AGAIN:
                await self._list_priorities()
            jobs = await self._lock_some(limit, flags, now, beyond=self._everything)
        ended = time.monotonic()
        if self._marks.full_fetch_took(ended - began, len(jobs), ended):
            with suppress(Exception):  # the jobs are locked: they must not be lost for the want of marks
                priorities = await self._list_priorities()
                self._marks.listing_took(self._listed_at - ended)
                if not self.one_at_a_time:
                    # What became due while the fetch ran was not seen.
                    seen_up_to = now.timestamp() if now is not None else began + self._server_ahead
                    self._marks.set(priorities, jobs, seen_up_to, full=len(jobs) >= limit)
        return jobs

    async def _list_priorities(self) -> list[int]:
        """Learn the priorities of waiting jobs; of very many just the first, the others are read as one."""
        priorities, server_time = await self._session.run(
            lambda connection: list_priorities(connection, self._schema)
        )
        self._listed_at = time.monotonic()
        self._server_ahead = server_time - self._listed_at
        is_too_many = len(priorities) >= MANY_PRIORITIES
        self._everything = ranges(dict.fromkeys(priorities, float("-inf"))) if is_too_many else None
        return priorities

    async def _fetch_beyond(self, limit: int, flags: Sequence[str] | None) -> Sequence[Job]:
        seen_up_to = self._seconds()
        jobs = await self._lock_some(limit, flags, self.now(), beyond=self._marks.ranges())
        self._marks.advance(jobs, seen_up_to, full=len(jobs) >= limit)
        return jobs

    def _is_shortest_way_good(self) -> bool:
        """Whether to go the way of the usual case; where it found nothing it is left out for a while."""
        self._vain_ways -= 1
        return self._vain_ways < 0 and self._long_ways <= 0

    async def _lock_some(
        self, limit: int, flags: Sequence[str] | None, now: datetime | None, beyond: Ranges | None = None
    ) -> Sequence[Job]:
        """The short way first, which finds nothing if a named queue may be next; then the whole one."""
        if self._long_ways <= 0:
            jobs = await self._lock_by(get_plain_jobs, limit, flags, now, beyond)
            if jobs or not await self._session.run(
                lambda connection: may_queues_be_next(connection, self._schema)
            ):
                return jobs
            self._long_ways = LONG_WAYS
        self._long_ways -= 1
        return await self._lock_by(get_jobs, limit, flags, now, beyond)

    async def _lock_by(
        self, way: Way, limit: int, flags: Sequence[str] | None, now: datetime | None, beyond: Ranges | None
    ) -> Sequence[Job]:
        return await self._session.take(
            partial(
                way,
                schema=self._schema,
                pool_id=self.pool_id,
                tasks=self._tasks,
                limit=limit,
                forbidden_flags=flags,
                now=now,
                beyond=beyond,
            )
        )

    def _seconds(self) -> float:
        """The time that fetches go by, in seconds since 1970."""
        now = self.now()
        return now.timestamp() if now is not None else time.monotonic() + self._server_ahead

    async def give_back(self, jobs: Sequence[Job]) -> None:
        """Unlock jobs that were not started."""
        holdings = self._session.holdings
        if holdings.lost:
            jobs = [job for job in jobs if not holdings.is_lost(job)]
        await self._session.run(lambda connection: return_jobs(connection, self._schema, self.pool_id, jobs))
        holdings.strike(jobs)

    def continuation(self) -> Continuation | None:
        """How a freed queue may go on; not when flags must be asked for each job anew."""
        if self.one_at_a_time or not self._tasks:
            return None
        return Continuation(tasks=self._tasks, forbidden_flags=self._last_flags, now=self.now())

    def now(self) -> datetime | None:
        """The time to go by; None leaves it to the server."""
        return self._clock.now() if self._use_local_time else None

    async def _flags(self) -> Sequence[str] | None:
        flags = self._forbidden_flags
        if callable(flags):
            flags = cast("Sequence[str] | None", await resolve(flags()))
        if flags is not None and (isinstance(flags, str) or not all(isinstance(flag, str) for flag in flags)):
            raise ConfigError(f"forbidden_flags: expected a list of strings, got {flags!r}")
        return flags

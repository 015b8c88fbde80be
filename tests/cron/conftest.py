"""A scheduler on a clock of its own and a record of what it did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
import pytest

from cron.reference import at
from graphile_worker.cron import CronScheduler, ParsedCronItem, parse_crontab
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.events import CronStarted, Event
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.values.schema_name import SchemaName

E = TypeVar("E", bound=Event)


class Station:
    """One scheduler, its clock and its events."""

    def __init__(self, pool: Any, items: list[ParsedCronItem], clock: FakeClock, **options: Any) -> None:
        self.clock = clock
        self.pool = pool
        self.seen: list[Event] = []
        events = Events()
        events.on(Event, self.seen.append)
        self.hooks = Hooks(events=events)
        self.scheduler = CronScheduler(
            options.pop("acquire", pool.acquire),
            SchemaName(),
            items,
            hooks=self.hooks,
            clock=clock,
            **options,
        )

    async def start(self) -> None:
        await self.scheduler.start()
        await self.clock.until_sleeping()

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]

    @property
    def is_started(self) -> bool:
        return bool(self.events(CronStarted))

    async def set(self, time: str) -> None:
        """Move the clock to a time of the day on which it stands, or to a full date."""
        date = "" if "-" in time else f"{self.clock.now():%Y-%m-%d} "
        await self.clock.set(at(f"{date}{time}"))

    async def jobs(self) -> list[asyncpg.Record]:
        return list(
            await self.pool.fetch(
                "select jobs.*, tasks.identifier as task from graphile_worker._private_jobs as jobs"
                " join graphile_worker._private_tasks as tasks on tasks.id = jobs.task_id order by jobs.id"
            )
        )

    async def known(self, identifier: str) -> asyncpg.Record | None:
        return await self.pool.fetchrow(
            "select * from graphile_worker._private_known_crontabs where identifier = $1", identifier
        )

    async def learn(self, identifier: str, since: datetime, last: datetime | None) -> None:
        await self.pool.execute(
            "insert into graphile_worker._private_known_crontabs values ($1, $2, $3)", identifier, since, last
        )


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=4) as pool:
        yield pool


@pytest.fixture
async def station(pool: Any) -> AsyncIterator[Callable[..., Station]]:
    """Makes schedulers that are stopped at the end: `station(crontab, "2021-01-01 01:00")`."""
    async with AsyncExitStack() as stack:

        def make(
            crontab: str | list[ParsedCronItem], start: str = "2021-01-01 01:00", **options: Any
        ) -> Station:
            items = parse_crontab(crontab) if isinstance(crontab, str) else crontab
            made = Station(pool, items, FakeClock(at(start)), **options)
            stack.push_async_callback(made.scheduler.stop)
            return made

        yield make

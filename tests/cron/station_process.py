"""One scheduler in a process of its own, with a clock of its own, that does what its parent says."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

import asyncpg

from graphile_worker.cron import CronScheduler, parse_crontab
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.events import CronBackfill, CronSchedule, CronScheduled
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.values.schema_name import SchemaName

APPLICATION_NAME = "cron station"


class StationProcess:
    """Commands arrive as (name, argument); each is answered with the clock and what was tried until then."""

    def __init__(self, pool: Any, crontab: str) -> None:
        self.pool = pool
        self.items = parse_crontab(crontab)
        self.attempts: list[tuple[datetime, datetime]] = []
        self.latest: datetime | None = None
        self.failures = 0

    async def start(self, now: datetime) -> None:
        """Start over: only the database remembers anything."""
        self.clock = FakeClock(now)
        self.latest = None
        events = Events()
        events.on(CronBackfill, lambda event: self.note(event.timestamp))
        events.on(CronSchedule, lambda event: self.note(event.timestamp))
        events.on(CronScheduled, self.note_done)
        logger = logging.Logger("station")
        logger.addFilter(self.note_failure)
        self.scheduler = CronScheduler(
            self.pool.acquire,
            SchemaName(),
            self.items,
            hooks=Hooks(events=events),
            clock=self.clock,
            logger=logger,
        )
        await self.scheduler.start()
        await self.clock.until_sleeping()

    def note(self, minute: datetime) -> None:
        self.attempts.append((minute, self.clock.now()))

    def note_done(self, event: CronScheduled) -> None:
        self.latest = event.timestamp

    def note_failure(self, record: logging.LogRecord) -> bool:
        self.failures += 1
        return False

    async def do(self, name: str, argument: Any) -> None:
        if name == "set":
            await self.clock.set(argument)
        elif name == "restart":
            await self.scheduler.stop()
            await self.start(argument)
        elif name == "finish":
            # After a failure the scheduler backs off on the same clock, so time must pass.
            while self.latest is None or self.latest < argument:
                await self.clock.set(max(argument, self.clock.now()) + timedelta(seconds=20))


def serve(channel: Connection, url: str, crontab: str, now: datetime) -> None:
    asyncio.run(_serve(channel, url, crontab, now))


async def _serve(channel: Connection, url: str, crontab: str, now: datetime) -> None:
    settings = {"application_name": APPLICATION_NAME}
    async with asyncpg.create_pool(url, min_size=1, max_size=2, server_settings=settings) as pool:
        station = StationProcess(pool, crontab)
        await station.start(now)
        while True:
            channel.send((station.clock.now(), station.attempts, station.failures))
            station.attempts = []
            name, argument = await asyncio.to_thread(channel.recv)
            if name == "end":
                break
            await station.do(name, argument)
        await station.scheduler.stop()
    channel.send(None)

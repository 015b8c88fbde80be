"""The worker: `graphile-worker` runs this app, because pyproject.toml names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graphile_worker import App

from . import reports, tasks
from .database import open_database
from .mailer import open_mailer


@asynccontextmanager
async def lifespan() -> AsyncIterator[list[object]]:
    """Opened once in each worker process. Tasks get these objects by their types."""
    async with open_database() as database, open_mailer() as mailer:
        yield [database, mailer]


app = App(
    tasks=[reports, tasks],
    lifespan=lifespan,
    crontab="0 8 * * MON weekly_report ?tz=Europe/Berlin",
    concurrency=10,
)

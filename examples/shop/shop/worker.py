"""The worker: `graphile-worker` runs the app below, because pyproject.toml names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graphile_worker import App, CronItem

from .state import open_state
from .tasks import catalogue, emails, invoices, payments, reports, reviews, sales, search


@asynccontextmanager
async def lifespan() -> AsyncIterator[list[object]]:
    """Open the state once per worker process. Tasks get each object by its type."""
    async with open_state() as state:
        yield [state.database, state.mailer, state.bank]


app = App(
    tasks=[catalogue, emails, invoices, payments, reports, reviews, sales, search],
    lifespan=lifespan,
    cron_items=[CronItem.daily_at(reports.nightly_report, 2, 30, tz=reports.ZONE.key, backfill_period="1d")],
    concurrency=10,
)

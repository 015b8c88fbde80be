"""The shop of the demo: it adds jobs without end, runs them with two workers, and deploys versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ...client import WorkerUtils, make_worker_utils
from ...cron import parse_crontab
from ...database.sql import load
from ...history.statistics import bucket_of
from ...runner import run
from ...runner.runner import Runner
from ...values.option_groups import HistoryOptions
from ...values.options import WorkerOptions
from ...values.schema_name import SchemaName
from .tasks import CRONTAB, LOAD, TASKS, Release, new_job, new_jobs, write_invoice

FIRST = Release("1.0")
DEPLOYS = (
    (20, Release("1.1", sends_emails=False), "e-mails fail from now on, see Failures"),
    (150, Release("1.2"), "e-mails are sent again; on the page of the failure, retry those that failed"),
)
"""Seconds after the one before, the release, and what it changes."""
WORKERS = 2
WAITING_INVOICES = 30
EVERY = 0.5  # seconds between additions of jobs

Say = Callable[[str], None]


class Shop:
    """The shop with its jobs in a database."""

    def __init__(self, url: str) -> None:
        self._options = WorkerOptions(
            connection_string=url, concurrency=6, handle_signals=False,
            history=HistoryOptions(mode="all", retention=3600),
        )  # fmt: skip
        self._workers: list[Runner] = []

    @asynccontextmanager
    async def open(self, say: Say) -> AsyncIterator[asyncio.Future[Any]]:
        """Install the schema, and let the shop live; at the end its workers are killed.

        What it gives ends by an error only.
        """
        async with make_worker_utils(options=self._options) as utils:
            await utils.migrate()
            await self._write_past(utils)
            await utils.add_jobs([new_job(write_invoice) for _ in range(WAITING_INVOICES)])
            await self._deploy(FIRST)
            living = asyncio.ensure_future(asyncio.gather(self._add_jobs(utils), self._deploy_later(say)))
            try:
                yield living
            finally:
                living.cancel()
                await asyncio.gather(living, return_exceptions=True)
                await asyncio.gather(*(worker.kill() for worker in self._workers))

    async def _deploy_later(self, say: Say) -> None:
        for seconds, release, change in DEPLOYS:
            await asyncio.sleep(seconds)
            say(f"version {release.version} is deployed: {change}")
            await self._deploy(release)

    async def _write_past(self, utils: WorkerUtils) -> None:
        names = [task.identifier for task, _, _ in LOAD]
        rates = [60 * per_second for _, per_second, _ in LOAD]
        seconds = [usual for _, _, usual in LOAD]
        schema = SchemaName(self._options.schema)
        async with utils.with_pg_client() as connection:
            buckets = [bucket_of(each) for each in seconds]
            await connection.execute(load("demo/write_minutes", schema), names, rates, seconds, buckets)
            await connection.execute(load("demo/write_samples", schema), sum(rates))

    async def _add_jobs(self, utils: WorkerUtils) -> None:
        while True:
            await utils.add_jobs(new_jobs(EVERY), return_jobs=False)
            await asyncio.sleep(EVERY)

    async def _deploy(self, release: Release) -> None:
        """Replace the workers one by one."""
        old = self._workers.copy()
        for number in range(WORKERS):
            worker = await run(
                options=self._options.with_values(app_version=release.version),
                task_list=TASKS,
                parsed_cron_items=parse_crontab(CRONTAB),
                extensions=[release],
            )
            self._workers.append(worker)
            if old:
                await old[number].kill()
                self._workers.remove(old[number])

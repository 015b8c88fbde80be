"""What administrators and the network do beside the load: look, clean up, change jobs, cut listeners off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta

from graphile_worker import WorkerUtils
from graphile_worker.options import JobFilter

from .load import TASK_NAMES

CUT_LISTENERS = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name = 'graphile_worker' and query ilike 'listen %'
"""


class Upkeep:
    """Calls what is not adding, each thing every few seconds."""

    def __init__(self, utils: WorkerUtils) -> None:
        self._utils = utils
        self._numbers = itertools.count()
        self.listeners_cut = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for work, pause in (
                (self.look, 3.0),
                (self.change, 5.0),
                (self.clean_up, 10.0),
                (self.use_a_name_once, 7.0),
                (self.sweep, 15.0),
                (self.cut_listeners, 20.0),
            ):
                group.create_task(self._repeat(work, pause))

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            await work()

    async def look(self) -> None:
        await self._utils.statistics.jobs()
        await self._utils.jobs.list(JobFilter(limit=20))
        await self._utils.queues.list()
        await self._utils.list_workers()

    async def change(self) -> None:
        """Complete, fail and postpone some jobs that wait."""
        waiting = [job.id for job in await self._utils.jobs.list(JobFilter(state="scheduled", limit=9))]
        await self._utils.complete_jobs(waiting[:3])
        await self._utils.permanently_fail_jobs(waiting[3:6], "failed by hand")
        await self._utils.reschedule_jobs(waiting[6:], run_at=timedelta(seconds=1), attempts=0)

    async def clean_up(self) -> None:
        await self._utils.cleanup(
            ["DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"],
            task_identifiers_to_keep=TASK_NAMES,
        )

    async def use_a_name_once(self) -> None:
        """A job of a task that nobody has, completed by hand; its name is cleaned up later."""
        job = await self._utils.add_job(f"nobody_has_this_{next(self._numbers)}")
        await self._utils.complete_jobs([job.id])

    async def sweep(self) -> None:
        await self._utils.sweep_stale_workers()

    async def cut_listeners(self) -> None:
        async with self._utils.with_pg_client() as connection:
            self.listeners_cut += len(await connection.fetch(CUT_LISTENERS))

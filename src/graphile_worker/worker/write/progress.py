"""ProgressReporter: keeps what tasks report in memory and stores all of it once a second.

A report costs the task an assignment. Nothing runs while no task reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from contextvars import copy_context
from typing import Protocol

from ...error_text import message_of
from ...history.progress import ProgressReport, write_progress
from ...job import Job
from ..context import PoolContext
from ..session.session import Sessions

INTERVAL = 1.0  # seconds

logger = logging.getLogger("graphile_worker.worker")


class RunningJobs(Protocol):
    """The lanes of the pool."""

    @property
    def running(self) -> Collection[Job]:
        """The jobs that run now."""
        ...


class ProgressReporter:
    """The progress of all jobs of one pool."""

    def __init__(self, context: PoolContext, sessions: Sessions, running: RunningJobs) -> None:
        self._sessions = sessions
        self._schema = context.schema
        self._clock = context.clock
        self._running = running
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # not that of the first job that reports something
        self._changed: dict[int, ProgressReport] = {}
        self._stored: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_failing = False

    def report(self, job_id: int, report: ProgressReport) -> None:
        """Take a report; may be called from any thread."""
        self._changed[job_id] = report
        if (self._task is None or self._task.done()) and not self._is_closed:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._start)

    async def close(self) -> None:
        """Delete what is stored, if the database answers soon."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._changed.clear()
            with suppress(Exception):
                async with asyncio.timeout(INTERVAL):
                    await self._store(ended=self._stored)

    def _start(self) -> None:
        if (self._task is None or self._task.done()) and not self._is_closed:
            self._task = self._loop.create_task(
                self._work(), name="graphile-worker progress", context=self._context.copy()
            )

    async def _work(self) -> None:
        while not self._is_closed:
            running = {job.id for job in self._running.running}
            try:
                await self._store(ended=self._stored - running, running=running)
            except Exception as error:  # progress is not worth an interruption
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(level, "progress cannot be stored: %s", message_of(error))
                self._is_failing = True
            else:
                self._is_failing = False
            if not self._stored and not self._changed:
                self._task = None
                return
            await self._clock.sleep(INTERVAL)

    async def _store(self, *, ended: Collection[int], running: Collection[int] = ()) -> None:
        changed, self._changed = self._changed, {}
        reports = {job_id: changed[job_id] for job_id in changed if job_id in running}
        gone = sorted(ended)
        if not reports and not gone:
            return
        await self._sessions.run(lambda connection: write_progress(connection, self._schema, reports, gone))
        self._stored = (self._stored - set(gone)) | reports.keys()

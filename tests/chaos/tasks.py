"""Tasks that take time, fail on demand, and record their start and end in the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from chaos.history import AT_ONCE, BLOCKING, QUEUE_CONCURRENCY
from chaos.journal import Journal
from graphile_worker import JobHelpers, Limit, task


class Tasks:
    """The tasks of one worker process."""

    def __init__(self, journal: Journal, session_of: Callable[[int], int | None]) -> None:
        """`session_of`: the server's process with the transaction that holds a job; None if none does."""
        self._journal = journal
        self._session_of = session_of
        limit = Limit("chaos", concurrency=AT_ONCE)
        self.by_name: dict[str, Callable[..., Any]] = {
            "work": self.work,
            "work_in_thread": self.work_in_thread,
            BLOCKING: self.work_blocking,
            "work_limited": task("work_limited", limit=limit)(self.work),
            "work_wide": task("work_wide", queue_concurrency=QUEUE_CONCURRENCY)(self.work),
        }

    async def work(self, payload: Any, helpers: JobHelpers) -> str:
        """Waits as tasks do that wait for others; can be cancelled."""
        number = self._began(payload, helpers)
        try:
            await asyncio.sleep(payload["seconds"])
        except asyncio.CancelledError:
            self._journal.ended(number, "cancelled")
            raise
        return self._end(number, payload, helpers)

    async def work_blocking(self, payload: Any, helpers: JobHelpers) -> str:
        """Blocks the event loop, as a task does that calls a blocking library."""
        number = self._began(payload, helpers)
        time.sleep(payload["seconds"])
        return self._end(number, payload, helpers)

    def work_in_thread(self, payload: Any, helpers: JobHelpers) -> str:
        """Cannot be cancelled."""
        number = self._began(payload, helpers)
        time.sleep(payload["seconds"])
        return self._end(number, payload, helpers)

    def _began(self, payload: Any, helpers: JobHelpers) -> int:
        job = helpers.job
        return self._journal.began(payload["token"], payload["queue"], job, session=self._session_of(job.id))

    def _end(self, number: int, payload: Any, helpers: JobHelpers) -> str:
        fails = payload["fails"]
        if fails == "always" or (fails == "once" and helpers.job.attempts == 1):
            self._journal.ended(number, "failed")
            raise RuntimeError("meant to fail")
        self._journal.ended(number, "end")
        token: str = payload["token"]
        return token

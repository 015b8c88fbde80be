"""A worker process of the chaos suite: one pool or several, in the mode that its argument says."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from chaos import broken_holds
from chaos.journal import Journal
from chaos.tasks import Tasks
from graphile_worker import Runner, run
from graphile_worker.database.connections.bound import is_gone
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import JobCompleted, JobOutcomeDiscarded, PoolJobsFetched
from graphile_worker.values.clock import SystemClock

NOT_STARTED = 3
"""Exit status of a process that did not come to work, because the database was away."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """The configuration of a process: the database, and the options of each of its pools."""

    url: str
    journal: str
    pools: list[dict[str, Any]]
    is_pool_given: bool = False
    """Whether the worker runs on connections that the program made."""
    broken: str = ""
    """The guard that is removed from this process: one of `broken_holds`."""
    clock_ahead: float = 0.0
    has_limits: bool = True
    """Seconds by which the clock of this process is wrong."""


class WrongClock(SystemClock):
    """A clock that was set to another time."""

    def __init__(self, ahead: float) -> None:
        self._ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return super().now() + self._ahead


async def main(order: WorkerOrder) -> None:
    if order.broken:
        broken_holds.remove(order.broken)
    journal = Journal(Path(order.journal))
    sessions = HeldSessions()
    tasks = Tasks(journal, sessions.of)
    if not order.has_limits:
        del tasks.by_name["work_limited"]
    clock = WrongClock(order.clock_ahead)
    events = Events()
    events.on(PoolJobsFetched, lambda event: _fetched(journal, sessions, event))
    events.on(JobCompleted, Written(journal))
    events.on(JobOutcomeDiscarded, lambda event: journal.discarded(event.job.id))
    async with AsyncExitStack() as stack:
        runners = sessions.runners
        try:
            for options in order.pools:
                where = await _where(order, stack)
                runners.append(
                    await stack.enter_async_context(
                        run(task_list=tasks.by_name, events=events, clock=clock, **where, **options)
                    )
                )
        except Exception as error:
            print(f"could not start: {type(error).__name__}: {error}", flush=True)
            os._exit(NOT_STARTED)
        for runner in runners:
            journal.pool(runner.pool_id)
        await asyncio.gather(*(runner.wait() for runner in runners))


def _fetched(journal: Journal, sessions: HeldSessions, event: PoolJobsFetched) -> None:
    if event.kind == "held" and event.count:
        sessions.note()
        journal.held(event.count)


class Written:
    """Notes the outcomes that are committed, one line for those that are announced together."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ids: list[int] = []

    def __call__(self, event: JobCompleted) -> None:
        if not self._ids:
            asyncio.get_running_loop().call_soon(self._flush)
        self._ids.append(event.job.id)

    def _flush(self) -> None:
        ids, self._ids = self._ids, []
        self._journal.written(ids)


class HeldSessions:
    """The server's processes with the transactions of held batches.

    They are noted when a batch begins: a connection that is lost cannot tell.
    """

    def __init__(self) -> None:
        self.runners: list[Runner] = []
        self._known: dict[tuple[str, int], tuple[Any, int]] = {}

    def note(self) -> None:
        """A batch was fetched."""
        for runner in self.runners:
            pool: Any = runner._pool
            for batch_session in (
                pool._held_batches._batch_sessions.all if pool._held_batches is not None else ()
            ):
                batch = batch_session.batch
                if batch is not None and not is_gone(batch.connection):
                    self._known[runner.pool_id, batch.batch_session] = (
                        batch,
                        batch.connection.get_server_pid(),
                    )

    def of(self, job_id: int) -> int | None:
        """The process for a job; None if it is not held."""
        for runner in self.runners:
            pool: Any = runner._pool
            batch = pool._held_batches.by_id.get(job_id) if pool._held_batches is not None else None
            if batch is not None:
                known, pid = self._known.get((runner.pool_id, batch.batch_session), (None, 0))
                return pid if known is batch else 0
        return None


async def _where(order: WorkerOrder, stack: AsyncExitStack) -> dict[str, Any]:
    if not order.is_pool_given:
        return {"connection_string": order.url}
    return {
        "pg_pool": await stack.enter_async_context(asyncpg.create_pool(order.url, min_size=0, max_size=6))
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1].encode(), type=WorkerOrder)))

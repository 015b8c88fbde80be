"""A worker process of the chaos suite: one pool or several, in the mode that its argument says."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from chaos.journal import Journal
from chaos.tasks import Tasks
from graphile_worker import Events, Runner, run
from graphile_worker.hooks.events import PoolJobsFetched
from graphile_worker.recovery import hold_guard
from graphile_worker.worker import fetch_plan, holds, watermarks

HELD_AGAIN = (
    -10.0
)  # seconds after the sweep of a dead worker: a death forbids nothing, or a run would be over
SKIPPED = 2  # fetches that hold nothing after one that was of little use; a run has a hundred
SLOW = 2.0  # seconds for a fetch, before the next ones read less and hold nothing

NOT_STARTED = 3
"""Exit status of a process that did not come to work, because the database was away."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """The configuration of a process: the database, and the options of each of its pools."""

    url: str
    journal: str
    pools: list[dict[str, Any]]
    is_pool_given: bool = False
    """Whether the worker runs on connections that the program made."""
    is_holding: bool = False
    """Whether it holds jobs soon after a death, and on a machine so busy that every fetch is slow."""


async def main(order: WorkerOrder) -> None:
    if order.is_holding:
        hold_guard.FRESH = HELD_AGAIN
        watermarks.SLOW = SLOW
        fetch_plan.SKIPPED = holds.FEWEST_SKIPPED = holds.MOST_SKIPPED = SKIPPED
    journal = Journal(Path(order.journal))
    tasks = Tasks(journal)
    events = Events()
    events.on(PoolJobsFetched, lambda event: _fetched(journal, event))
    async with AsyncExitStack() as stack:
        runners: list[Runner] = []
        try:
            for options in order.pools:
                where = await _where(order, stack)
                runners.append(
                    await stack.enter_async_context(
                        run(task_list=tasks.by_name, events=events, **where, **options)
                    )
                )
        except Exception as error:
            print(f"could not start: {type(error).__name__}: {error}", flush=True)
            os._exit(NOT_STARTED)
        tasks.is_held = lambda job_id: any(_is_held(runner, job_id) for runner in runners)
        for runner in runners:
            journal.pool(runner.pool_id)
        await asyncio.gather(*(runner.wait() for runner in runners))


def _fetched(journal: Journal, event: PoolJobsFetched) -> None:
    if event.kind == "held" and event.count:
        journal.held(event.count)


def _is_held(runner: Runner, job_id: int) -> bool:
    pool: Any = runner._pool
    return pool._holds is not None and job_id in pool._holds.by_id


async def _where(order: WorkerOrder, stack: AsyncExitStack) -> dict[str, Any]:
    if not order.is_pool_given:
        return {"connection_string": order.url}
    return {
        "pg_pool": await stack.enter_async_context(asyncpg.create_pool(order.url, min_size=0, max_size=6))
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1].encode(), type=WorkerOrder)))

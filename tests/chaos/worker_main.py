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
from graphile_worker import Runner, run

NOT_STARTED = 3
"""Exit status of a process that did not come to work, because the database was away."""


class WorkerOrder(msgspec.Struct, frozen=True):
    """The configuration of a process: the database, and the options of each of its pools."""

    url: str
    journal: str
    pools: list[dict[str, Any]]
    is_pool_given: bool = False
    """Whether the worker runs on connections that the program made."""


async def main(order: WorkerOrder) -> None:
    journal = Journal(Path(order.journal))
    tasks = Tasks(journal)
    async with AsyncExitStack() as stack:
        runners: list[Runner] = []
        try:
            for options in order.pools:
                where = await _where(order, stack)
                runners.append(
                    await stack.enter_async_context(run(task_list=tasks.by_name, **where, **options))
                )
        except Exception as error:
            print(f"could not start: {type(error).__name__}: {error}", flush=True)
            os._exit(NOT_STARTED)
        for runner in runners:
            journal.pool(runner.pool_id)
        await asyncio.gather(*(runner.wait() for runner in runners))


async def _where(order: WorkerOrder, stack: AsyncExitStack) -> dict[str, Any]:
    if not order.is_pool_given:
        return {"connection_string": order.url}
    return {
        "pg_pool": await stack.enter_async_context(asyncpg.create_pool(order.url, min_size=0, max_size=6))
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main(msgspec.json.decode(sys.argv[1].encode(), type=WorkerOrder)))

"""A worker on a connection pool of the caller: its heartbeats come from its own event loop."""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from graphile_worker import run
from recovery.dead import QUICK
from recovery.tasks_to_lose import block, work


async def main(url: str) -> None:
    async with (
        asyncpg.create_pool(url, min_size=0, max_size=4) as pool,
        run(pg_pool=pool, task_list=[block, work], **QUICK) as runner,
    ):
        await runner.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""PgQueuer: asyncpg, and batches of a thousand jobs, the fastest of the sizes that were tried."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
from benchmarks.peers.program import DSN, background, main, meter, until
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

IS_LEFT = "select exists (select from pgqueuer)"
MANY, FEW = 1000, 10  # jobs in a batch, for a backlog and for single jobs
logging.getLogger("pgqueuer").setLevel(logging.ERROR)


async def queue() -> PgQueuer:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

    @queue.entrypoint("bench")
    async def bench(job: Any) -> None:
        meter.hit()

    return queue


class Peer:
    queries: Queries

    async def setup(self) -> None:
        queries = Queries(AsyncpgDriver(await asyncpg.connect(DSN)))
        await queries.install()
        await queries.optimize_autovacuum()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        self.queries = Queries(AsyncpgDriver(await asyncpg.connect(DSN)))
        yield

    async def add(self, number: int) -> None:
        await self.queries.enqueue("bench", b"1", 0)

    async def add_many(self, numbers: range) -> None:
        jobs = len(numbers)
        await self.queries.enqueue(["bench"] * jobs, [b"1"] * jobs, [0] * jobs)

    async def drain(self) -> None:
        connection, worker = await asyncpg.connect(DSN), await queue()

        async def is_empty() -> bool:
            return not await connection.fetchval(IS_LEFT)

        work = worker.run(batch_size=MANY, dequeue_timeout=timedelta(seconds=30))
        async with background(work, listens_after=0):
            await until(is_empty)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        worker = await queue()
        async with background(worker.run(batch_size=FEW, dequeue_timeout=timedelta(seconds=30))):
            yield


if __name__ == "__main__":
    main(Peer())

"""DBOS: workflows in a queue that looks for work every 50 ms, and 16 threads, the best number tried."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from benchmarks.peers.program import DSN, main, meter, until
from dbos import DBOS, Queue

QUEUE = "bench"
IS_LEFT = "select exists (select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING'))"
URL = DSN.replace("postgresql://", "postgresql+psycopg://", 1)

IS_WORKER = sys.argv[1:2] == ["latency"]
"""A process that adds listens to the queue only if it is to run the jobs, too."""


@DBOS.workflow()
def bench(number: int) -> None:
    meter.hit()


class Peer:
    queue: Queue

    def launch(self, *, listens: bool) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": URL,
                "log_level": "ERROR",
                "sys_db_pool_size": 20,
                "max_executor_threads": 16,
                "application_version": "1",
            }
        )
        DBOS.listen_queues([QUEUE] if listens else ["none"])
        DBOS.launch()
        self.queue = DBOS.register_queue(QUEUE, polling_interval_sec=0.05)

    async def setup(self) -> None:
        await asyncio.to_thread(self.launch, listens=False)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        await asyncio.to_thread(self.launch, listens=IS_WORKER)
        yield

    async def add(self, number: int) -> None:
        await asyncio.to_thread(self.queue.enqueue, bench, number)

    async def add_many(self, numbers: range) -> None:
        def add() -> None:
            for number in numbers:
                self.queue.enqueue(bench, number)

        await asyncio.to_thread(add)

    async def drain(self) -> None:
        async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:

            async def is_empty() -> bool:
                row = await (await connection.execute(IS_LEFT)).fetchone()
                return row is not None and not row[0]

            await asyncio.to_thread(self.launch, listens=True)
            await until(is_empty)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        yield


if __name__ == "__main__":
    main(Peer())

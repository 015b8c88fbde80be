"""Chancy: the asynchronous executor with a hundred slots, which fetches again when a job has finished."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from benchmarks.peers.program import DSN, main, meter, until
from chancy import Chancy, Queue, Worker, job

IS_LEFT = "select exists (select from chancy_jobs where state in ('pending', 'running', 'retrying'))"
logger = logging.getLogger("chancy")
logger.setLevel(logging.ERROR)
queue = Queue(
    name="default",
    concurrency=100,
    executor="chancy.executors.asyncex.AsyncExecutor",
    polling_interval=1,
    eager_polling=True,
)


@job()
async def bench(*, number: int) -> None:
    meter.hit()


class Peer:
    app: Chancy

    async def setup(self) -> None:
        async with Chancy(DSN, log=logger) as app:
            await app.migrate()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        async with Chancy(DSN, log=logger) as self.app:
            await self.app.declare(queue, upsert=True)
            yield

    async def add(self, number: int) -> None:
        await self.app.push(bench.job.with_kwargs(number=number))

    async def add_many(self, numbers: range) -> None:
        jobs = [bench.job.with_kwargs(number=number) for number in numbers]
        async for _ in self.app.push_many(jobs, batch_size=len(jobs)):
            pass

    async def drain(self) -> None:
        async with self.client(), await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:

            async def is_empty() -> bool:
                row = await (await connection.execute(IS_LEFT)).fetchone()
                return row is not None and not row[0]

            async with Worker(self.app, register_signal_handlers=False):
                await until(is_empty)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with Worker(self.app, register_signal_handlers=False):
            yield


if __name__ == "__main__":
    main(Peer())

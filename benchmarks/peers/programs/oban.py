"""Oban for Python, the free package: a queue with a thousand slots, the fastest number that was tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.program import DSN, main, meter, until
from oban import Oban, job
from oban.schema import install

IS_LEFT = "select exists (select from oban_jobs where state in ('available', 'executing', 'retryable'))"
SLOTS = 1000


@job(queue="default")
async def bench(number: int) -> None:
    meter.hit()


class Peer:
    oban: Oban
    pool: Any

    async def setup(self) -> None:
        await install(await Oban.create_pool(DSN))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        self.pool = await Oban.create_pool(DSN, max_size=10)
        self.oban = Oban(pool=self.pool)
        yield

    async def add(self, number: int) -> None:
        await self.oban.enqueue(bench.new(number))

    async def add_many(self, numbers: range) -> None:
        await self.oban.enqueue_many([bench.new(number) for number in numbers])

    async def drain(self) -> None:
        async with self.client(), self.worker(), self.pool.connection() as connection:
            await connection.set_autocommit(True)

            async def is_empty() -> bool:
                return not (await (await connection.execute(IS_LEFT)).fetchone())[0]

            await until(is_empty)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with Oban(pool=self.pool, name="worker", queues={"default": SLOTS}):
            yield


if __name__ == "__main__":
    main(Peer())

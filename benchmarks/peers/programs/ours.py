"""This package, without any settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from benchmarks.peers.program import DSN, main, meter, until

from graphile_worker import JobSpec, WorkerUtils, make_worker_utils, run, run_migrations

IS_LEFT = "select exists (select from graphile_worker._private_jobs)"


async def bench() -> None:
    meter.hit()


class Peer:
    utils: WorkerUtils

    async def setup(self) -> None:
        await run_migrations(connection_string=DSN)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        async with make_worker_utils(connection_string=DSN) as self.utils:
            yield

    async def add(self, number: int) -> None:
        await self.utils.add_job("bench", {"id": number})

    async def add_many(self, numbers: range) -> None:
        await self.utils.add_jobs([JobSpec("bench", {"id": number}) for number in numbers])

    async def drain(self) -> None:
        connection = await asyncpg.connect(DSN)

        async def is_empty() -> bool:
            return not await connection.fetchval(IS_LEFT)

        async with self.worker():
            await until(is_empty)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with run(connection_string=DSN, task_list={"bench": bench}):
            yield


if __name__ == "__main__":
    main(Peer())

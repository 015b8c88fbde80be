"""This package, without any settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.program import DSN, main, meter

from graphile_worker import JobSpec, WorkerUtils, make_worker_utils, run, run_migrations, run_once


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
        await run_once(connection_string=DSN, task_list={"bench": bench})

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with run(connection_string=DSN, task_list={"bench": bench}):
            yield


if __name__ == "__main__":
    main(Peer())

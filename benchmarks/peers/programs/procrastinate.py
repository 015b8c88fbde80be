"""Procrastinate: an asynchronous worker with ten slots; finished jobs are deleted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import psycopg
from benchmarks.peers.program import DSN, background, main, meter, until
from procrastinate import App, PsycopgConnector

IS_LEFT = "select exists (select from procrastinate_jobs)"
SLOTS = 10
logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = App(connector=PsycopgConnector(conninfo=DSN, min_size=4, max_size=SLOTS + 2))


@app.task(name="bench")
async def bench(number: int) -> None:
    meter.hit()


def work() -> Coroutine[Any, Any, None]:
    worker: Coroutine[Any, Any, None] = app.run_worker_async(
        concurrency=SLOTS, delete_jobs="always", install_signal_handlers=False
    )
    return worker


class Peer:
    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        async with app.open_async():
            yield

    async def add(self, number: int) -> None:
        await bench.defer_async(number=number)

    async def add_many(self, numbers: range) -> None:
        await bench.batch_defer_async(*({"number": number} for number in numbers))

    async def drain(self) -> None:
        connection = await psycopg.AsyncConnection.connect(DSN, autocommit=True)

        async def is_empty() -> bool:
            row = await (await connection.execute(IS_LEFT)).fetchone()
            return row is not None and not row[0]

        async with app.open_async(), background(work(), listens_after=0):
            await until(is_empty)

    def worker(self) -> AbstractAsyncContextManager[None]:
        return background(work())


if __name__ == "__main__":
    main(Peer())

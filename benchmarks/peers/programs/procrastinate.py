"""Procrastinate: an asynchronous worker with ten slots; finished jobs are deleted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.peers.program import DSN, background, main, meter
from procrastinate import App, PsycopgConnector

SLOTS = 10
logging.getLogger("procrastinate").setLevel(logging.ERROR)
app = App(connector=PsycopgConnector(conninfo=DSN, min_size=4, max_size=SLOTS + 2))


@app.task(name="bench")
async def bench(number: int) -> None:
    meter.hit()


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
        async with app.open_async():
            await app.run_worker_async(
                concurrency=SLOTS, wait=False, delete_jobs="always", install_signal_handlers=False
            )

    def worker(self) -> AbstractAsyncContextManager[None]:
        return background(
            app.run_worker_async(concurrency=SLOTS, delete_jobs="always", install_signal_handlers=False)
        )


if __name__ == "__main__":
    main(Peer())

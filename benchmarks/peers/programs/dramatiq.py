"""Dramatiq with Redis and its eight threads. For orientation: Redis promises less than PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dramatiq
from benchmarks.peers.program import main, meter
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=os.environ["BENCH_REDIS"])
dramatiq.set_broker(broker)


@dramatiq.actor
def bench(number: int) -> None:
    meter.hit()


class Peer:
    async def setup(self) -> None:
        broker.flush_all()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        yield

    async def add(self, number: int) -> None:
        bench.send(number)

    async def add_many(self, numbers: range) -> None:
        for number in numbers:
            bench.send(number)

    async def drain(self) -> None:
        async with self.worker():
            await meter.reached()
            broker.join(bench.queue_name)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        dramatiq.Worker(broker, worker_threads=8).start()
        yield


if __name__ == "__main__":
    main(Peer())

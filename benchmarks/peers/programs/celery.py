"""Celery with Redis and threads, without results. For orientation: Redis promises less than PostgreSQL."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.program import main, meter
from celery import Celery
from redis import Redis

REDIS = os.environ["BENCH_REDIS"]
app = Celery("bench", broker=REDIS)
app.set_default()  # for the threads of the worker
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, worker_hijack_root_logger=False)


@app.task
def bench(number: int) -> None:
    meter.hit()


class Peer:
    async def setup(self) -> None:
        Redis.from_url(REDIS).flushall()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        yield

    async def add(self, number: int) -> None:
        bench.delay(number)

    async def add_many(self, numbers: range) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                bench.apply_async((number,), producer=producer)

    async def drain(self) -> None:
        async with self.worker():
            await meter.reached()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        worker = app.WorkController(
            pool_cls="threads",
            concurrency=8,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        threading.Thread(target=worker.start, daemon=True).start()
        yield


if __name__ == "__main__":
    main(Peer())

"""What the programs of the Python peers share. Needs only the standard library, as each has its environment.

A program is run as `python -m benchmarks.peers.programs.NAME ROLE N` with the URL of a database in BENCH_DSN,
and prints one line of JSON:

    setup        install the schema
    fill N       add N jobs that do nothing, many at a time where that is possible: {"jobs", "seconds"}
    add N        the same one by one
    drain N      run a worker until the N jobs have run and that is written, from the start of the first:
                 {"jobs", "seconds", "cpu", "memory"}, CPU time in seconds and memory in MB
    latency N    run a worker and add N jobs, each when the one before has started: {"milliseconds": [...]},
                 from the call that adds to the start of the task
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

DSN = os.environ.get("BENCH_DSN", "")
BATCH = 1000
WARM_UP = 20
PAUSE = 0.002  # seconds between two latencies
LOOK = 0.005  # seconds between two looks at a table
KILOBYTES_PER_MAXRSS = 1024 if sys.platform == "darwin" else 1


class Peer(Protocol):
    """What a program can do."""

    async def setup(self) -> None: ...

    def client(self) -> AbstractAsyncContextManager[None]:
        """What adding needs."""

    async def add(self, number: int) -> None: ...

    async def add_many(self, numbers: range) -> None: ...

    async def drain(self) -> None:
        """Run a worker until nothing is left; `meter` counts, and was told how many there are."""

    def worker(self) -> AbstractAsyncContextManager[None]:
        """A worker that stays."""


class Meter:
    """Counts the jobs that have started; tasks call `hit`, in any thread."""

    def __init__(self) -> None:
        self.first = self.done = 0.0
        self._count = self._expected = 0
        self._lock = threading.Lock()
        self._reached: Future[float] = Future()

    def expect(self, jobs: int) -> None:
        """Say how many more jobs there are to come."""
        with self._lock:
            self._expected = self._count + jobs
            self._reached = Future()

    def hit(self) -> None:
        """Call this in each job."""
        with self._lock:
            now = time.monotonic()
            if not self._count:
                self.first = now
            self._count += 1
            if self._count == self._expected:
                self._reached.set_result(now)

    async def reached(self) -> float:
        """When the last of the expected jobs started."""
        return await asyncio.wrap_future(self._reached)


meter = Meter()


async def until(is_done: Callable[[], Awaitable[bool]]) -> None:
    """Wait until all jobs have started, then until a question to the database is answered with yes.

    How long the worker takes to stop after that does not count.
    """
    await meter.reached()
    while not await is_done():
        await asyncio.sleep(LOOK)
    meter.done = time.monotonic()


@asynccontextmanager
async def background(work: Awaitable[Any], *, listens_after: float = 1.0) -> AsyncIterator[None]:
    """Run a worker that ends when it is cancelled, and fail with it. A backlog needs no time to listen."""
    task = asyncio.ensure_future(work)
    body = asyncio.current_task()
    assert body is not None
    task.add_done_callback(
        lambda ended: None if ended.cancelled() or not ended.exception() else body.cancel()
    )
    await asyncio.sleep(listens_after)
    try:
        yield
    except asyncio.CancelledError:
        if task.done():
            task.result()
        raise
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(task, 5)


def django_database() -> dict[str, Any]:
    """The database as Django's settings have it."""
    url = urlsplit(DSN)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path.lstrip("/"),
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.hostname or query.get("host"),
        "PORT": url.port or query.get("port"),
        "CONN_MAX_AGE": None,
    }


def _seconds_used() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


async def _added(peer: Peer, role: str, jobs: int) -> dict[str, Any]:
    async with peer.client():
        began = time.monotonic()
        if role == "fill":
            for first in range(0, jobs, BATCH):
                await peer.add_many(range(first, min(jobs, first + BATCH)))
        else:
            for number in range(jobs):
                await peer.add(number)
        return {"jobs": jobs, "seconds": time.monotonic() - began}


async def _drained(peer: Peer, jobs: int) -> dict[str, Any]:
    meter.expect(jobs)
    before = _seconds_used()
    await peer.drain()
    ended = meter.done or time.monotonic()
    async with asyncio.timeout(1):
        await meter.reached()
    return {
        "jobs": jobs,
        "seconds": ended - meter.first,
        "cpu": _seconds_used() - before,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KILOBYTES_PER_MAXRSS / 1024,
    }


async def _latencies(peer: Peer, samples: int) -> dict[str, Any]:
    found = []
    async with peer.client(), peer.worker():
        for number in range(WARM_UP + samples):
            meter.expect(1)
            began = time.monotonic()
            await peer.add(number)
            found.append((await meter.reached() - began) * 1000)
            await asyncio.sleep(PAUSE)
    return {"milliseconds": found[WARM_UP:]}


async def _act(peer: Peer, role: str, jobs: int) -> dict[str, Any]:
    if role == "setup":
        await peer.setup()
        return {}
    if role == "drain":
        return await _drained(peer, jobs)
    if role == "latency":
        return await _latencies(peer, jobs)
    return await _added(peer, role, jobs)


def main(peer: Peer) -> None:
    """Act, print the answer, and exit at once: how a peer stops is not measured."""
    role, jobs = sys.argv[1], int(sys.argv[2])
    loops: ModuleType = asyncio
    with suppress(ImportError):
        loops = import_module("uvloop")
    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        print("\n" + json.dumps(runner.run(_act(peer, role, jobs))), flush=True)
        os._exit(0)

"""How long a job of a worker that was killed waits until another worker runs it, with the default settings.

    python benchmarks/recovery.py                   20 kills on an embedded server, five at a time
    python benchmarks/recovery.py --heartbeat       the same behind pgbouncer, where session locks do not hold
    python benchmarks/recovery.py --short           kills among short jobs, which run in held batches
    python benchmarks/recovery.py --short --hold 0  the same with ordinary locks
    python benchmarks/recovery.py --server URL      there, with a role that may create databases

Each kill has a database of its own: a worker process takes a job that does not end, another one joins, the
first gets SIGKILL at some moment. Exit status 1 if a job waited longer than the promised half minute.

With `--short` the first worker is killed among many short jobs, and what counts is when the other one has run
all that were left. That includes the time it needs for those that the first had not fetched.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from graphile_worker import JobHelpers, task
from graphile_worker.embedded import EmbeddedPostgres
from graphile_worker.testing.database import DatabaseServer
from graphile_worker.testing.scratch import scratch_folder

HERE = Path(__file__).resolve()
PROMISE = 30.0
PATIENCE = 120.0
LONGEST_PHASE = 5.0  # seconds: the kill comes at any moment between two sweeps
RUNS = "create table runs (pid integer, at timestamptz default clock_timestamp())"
ADD = "select graphile_worker.add_job('endless')"
LIVENESS = "select liveness from graphile_worker._private_py_workers"
JOBS = "graphile_worker._private_jobs"
SHORT_JOBS = 20_000
ADD_SHORT = f"select count(graphile_worker.add_job('short')) from generate_series(1, {SHORT_JOBS})"
PIDS = "select pid from runs order by at"


@task
async def endless(helpers: JobHelpers) -> None:
    """What the workers run: it notes who runs it, and goes on until its worker ends."""
    await helpers.query("insert into runs (pid) values ($1)", os.getpid())
    await asyncio.Event().wait()


@task
async def short() -> None:
    """What the workers run with `--short`."""


@asynccontextmanager
async def worker(url: str, *flags: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process as anybody starts it; killed at the end."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PG", "GRAPHILE_"))
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "graphile_worker", "-c", url, "--tasks", str(HERE)),
        *("--log-level", "error", *flags),
        env=environment | settings,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


async def seconds_after_kill(url: str, admin_url: str, *, is_pooled: bool) -> float:
    """Kill a worker and see when its job runs elsewhere; workers connect to `url`."""
    liveness = "heartbeat" if is_pooled else "lock"
    flags = ["--no-prepared-statements"] if is_pooled else []
    connection: Any = await asyncpg.connect(admin_url)

    async def pids() -> list[int]:
        return [row["pid"] for row in await connection.fetch(PIDS)]

    async def has_run() -> bool:
        return bool(await pids())

    async def both_known() -> bool:
        return [row["liveness"] for row in await connection.fetch(LIVENESS)] == [liveness] * 2

    try:
        await connection.execute(RUNS)
        await connection.execute(ADD)
        async with worker(url, *flags) as first:
            await until(has_run)
            async with worker(url, *flags) as second:
                await until(both_known)
                await asyncio.sleep(random.uniform(0, LONGEST_PHASE))
                assert await pids() == [first.pid]
                first.kill()
                began = time.monotonic()

                async def runs_elsewhere() -> bool:
                    return second.pid in await pids()

                await until(runs_elsewhere)
                return time.monotonic() - began
    finally:
        await connection.close()


async def seconds_after_kill_among_short(url: str, hold: str | None) -> float:
    """Kill a worker among short jobs and see when another one has run all that are left."""
    settings = {} if hold is None else {"GRAPHILE_WORKER_HOLD": hold}
    connection: Any = await asyncpg.connect(url)

    async def both_known() -> bool:
        return [row["liveness"] for row in await connection.fetch(LIVENESS)] == ["lock"] * 2

    async def is_under_way() -> bool:
        return bool(await connection.fetchval(f"select count(*) < {SHORT_JOBS // 2} from {JOBS}"))

    async def is_done() -> bool:
        return not await connection.fetchval(f"select exists (select from {JOBS})")

    try:
        async with worker(url, **settings) as first, worker(url, **settings):
            await until(both_known)
            await asyncio.sleep(random.uniform(1, LONGEST_PHASE))
            await connection.execute(ADD_SHORT)
            await until(is_under_way)
            first.kill()
            began = time.monotonic()
            await until(is_done)
            return time.monotonic() - began
    finally:
        await connection.close()


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The same database through pgbouncer in transaction mode, as the tests have it."""
    sys.path.append(str(HERE.parents[1] / "tests"))
    from support.pgbouncer import MISSING, PROGRAM, pgbouncer_to

    if PROGRAM is None:
        sys.exit(MISSING)
    with pgbouncer_to(url) as through:
        yield through


async def measure(server: DatabaseServer, options: argparse.Namespace) -> list[float]:
    kills, at_once, heartbeat = options.kills, options.at_once, options.heartbeat
    template = server.create_template()
    turn = asyncio.Semaphore(at_once)

    async def kill(number: int) -> float:
        async with turn:
            name = server.create_database(template=template)
            try:
                with ExitStack() as stack:
                    url = server.url(name)
                    through = stack.enter_context(pooled(url)) if heartbeat else url
                    if options.short:
                        took = await seconds_after_kill_among_short(url, options.hold)
                    else:
                        took = await seconds_after_kill(through, url, is_pooled=heartbeat)
            finally:
                server.drop_database(name)
            print(f"kill {number:>3}: {took:5.1f} s", flush=True)
            return took

    return await asyncio.gather(*(kill(number) for number in range(1, kills + 1)))


@contextmanager
def server_at(url: str | None) -> Iterator[DatabaseServer]:
    with ExitStack() as stack:
        if url is None:
            folder = stack.enter_context(scratch_folder())
            url = stack.enter_context(EmbeddedPostgres(folder, settings={"fsync": "off"})).url()
        server = DatabaseServer(url)
        stack.callback(server.drop_all)
        yield server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--heartbeat", action="store_true", help="behind pgbouncer in transaction mode")
    parser.add_argument("--short", action="store_true", help="among short jobs; one kill at a time")
    parser.add_argument("--hold", help="with --short: how long batches are held; 0 for ordinary locks")
    parser.add_argument("--server", help="URL of a server; default: an embedded one")
    options = parser.parse_args()
    if options.short:
        options.at_once = 1
    with server_at(options.server) as server:
        took = asyncio.run(measure(server, options))
    how = "heartbeats, behind pgbouncer" if options.heartbeat else "session locks"
    if options.short:
        how = f"among short jobs, hold={options.hold or 'default'}"
    print(f"{len(took)} kills, {how}: median {statistics.median(took):.1f} s, worst {max(took):.1f} s")
    return 0 if max(took) <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())

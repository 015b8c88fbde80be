"""What workers cost while they have nothing to do: beside each backlog, and many of them at once.

    python -m benchmarks.idle postgres:///scratch_database --size 1000000

The server must run on this machine (Linux): its CPU time is read from /proc. A scratch schema is made and
removed. For each backlog one worker process is started and, when it has settled, watched for a while, and its
sessions on the server; then so many pools in one process on the empty table, whose transactions are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
from benchmarks.scratch import BACKLOGS, PROBE, Scratch, scratch
from benchmarks.throughput import MODULE
from benchmarks.worker_process import worker_process

from graphile_worker import run
from graphile_worker.options import WorkerOptions

SETTLE = 8.0  # seconds: the first fetches, and the first beats of the heart
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SESSIONS = """
select pid from pg_stat_activity where datname = current_database() and application_name = 'graphile_worker'
"""
TRANSACTIONS = """
select xact_commit + xact_rollback from pg_stat_database where datname = current_database()
"""


def cpu_of(pid: int) -> float:
    """Seconds of CPU time that a process has used, and its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / CLOCK_TICKS


async def watch(
    connection: asyncpg.Connection, scratch_options: WorkerOptions, seconds: float
) -> tuple[float, float]:
    """Percent of one processor that an idle worker and its sessions on the server use."""
    async with worker_process("answer", scratch_options, module=MODULE) as worker:
        await worker.receive()
        await worker.begin()
        await asyncio.sleep(SETTLE)
        pid = worker.pid
        sessions = [row[0] for row in await connection.fetch(SESSIONS)]

        def used() -> tuple[float, float]:
            return cpu_of(pid), sum(cpu_of(session) for session in sessions)

        before, began = used(), time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        return tuple(  # type: ignore[return-value]
            100 * (after - earlier) / took for earlier, after in zip(before, used(), strict=True)
        )


async def beside_backlogs(connection: asyncpg.Connection, place: Scratch, size: int, seconds: float) -> None:
    print(f"{'BACKLOG':<32} {'SIZE':>9} {'WORKER %':>9} {'SESSIONS %':>10}")

    async def line(name: str, count: int) -> None:
        await place.settle()
        worker, sessions = await watch(connection, place.options, seconds)
        print(f"{name:<32} {count:>9,} {worker:>9.2f} {sessions:>10.2f}", flush=True)

    await line("none", 0)
    for backlog in BACKLOGS:
        async with place.beside(backlog):
            await place.grow(backlog, 0, size)
            await line(backlog.name, size)
    await place.clear()


async def many_pools(
    connection: asyncpg.Connection, options: WorkerOptions, pools: int, seconds: float
) -> None:
    async def probe(payload: object) -> None:
        pass

    async with AsyncExitStack() as stack:
        for _ in range(pools):
            await stack.enter_async_context(run(options=options, task_list={PROBE: probe}))
        await asyncio.sleep(SETTLE)
        before, began = await connection.fetchval(TRANSACTIONS), time.monotonic()
        await asyncio.sleep(seconds)
        after, took = await connection.fetchval(TRANSACTIONS), time.monotonic() - began
        backends = await connection.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database()"
        )
    print(
        f"{pools} idle pools: {(after - before) / took:.1f} transactions per second, {backends} connections"
    )


async def main(url: str, size: int, seconds: float, pools: int) -> None:
    connection = await asyncpg.connect(url)
    async with scratch(url) as place:
        if size:
            await beside_backlogs(connection, place, size, seconds)
        if pools:
            await many_pools(connection, place.options, pools, seconds)
    await connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--size", type=int, default=100_000, help="of each backlog")
    parser.add_argument("--seconds", type=float, default=20, help="to watch each")
    parser.add_argument("--pools", type=int, default=50)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.size, chosen.seconds, chosen.pools))

"""How long jobs of a Node worker wait beside a worker that drains a backlog, with and without held batches.

    PYTHONPATH=tests python -m benchmarks.beside_node postgres:///scratch_database --rounds 6

Both workers share the table. One job at a time is added with a better priority: in turns one that only Node
can run, and one that both can. Rounds with `hold` 0.05 and 0 alternate. Measured from the add to the start.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.scratch import Scratch, scratch

from graphile_worker import JobSpec, WorkerUtils, make_worker_utils, run
from interop.node import Node
from interop.node_packages import provide

BACKLOG = 250_000
HOLDS = (0.05, 0.0)
START = 0.7  # seconds until the worker drains at full speed


async def work(url: str, schema: str, hold: float) -> None:
    """Drain the backlog until standard input ends."""

    async def load() -> None:
        pass

    async def of_both(payload: Any) -> None:
        print(payload["number"], flush=True)

    tasks: dict[str, Any] = {"load": load, "of_both": of_both}
    async with run(connection_string=url, schema=schema, task_list=tasks, concurrency=10, hold=hold):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Starts:
    """When jobs started, and where."""

    def __init__(self) -> None:
        self._at: dict[int, asyncio.Future[tuple[str, float]]] = defaultdict(asyncio.Future)

    async def of(self, number: int) -> tuple[str, float]:
        """Which worker started the job, and when."""
        return await asyncio.wait_for(self._at[number], 30)

    @asynccontextmanager
    async def reading(self, who: str, process: asyncio.subprocess.Process) -> AsyncIterator[None]:
        """Read what a worker prints, from "ready" to the end of the block."""
        assert process.stdout is not None
        assert process.stdin is not None
        while (await process.stdout.readline()).strip() != b"ready":
            pass
        reader = asyncio.create_task(self._read(who, process.stdout))
        yield
        process.stdin.close()
        await reader

    async def _read(self, who: str, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            self._at[int(line)].set_result((who, time.perf_counter()))


async def measure(
    place: Scratch, utils: WorkerUtils, url: str, hold: float, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds that the jobs waited, by their task and the worker that ran them."""
    schema = place.schema
    await place.clear()
    for first in range(0, BACKLOG, 10_000):
        await utils.add_jobs([JobSpec("load")] * min(10_000, BACKLOG - first), return_jobs=False)
    await place.settle()
    starts = Starts()
    waits: dict[str, list[float]] = defaultdict(list)
    node = Node(provide(), url, schema)
    script = str(Path(__file__).with_suffix(".mjs"))
    ours = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.beside_node",
        url,
        "--work",
        schema,
        str(hold),
        stdin=PIPE,
        stdout=PIPE,
    )
    async with (
        node.process([script], stdin=PIPE) as theirs,
        starts.reading("Node", theirs),
        starts.reading("Python", ours),
    ):
        await asyncio.sleep(START)
        end = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < end:
            for task in ("of_node", "of_both"):
                number += 1
                added = time.perf_counter()
                await utils.add_job(task, {"number": number}, priority=-1)
                who, started = await starts.of(number)
                waits[f"{task}, run by {who}"].append((started - added) * 1000)
    await ours.wait()
    return waits


async def main(url: str, rounds: int, seconds: float) -> None:
    medians: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    async with scratch(url) as place, make_worker_utils(options=place.options) as utils:
        for number in range(rounds):
            for hold in HOLDS[:: -1 if number % 2 else 1]:
                for kind, waits in (await measure(place, utils, url, hold, seconds)).items():
                    late = statistics.quantiles(waits, n=20)[-1] if len(waits) > 1 else waits[0]
                    medians[kind, hold].append((statistics.median(waits), late))
    print(f"{'JOBS':<24} {'HOLD':>5} {'MEDIAN':>8} {'P95':>8}")
    for (kind, hold), values in sorted(medians.items()):
        median, late = map(statistics.median, zip(*values, strict=True))
        print(f"{kind:<24} {hold:>5} {median:>5.1f} ms {late:>5.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2, help="to measure in each round")
    parser.add_argument("--work", nargs=2, metavar=("SCHEMA", "HOLD"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        asyncio.run(work(chosen.url, chosen.work[0], float(chosen.work[1])))
    else:
        asyncio.run(main(chosen.url, chosen.rounds, chosen.seconds))

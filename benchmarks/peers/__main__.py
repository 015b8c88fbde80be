"""This package and other queues on the same loads, in turns, on one server.

    python -m benchmarks.peers
    python -m benchmarks.peers --only Rust Node PgQueuer --jobs 20_000 --rounds 5 --samples 1_000

Starts a server of its own. Each peer is installed once, by name, into a cache folder (`BENCH_PEERS_CACHE`),
and has a program in `programs/` with the fastest of its documented settings that was tried. In each round
each peer gets a new database. DRAIN is jobs per second in one worker process, from the start of the first job
until all are done and that is written; WORKER and SERVER are µs of CPU time for each of these jobs, MB is the
memory of the worker at most. ADD and MANY are jobs added per second, one by one and up to 1,000 at a time.
P50 and P99 are milliseconds from adding a job to its start on an idle worker in the same process. All figures
are medians of the rounds.

Some peers do less for a job, some do more: Redis does not write each change to a disk, DBOS records each step
of a workflow. Slow peers get a tenth of the jobs. A peer that cannot be installed is skipped, and one that
fails or takes too long is reported; both with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from benchmarks.own_server import CpuClock, OwnServer, own_server
from benchmarks.peers.catalogue import OURS, PEERS, ROOT, Peer, Ready, UnavailableError, provide

DATABASE = "peer"
SETTLE = 0.5  # seconds for the server's processes to end; what they used is counted when they have
MOST_SINGLE_ADDS = 500
COLUMNS = ("drain", "worker", "server", "memory", "add", "many", "p50", "p99")


class StepError(Exception):
    """A program failed, or took too long; the text says which role and why."""


class Program:
    """The program of one peer, on one database."""

    def __init__(self, ready: Ready, environment: dict[str, str], limit: float) -> None:
        self._ready = ready
        self._environment = os.environ | ready.environment | environment
        self._limit = limit

    def act(self, role: str, jobs: int = 0) -> dict[str, Any]:
        process = subprocess.Popen(
            [*self._ready.command, role, str(jobs)],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=self._limit)
        except subprocess.TimeoutExpired:
            raise StepError(f"{role}: did not end within {self._limit:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()
        lines = out.strip().splitlines()
        if process.returncode or not lines:
            said = errors.strip().splitlines()
            raise StepError(f"{role}: {said[-1] if said else f'status {process.returncode}'}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


async def on_server(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def new_database(server: OwnServer) -> str:
    drop = f"drop database if exists {DATABASE} with (force)"
    asyncio.run(on_server(server.url, drop, f"create database {DATABASE}"))
    return urlunsplit(urlsplit(server.url)._replace(path=f"/{DATABASE}"))


def measure(
    peer: Peer, ready: Ready, server: OwnServer, redis: str, chosen: argparse.Namespace
) -> dict[str, float]:
    """The figures of one round."""
    url = new_database(server)
    program = Program(ready, {"BENCH_DSN": url, "BENCH_REDIS": redis}, chosen.limit)
    jobs = jobs_of(peer, chosen)
    program.act("setup")
    filled = program.act("fill", jobs)
    asyncio.run(on_server(url, "vacuum (analyze)", "checkpoint"))
    time.sleep(SETTLE)
    clock = CpuClock(server.pid)
    before = clock.seconds()
    drained = program.act("drain", jobs)
    time.sleep(SETTLE)
    used = clock.seconds() - before
    waits = program.act("latency", chosen.samples)["milliseconds"]
    added = program.act("add", min(jobs, MOST_SINGLE_ADDS))
    late = quantiles(waits, n=100, method="inclusive")
    return {
        "drain": jobs / drained["seconds"],
        "worker": drained["cpu"] / jobs * 1e6,
        "server": used / jobs * 1e6,
        "memory": drained["memory"],
        "add": added["jobs"] / added["seconds"],
        "many": filled["jobs"] / filled["seconds"],
        "p50": late[49],
        "p99": late[98],
    }


def jobs_of(peer: Peer, chosen: argparse.Namespace) -> int:
    return max(20, chosen.jobs // 10) if peer.slow else int(chosen.jobs)


@contextmanager
def redis_server(wanted: bool) -> Iterator[str | None]:
    """The URL of a Redis server with default settings; None if there is no such program."""
    program = shutil.which("redis-server") if wanted else None
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="graphile-worker-bench-") as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--logfile", ""]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


def wait_for(port: int) -> None:
    for _ in range(100):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise RuntimeError("redis-server does not answer")


def install(peers: Sequence[Peer], redis: str | None) -> tuple[dict[str, Ready], dict[str, str]]:
    """The peers that can be run, and why others cannot."""
    ready, reasons = {}, {}
    for peer in peers:
        if peer.needs_redis and redis is None:
            reasons[peer.name] = "skipped: redis-server is not installed (Debian: redis-server)"
            continue
        try:
            ready[peer.name] = provide(peer)
        except UnavailableError as error:
            reasons[peer.name] = f"skipped: {error}"
    return ready, reasons


def compare(server: OwnServer, redis: str | None, chosen: argparse.Namespace, peers: Sequence[Peer]) -> None:
    ready, reasons = install(peers, redis)
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(chosen.rounds):
        for name in list(ready)[:: -1 if number % 2 else 1]:
            if name in reasons:
                continue
            try:
                figures = measure(PEERS[name], ready[name], server, redis or "", chosen)
                found[name].append(figures)
            except StepError as error:
                reasons[name] = f"failed in round {number + 1}, {error}"
    print(
        f"{'PEER':<14} {'VERSION':<9} {'JOBS':>7} {'DRAIN':>8} {'WORKER':>7} {'SERVER':>7} {'MB':>5} "
        f"{'ADD':>7} {'MANY':>8} {'P50':>7} {'P99':>7}"
    )
    for name, rounds in sorted(found.items(), key=lambda item: -median(each["drain"] for each in item[1])):
        row = {column: median(each[column] for each in rounds) for column in COLUMNS}
        server_cost = "-" if PEERS[name].needs_redis else f"{row['server']:,.0f}"
        print(
            f"{name:<14} {ready[name].version:<9} {jobs_of(PEERS[name], chosen):>7,} {row['drain']:>8,.0f} "
            f"{row['worker']:>7,.0f} {server_cost:>7} {row['memory']:>5,.0f} {row['add']:>7,.0f} "
            f"{row['many']:>8,.0f} {row['p50']:>7,.1f} {row['p99']:>7,.1f}"
        )
    for name, reason in reasons.items():
        print(f"{name}: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=200, help="jobs to measure the latency with")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each step of a peer")
    chosen = parser.parse_args()
    names = [OURS, *(name for name in chosen.only or PEERS if name != OURS)]
    peers = [PEERS[name] for name in names]
    with own_server() as server, redis_server(any(peer.needs_redis for peer in peers)) as redis:
        compare(server, redis, chosen, peers)


if __name__ == "__main__":
    main()

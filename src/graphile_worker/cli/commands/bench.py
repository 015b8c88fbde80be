"""`graphile-worker bench`: how fast jobs are added, run and started on this database and this machine.

Each measured worker is a process of its own, as in production, so that it does not share the event loop of
the client that adds jobs. It gets its options from standard input, because all users of the machine can see
arguments. It writes a line when it is ready, and begins when its input continues.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import platform
import secrets
import signal
import sys
import tempfile
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

import click
import msgspec

from ...client import make_worker_utils
from ...config import Settings
from ...database.connections.connection import Connection
from ...database.connections.dsn import Dsn
from ...database.connections.errors import translate_errors
from ...database.connections.open import connect, resolve_connection
from ...database.migrations import migrate
from ...database.migrations.script import uninstall_sql
from ...database.sql import load
from ...database.statements.fetch import register_tasks
from ...errors import ConnectionConfigError, DatabaseError, GraphileWorkerError
from ...values import __version__
from ...values.options import WorkerOptions
from ...values.schema_name import SchemaName
from ...values.spec import JobSpec
from ...values.text import duration
from ..support.client import run_async, with_database
from ..support.command import Output, command
from ..support.output import print_table, progress_bar
from ..support.parameters import CONNECTION_OPTION

TASK = "bench"
PREFIX = "graphile_worker_bench_"
ROUNDS = 3
MOST_PROCESSES = 4  # unless asked for: each has connections of its own
BATCH = 1000
WARM_UP = 20  # jobs that are not counted, while connections, plans and code are cold
PAUSE = 0.002  # seconds between two latencies, for the outcome of the last job to be written
CLOSE_WITHIN = 5.0  # seconds, in which an interrupted statement is cancelled on the server
DROP_WITHIN = 60.0


@command("bench")
@CONNECTION_OPTION
@click.option("--embedded", is_flag=True, help="Use an embedded PostgreSQL in a temporary directory.")
@click.option(
    "--jobs",
    type=click.IntRange(min=10),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Jobs to run in each round.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Run jobs in this many worker processes, too.  [default: one for each processor, at most 4]",
)
def bench_command(settings: Settings, embedded: bool, jobs: int, processes: int | None) -> Output:
    """Measure the speed of adding, running and starting jobs.

    Rates are medians of three rounds with the default options of a worker. It uses a scratch schema, which
    it always drops. Nothing else in the database changes, but the server is busy, and the notifications wake
    other workers on the database.

    \b
    graphile-worker bench --embedded
    graphile-worker bench -c postgres:///my_database --jobs 5000 --json
    """
    number = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
    with _signals_as_interrupts() as received:
        try:
            with _database(settings, embedded=embedded) as options:
                report = run_async(measure(options, jobs=jobs, processes=number))
        except KeyboardInterrupt:
            status = 128 + (received[0] if received else signal.SIGINT)
            return Output(None, lambda: None, status=status)
    return Output(lambda: report, lambda: _print(report))


def _print(report: dict[str, Any]) -> None:
    environment, latency = report["environment"], report["latency"]
    server = environment["postgresql"]
    click.echo(
        f"PostgreSQL {server['version']} (fsync {server['fsync']}, synchronous_commit "
        f"{server['synchronous_commit']}), {environment['cpus']} CPUs on this machine, "
        f"Python {environment['python']} with {environment['event_loop']}\n"
    )
    rows = [(f"adding, {rate['name']}", rate) for rate in report["adding"]]
    rows += [(f"running, worker processes: {rate['processes']}", rate) for rate in report["running"]]
    print_table(
        ("measured", "jobs", "jobs/s"),
        [(name, rate["jobs"], round(rate["per_second"])) for name, rate in rows],
    )
    middle, late = duration(latency["median_ms"] / 1000), duration(latency["p95_ms"] / 1000)
    click.echo(
        f"\nFrom adding a job to its start on an idle worker: median {middle}, p95 {late} "
        f"({latency['samples']:,} jobs, one at a time)"
    )


async def measure(options: WorkerOptions, *, jobs: int, processes: int) -> dict[str, Any]:
    """Everything, on the database of `options`; the other options have no effect."""
    options = WorkerOptions(
        connection_string=options.connection_string, prepared_statements=options.prepared_statements
    )
    single_adds, samples = min(1000, max(10, jobs // 20)), min(1000, max(10, jobs // 20))
    one_by_one: list[float] = []
    in_batches: list[float] = []
    running: dict[int, list[float]] = {number: [] for number in sorted({1, processes})}
    steps = list(itertools.product(range(1, ROUNDS + 1), running))
    environment = await _environment(options)
    with progress_bar("measuring", total=len(steps) + 1) as bar:
        for done, (number, workers) in enumerate(steps):
            bar.show(f"round {number} of {ROUNDS}, worker processes: {workers}", done=done)
            async with scratch_schema(options) as scratch:
                rates = await _adding(scratch, single_adds, jobs)
                one_by_one.append(rates[0])
                in_batches.append(rates[1])
                running[workers].append(await _running(scratch, single_adds + jobs, workers))
        bar.show("latency", done=len(steps))
        async with scratch_schema(options) as scratch:
            latencies = quantiles(await _latencies(scratch, samples), n=20, method="inclusive")
    return {
        "environment": environment,
        "adding": [
            {"name": "one by one", "jobs": single_adds, "per_second": median(one_by_one)},
            {"name": f"in batches of {BATCH:,}", "jobs": jobs, "per_second": median(in_batches)},
        ],
        "running": [
            {"processes": workers, "jobs": single_adds + jobs, "per_second": median(rates)}
            for workers, rates in running.items()
        ],
        "latency": {"samples": samples, "median_ms": 1000 * latencies[9], "p95_ms": 1000 * latencies[18]},
    }


async def _environment(options: WorkerOptions) -> dict[str, Any]:
    from ...runner.process.run_worker import fast_loop  # the whole worker, which the help does not need

    async with _connected(options) as connection:
        server = await connection.fetchrow(load("bench/server"))
    return {
        "graphile_worker": __version__,
        "python": platform.python_version(),
        "event_loop": "uvloop" if fast_loop() is not None else "asyncio",
        "platform": f"{sys.platform} {platform.machine()}",
        "cpus": os.cpu_count(),
        "postgresql": dict(server.items()) if server is not None else {},
    }


async def _adding(options: WorkerOptions, single_adds: int, jobs: int) -> tuple[float, float]:
    """Jobs added per second over one connection, with no worker running: one by one, and in batches."""
    async with make_worker_utils(options=options) as utils:
        warm_up = [await utils.add_job(TASK, {"id": 0}), *await utils.add_jobs([JobSpec(TASK, {"id": 0})])]
        await utils.complete_jobs([job.id for job in warm_up])
        began = time.monotonic()
        for number in range(single_adds):
            await utils.add_job(TASK, {"id": number})
        between = time.monotonic()
        for first in range(0, jobs, BATCH):
            await utils.add_jobs(
                [JobSpec(TASK, {"id": number}) for number in range(first, min(first + BATCH, jobs))]
            )
        ended = time.monotonic()
    return single_adds / (between - began), jobs / (ended - between)


async def _running(options: WorkerOptions, jobs: int, processes: int) -> float:
    """Ready jobs run per second, from the first start until all outcomes are written."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_worker("drain", options)) for _ in range(processes)]
        for worker in workers:
            await _line(worker)
        reports = await asyncio.gather(*map(_report, workers))
    executed = sum(report["executed"] for report in reports)
    if executed != jobs:
        raise GraphileWorkerError(f"workers ran {executed:,} of {jobs:,} jobs; the result would be wrong")
    busy = [report for report in reports if report["executed"]]
    return float(jobs / (max(each["ended"] for each in busy) - min(each["first"] for each in busy)))


async def _latencies(options: WorkerOptions, samples: int) -> list[float]:
    """Seconds from the call that adds a job until its task runs in another process, one job at a time."""
    found = []
    async with _worker("answer", options) as worker, make_worker_utils(options=options) as utils:
        await _line(worker)
        for _ in range(WARM_UP + samples):
            began = time.monotonic()
            await utils.add_job(TASK)
            found.append(float(await _line(worker)) - began)
            await asyncio.sleep(PAUSE)
    return found[WARM_UP:]


# -- worker processes --------------------------------------------------------------------------------------


@asynccontextmanager
async def _worker(duty: str, options: WorkerOptions) -> AsyncIterator[Process]:
    """A worker process; it is killed at the end of the block."""
    command = (sys.executable, "-m", __name__, duty)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,  # Ctrl-C reaches us only
    )
    try:
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(msgspec.to_builtins(options)) + b"\n")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _line(worker: Process) -> bytes:
    """The next line of a worker process; raises if it ends instead."""
    line = await worker.stdout.readline() if worker.stdout is not None else b""
    return line or await _last_words(worker)


async def _report(worker: Process) -> dict[str, Any]:
    """Let it begin, and wait for its report."""
    report: dict[str, Any] = msgspec.json.decode(await _last_words(worker))
    return report


async def _last_words(worker: Process) -> bytes:
    """What it writes until it ends; raises if it fails."""
    output, errors = await worker.communicate(b"begin\n")
    if worker.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"status {worker.returncode}"
        raise GraphileWorkerError(f"a worker process of the benchmark ended early: {reason}")
    return output


async def _drain(options: WorkerOptions) -> None:
    """Run all ready jobs; report their number, the start of the first, and the time when all is written."""
    from ...runner import run_once

    executed, first = 0, 0.0

    async def count(payload: Any) -> None:
        nonlocal executed, first
        if not executed:
            first = time.monotonic()
        executed += 1

    click.echo("ready")
    await asyncio.to_thread(sys.stdin.readline)
    await run_once(options=options, task_list={TASK: count})
    click.echo(msgspec.json.encode({"executed": executed, "first": first, "ended": time.monotonic()}))


async def _answer(options: WorkerOptions) -> None:
    """Run jobs and report when each of them starts, on the clock that all processes share."""
    from ...runner import run

    async def report(payload: Any) -> None:
        click.echo(time.monotonic())

    async with run(options=options, task_list={TASK: report}):
        click.echo("ready")
        await asyncio.to_thread(sys.stdin.read)  # until the benchmark ends


def work(duty: str) -> None:
    """The program of a worker process."""
    from ...runner.process.run_worker import fast_loop

    options = msgspec.json.decode(sys.stdin.readline(), type=WorkerOptions)
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    gc.freeze()  # as the command does before it starts work
    with asyncio.Runner(loop_factory=fast_loop()) as loop:
        loop.run(_drain(options) if duty == "drain" else _answer(options))


# -- the database ------------------------------------------------------------------------------------------


@asynccontextmanager
async def scratch_schema(options: WorkerOptions) -> AsyncIterator[WorkerOptions]:
    """The options with a schema of their own, which is always dropped at the end."""
    schema = SchemaName(f"{PREFIX}{os.getpid()}_{secrets.token_hex(4)}")
    try:
        with translate_errors(schema):
            async with _connected(options) as connection:
                await migrate(connection, schema)
                await register_tasks(connection, schema, [TASK])  # or the client would warn of an unknown one
        yield options.with_values(schema=schema.name)
    finally:
        with _later_interrupts():
            await _drop(options, schema)


async def _drop(options: WorkerOptions, schema: SchemaName) -> None:
    try:
        async with asyncio.timeout(DROP_WITHIN), _connected(options) as connection:
            await connection.execute(uninstall_sql(schema, drop_jobs=True))
    except Exception as error:
        raise DatabaseError(
            f"the scratch schema could not be dropped ({error or type(error).__name__}); once the database "
            f"is reachable again, run: drop schema {schema.quoted} cascade"
        ) from error


@asynccontextmanager
async def _connected(options: WorkerOptions) -> AsyncIterator[Connection]:
    found = resolve_connection(options.connection_string)
    assert isinstance(found, Dsn)  # noqa: S101 - no pool was given
    connection = await connect(
        found, prepared_statements=options.prepared_statements, application_name="graphile-worker bench"
    )
    try:
        yield connection
    finally:
        with suppress(Exception):  # in whatever state it is
            await connection.close(timeout=CLOSE_WITHIN)


@contextmanager
def _database(settings: Settings, *, embedded: bool) -> Iterator[WorkerOptions]:
    """The options with a connection to the user's database or to a temporary server."""
    if not embedded:
        options = with_database(settings).worker
        try:
            resolve_connection(options.connection_string)
        except ConnectionConfigError as error:
            raise ConnectionConfigError(f"{error}; or use a temporary server with --embedded") from error
        yield options
        return
    from ...database.embedded import EmbeddedPostgres

    with (
        tempfile.TemporaryDirectory(prefix="graphile-worker-bench-", ignore_cleanup_errors=True) as directory,
        EmbeddedPostgres(Path(directory) / "postgres") as server,
    ):
        yield settings.worker.with_values(connection_string=server.url(), prepared_statements=True)


@contextmanager
def _later_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from leaving the schema behind: it takes effect after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that the schema is dropped; gives the signals received."""
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    work(sys.argv[1])

"""`graphile-worker bench`: how fast jobs are added, run and started on this database and this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import platform
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

import click

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
from ..bench.loads import LOADS, PLAIN, TASK
from ..bench.worker import ANSWER, line_of, report_of, worker_process
from ..support.client import run_async, with_database
from ..support.command import Output, command
from ..support.output import print_table, progress_bar
from ..support.parameters import CONNECTION_OPTION, Parsed

PREFIX = "graphile_worker_bench_"
ROUNDS = 3
MOST_PROCESSES = 4  # unless asked for: each has connections of its own
BATCH = 1000
WARM_UP = 20  # jobs that are not counted, while connections, plans and code are cold
PAUSE = 0.002  # seconds between two latencies, for the outcome of the last job to be written
CLOSE_WITHIN = 5.0  # seconds, in which an interrupted statement is cancelled on the server
DROP_WITHIN = 60.0


def _loads(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not set(names) <= set(LOADS):
        raise ValueError(f"expected names from {', '.join(LOADS)}; got {text!r}")
    return names


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
@click.option(
    "--loads",
    type=Parsed("names", _loads, words=tuple(LOADS)),
    default=PLAIN,
    show_default=True,
    metavar="NAMES",
    help=f"Kinds of jobs to run, separated by commas: {', '.join(LOADS)}.",
)
def bench_command(
    settings: Settings, embedded: bool, jobs: int, processes: int | None, loads: tuple[str, ...]
) -> Output:
    """Measure the speed of adding, running and starting jobs.

    Rates are medians of three rounds with the default options of a worker. It uses a scratch schema, which
    it always drops. Nothing else in the database changes, but the server is busy, and the notifications wake
    other workers on the database.

    \b
    graphile-worker bench --embedded
    graphile-worker bench -c postgres:///my_database --jobs 5000 --json
    graphile-worker bench --embedded --loads plain,failing,one-queue
    """
    number = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
    with _signals_as_interrupts() as received:
        try:
            with _database(settings, embedded=embedded) as options:
                report = run_async(measure(options, jobs=jobs, processes=number, loads=loads))
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
    rows += [
        (f"{LOADS[rate['load']].title}, worker processes: {rate['processes']}", rate)
        for rate in report["running"]
    ]
    print_table(
        ("measured", "jobs", "jobs/s"),
        [(name, rate["jobs"], round(rate["per_second"])) for name, rate in rows],
    )
    if latency is not None:
        middle, late = duration(latency["median_ms"] / 1000), duration(latency["p95_ms"] / 1000)
        click.echo(
            f"\nFrom adding a job to its start on an idle worker: median {middle}, p95 {late} "
            f"({latency['samples']:,} jobs, one at a time)"
        )


async def measure(
    options: WorkerOptions, *, jobs: int, processes: int, loads: Sequence[str] = (PLAIN,)
) -> dict[str, Any]:
    """Everything, on the database of `options`; the other options have no effect.

    Adding and latency belong to plain jobs.
    """
    options = WorkerOptions(
        connection_string=options.connection_string, prepared_statements=options.prepared_statements
    )
    few = min(1000, max(10, jobs // 20))
    adding: dict[str, tuple[int, list[float]]] = {}
    running: dict[tuple[str, int], tuple[int, list[float]]] = {}
    steps = list(itertools.product(range(1, ROUNDS + 1), loads, sorted({1, processes})))
    environment = await _environment(options)
    with progress_bar("measuring", total=len(steps) + 1) as bar:
        for done, (number, load, workers) in enumerate(steps):
            about = "" if load == PLAIN else f", {load}"
            bar.show(f"round {number} of {ROUNDS}{about}, worker processes: {workers}", done=done)
            async with scratch_schema(options) as scratch:
                if load == PLAIN:
                    for name, count, rate in await _adding(scratch, few, jobs):
                        adding.setdefault(name, (count, []))[1].append(rate)
                else:
                    await _fill(scratch, load, jobs)
                count = few + jobs if load == PLAIN else jobs
                rate = await _running(scratch, count, workers, load)
                running.setdefault((load, workers), (count, []))[1].append(rate)
        bar.show("latency", done=len(steps))
        latency = await _latency(options, few) if PLAIN in loads else None
    return {
        "environment": environment,
        "adding": [
            {"name": name, "jobs": count, "per_second": median(rates)}
            for name, (count, rates) in adding.items()
        ],
        "running": [
            {"load": load, "processes": workers, "jobs": count, "per_second": median(rates)}
            for (load, workers), (count, rates) in running.items()
        ],
        "latency": latency,
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


async def _adding(options: WorkerOptions, single_adds: int, jobs: int) -> list[tuple[str, int, float]]:
    """Jobs per second over one connection, with no worker running: how, how many, and the rate."""
    async with make_worker_utils(options=options) as utils:
        warm_up = [await utils.add_job(TASK, {"id": 0}), *await utils.add_jobs([JobSpec(TASK, {"id": 0})])]
        await utils.complete_jobs([job.id for job in warm_up])
        began = time.monotonic()
        for number in range(single_adds):
            await utils.add_job(TASK, {"id": number})
        between = time.monotonic()
        for first in range(0, jobs, BATCH):
            await utils.add_jobs(LOADS[PLAIN].specs(first, min(first + BATCH, jobs)))
        ended = time.monotonic()
    return [
        ("one by one", single_adds, single_adds / (between - began)),
        (f"in batches of {BATCH:,}", jobs, jobs / (ended - between)),
    ]


async def _fill(options: WorkerOptions, load: str, jobs: int) -> None:
    async with make_worker_utils(options=options) as utils:
        for first in range(0, jobs, BATCH):
            await utils.add_jobs(LOADS[load].specs(first, min(first + BATCH, jobs)), return_jobs=False)


async def _running(options: WorkerOptions, jobs: int, processes: int, load: str = PLAIN) -> float:
    """Ready jobs run per second, from the first start until all outcomes are written."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker_process(load, options)) for _ in range(processes)]
        for worker in workers:
            await line_of(worker)
        reports = await asyncio.gather(*map(report_of, workers))
    executed = sum(report["executed"] for report in reports)
    if executed != jobs:
        raise GraphileWorkerError(f"workers ran {executed:,} of {jobs:,} jobs; the result would be wrong")
    busy = [report for report in reports if report["executed"]]
    return float(jobs / (max(each["ended"] for each in busy) - min(each["first"] for each in busy)))


async def _latency(options: WorkerOptions, samples: int) -> dict[str, Any]:
    async with scratch_schema(options) as scratch:
        found = quantiles(await _latencies(scratch, samples), n=20, method="inclusive")
    return {"samples": samples, "median_ms": 1000 * found[9], "p95_ms": 1000 * found[18]}


async def _latencies(options: WorkerOptions, samples: int) -> list[float]:
    """Seconds from the call that adds a job until its task runs in another process, one job at a time."""
    found = []
    async with worker_process(ANSWER, options) as worker, make_worker_utils(options=options) as utils:
        await line_of(worker)
        for _ in range(WARM_UP + samples):
            began = time.monotonic()
            await utils.add_job(TASK)
            found.append(float(await line_of(worker)) - began)
            await asyncio.sleep(PAUSE)
    return found[WARM_UP:]


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

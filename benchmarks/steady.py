"""Whether anything grows while jobs are added and run at a steady rate, beside large tables.

    python -m benchmarks.steady
    python -m benchmarks.steady --waiting 10_000_000 --kept 10_000_000 --minutes 30 --rate 20_000 --tuned
    python -m benchmarks.steady postgres:///scratch_database

Uses a scratch schema, on a server of its own unless a URL is given. Autovacuum must be on. A process of its
own adds what is due every 10 ms; ADDED/S says whether it kept the pace, LATE how far it was behind at worst.
BACKLOG is what was added and has not started. P50 and P99 are milliseconds from the call that adds a job to
its start. JOBS and INDEXES are the size of the jobs table in MB, VACUUMS how often autovacuum has been there,
HISTORY the size of the history, OTHERS that of all other tables. Three columns are the worst of the minute,
looked at every second: DEAD is dead rows of the jobs table, OLDEST the age of the oldest open transaction in
seconds, XMIN how many transactions are newer than the oldest snapshot; vacuum removes what died before it.

The first minute warms up. At the end, the two halves of the others are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg
from benchmarks.own_server import own_server
from benchmarks.scratch import DAY, LOAD, Jobs, Scratch, scratch
from benchmarks.throughput import MODULE
from benchmarks.worker_main import seconds_of
from benchmarks.worker_process import BenchProcess, worker_process

SLOTS = 10
AT_A_TIME = 500_000  # rows to fill a table with in one statement
LATE_REPORT = 30.0  # seconds
MEGABYTE = 1_000_000
FILL_HISTORY = """
insert into {schema}._private_py_history (
  job_id, task_id, state, priority, attempts, max_attempts, created_at, run_at, started_at, finished_at,
  duration, pool_id, expires_on
)
select
  -number, (select min(id) from {schema}._private_py_task_names), 'completed', 0, 1, 25, now(), now(), now(),
  now() - number * interval '1 millisecond', 0.001, 'pool_1', current_date + 1 + number % 7
from generate_series($1::integer, $2::integer) as number
"""
PREPARE_HISTORY = """
insert into {schema}._private_py_task_names (id, identifier)
select id, identifier from {schema}._private_tasks on conflict do nothing;
select {schema}._private_py_add_partition('{schema}._private_py_history', current_date + ahead)
from generate_series(0, 8) as ahead
"""
TUNE = """
alter table {schema}._private_jobs set (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2
)
"""
"""What the page on performance recommends."""
TABLES = """
select
  coalesce(parent.relname, class.relname)::text as name, sum(pg_table_size(class.oid))::bigint as bytes,
  sum(pg_indexes_size(class.oid))::bigint as index_bytes,
  coalesce(sum(stat.autovacuum_count), 0)::bigint as vacuums
from pg_class as class
left join pg_inherits as inherits on inherits.inhrelid = class.oid
left join pg_class as parent on parent.oid = inherits.inhparent
left join pg_stat_all_tables as stat on stat.relid = class.oid
where class.relnamespace = $1::text::regnamespace and class.relkind = 'r'
group by 1
"""
HORIZON = """
select
  coalesce(
    max(extract(epoch from clock_timestamp() - xact_start)) filter (where state <> 'idle'), 0
  )::double precision as seconds,
  coalesce(max(age(backend_xmin)), 0)::bigint as transactions,
  (
    select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables
    where relid = ($1::text || '._private_jobs')::regclass
  ) as dead
from pg_stat_activity
where pid <> pg_backend_pid() and backend_type = 'client backend' and datname = current_database()
"""
"""A session that reads notifications is idle, in a transaction that seems to have begun long ago."""
JOBS, HISTORY = "_private_jobs", "_private_py_history"


@dataclass(frozen=True, slots=True)
class Table:
    """Sizes in bytes, and how often autovacuum has been there."""

    bytes: int
    index_bytes: int
    vacuums: int


class Worst(NamedTuple):
    """The worst of one minute: seconds, transactions and rows."""

    oldest: float = 0.0
    xmin: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one minute was like, and what the tables were like at its end."""

    seconds: float
    tables: dict[str, Table]
    added: int = 0
    started: int = 0
    backlog: int = 0
    late: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    worst: Worst = field(default_factory=Worst)

    def others(self) -> int:
        """Bytes of all tables but the jobs and the history."""
        return sum(
            table.bytes + table.index_bytes
            for name, table in self.tables.items()
            if name not in (JOBS, HISTORY)
        )


class Horizon:
    """The oldest transaction and the dead rows, looked at every second."""

    def __init__(self, connection: asyncpg.Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._worst = Worst()

    def taken(self) -> Worst:
        """The worst since this was last asked."""
        worst, self._worst = self._worst, Worst()
        return worst

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while True:
            row = await self._connection.fetchrow(HORIZON, self._schema)
            self._worst = Worst(*map(max, self._worst, row))
            await asyncio.sleep(1)


async def fill(place: Scratch, connection: asyncpg.Connection, waiting: int, kept: int) -> None:
    """Fill the tables, and leave them as after a vacuum."""
    for first in range(1, waiting + 1, AT_A_TIME):
        await place.fill(Jobs(task=LOAD, delay=DAY), first, min(waiting, first + AT_A_TIME - 1))
    await connection.execute(PREPARE_HISTORY.format(schema=place.schema))
    for first in range(1, kept + 1, AT_A_TIME):
        last = min(kept, first + AT_A_TIME - 1)
        await connection.execute(FILL_HISTORY.format(schema=place.schema), first, last)
    await place.settle()
    await connection.execute(f"vacuum (analyze) {place.schema}.{HISTORY}")
    await connection.execute("checkpoint")


async def tables_of(connection: asyncpg.Connection, schema: str) -> dict[str, Table]:
    rows = await connection.fetch(TABLES, schema)
    return {row["name"]: Table(*list(row)[1:]) for row in rows}


def quantile(waits: Counter[int], share: float) -> float:
    """In milliseconds."""
    left = share * waits.total()
    for bucket, count in sorted(waits.items()):
        left -= count
        if left <= 0:
            return seconds_of(bucket) * 1000
    return 0.0


async def reported(processes: Sequence[BenchProcess], every: float) -> list[dict[str, Any]]:
    async with asyncio.timeout(every + LATE_REPORT):
        return list(await asyncio.gather(*(process.receive() for process in processes)))


async def observe(
    place: Scratch, connection: asyncpg.Connection, horizon: Horizon, chosen: argparse.Namespace
) -> list[Sample]:
    """One sample before the start, and one for each minute; printed as they come."""
    options = place.options.with_values(concurrency=SLOTS, history="all" if chosen.keep else "failed")
    samples = [Sample(seconds=0, tables=await tables_of(connection, place.schema))]
    print_sample(samples[0], samples[0])
    async with AsyncExitStack() as stack:

        async def start(duty: str, **orders: Any) -> BenchProcess:
            started = worker_process(duty, options, module=MODULE, every=chosen.every, **orders)
            process = await stack.enter_async_context(started)
            await process.receive()
            return process

        workers = [await start("run_steadily") for _ in range(chosen.processes)]
        adder = await start("add_paced", per_second=chosen.rate)
        for process in (*workers, adder):
            await process.begin()
        await stack.enter_async_context(horizon.watched())
        for number in range(1, max(1, round(chosen.minutes * 60 / chosen.every)) + 1):
            added, *ran = await reported((adder, *workers), chosen.every)
            waits = sum(
                (Counter({int(k): n for k, n in each["waits"].items()}) for each in ran), Counter[int]()
            )
            started = sum(each["started"] for each in ran)
            samples.append(
                Sample(
                    seconds=number * chosen.every,
                    tables=await tables_of(connection, place.schema),
                    added=added["added"],
                    started=started,
                    backlog=max(0, added["added"] - started),
                    late=added["late"],
                    p50=quantile(waits, 0.5),
                    p99=quantile(waits, 0.99),
                    worst=horizon.taken(),
                )
            )
            print_sample(samples[-2], samples[-1])
    return samples


# -- printing ----------------------------------------------------------------------------------------------

HEADER = (
    f"{'SECONDS':>7} {'ADDED/S':>8} {'RUN/S':>8} {'LATE':>6} {'BACKLOG':>8} {'P50':>7} {'P99':>7} "
    f"{'JOBS':>8} {'INDEXES':>8} {'DEAD':>9} {'VACUUMS':>7} {'HISTORY':>8} {'OTHERS':>6} "
    f"{'OLDEST':>6} {'XMIN':>8}"
)


def print_sample(before: Sample, sample: Sample) -> None:
    seconds = sample.seconds - before.seconds or 1.0
    jobs, history = sample.tables[JOBS], sample.tables[HISTORY]
    print(
        f"{sample.seconds:>7,.0f} {(sample.added - before.added) / seconds:>8,.0f} "
        f"{(sample.started - before.started) / seconds:>8,.0f} {sample.late:>6.2f} {sample.backlog:>8,} "
        f"{sample.p50:>7.2f} {sample.p99:>7.2f} {jobs.bytes / MEGABYTE:>8,.1f} "
        f"{jobs.index_bytes / MEGABYTE:>8,.1f} {sample.worst.dead:>9,} {jobs.vacuums:>7,} "
        f"{(history.bytes + history.index_bytes) / MEGABYTE:>8,.1f} {sample.others() / MEGABYTE:>6.1f} "
        f"{sample.worst.oldest:>6.1f} {sample.worst.xmin:>8,}",
        flush=True,
    )


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that should not grow, and from which difference on it has."""

    name: str
    of: Callable[[Sample], float]
    unit: str
    least: float
    factor: float = 1.1


def size(name: str, *, indexes: bool) -> Callable[[Sample], float]:
    def of(sample: Sample) -> float:
        table = sample.tables.get(name)
        return (table.index_bytes if indexes else table.bytes) / MEGABYTE if table else 0.0

    return of


def measures(tables: Sequence[str], rate: float) -> list[Measure]:
    found = [
        Measure("backlog", lambda sample: sample.backlog, "jobs", rate),
        Measure("latency, p50", lambda sample: sample.p50, "ms", 2, 1.5),
        Measure("latency, p99", lambda sample: sample.p99, "ms", 10, 1.5),
        Measure("dead rows", lambda sample: sample.worst.dead, "rows", 10_000, 1.25),
        Measure("oldest transaction", lambda sample: sample.worst.oldest, "s", 5),
        Measure("xmin horizon", lambda sample: sample.worst.xmin, "transactions", 10 * rate, 1.25),
    ]
    for name in tables:
        found.append(Measure(f"table {name}", size(name, indexes=False), "MB", 1))
        found.append(Measure(f"indexes of {name}", size(name, indexes=True), "MB", 1))
    return found


def verdict(samples: Sequence[Sample], rate: float) -> list[str]:
    """What grew from the first half to the second, by the largest value of each; the start does not count."""
    rest = samples[2:] if len(samples) > 3 else samples[1:]
    if len(rest) < 2:
        return ["too short to tell whether anything grew"]
    halves = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    grown = []
    for measure in measures(sorted(samples[-1].tables), rate):
        early, late = (max(map(measure.of, half)) for half in halves)
        if late > early * measure.factor and late > early + measure.least:
            grown.append(f"grew: {measure.name}, from {early:,.1f} to {late:,.1f} {measure.unit}")
    if samples[-1].tables[JOBS].vacuums == samples[0].tables[JOBS].vacuums:
        grown.append("autovacuum has not been at the jobs table: a longer run tells more")
    return grown or ["nothing grew"]


def pace(samples: Sequence[Sample], rate: float) -> str | None:
    """A complaint if the adder was too slow, because then the rate was not what was asked for."""
    last = samples[-1]
    late = max(sample.late for sample in samples)
    if last.added >= 0.99 * rate * last.seconds and late < 1:
        return None
    return (
        f"the adder did not keep the pace: {last.added:,} of {rate * last.seconds:,.0f} jobs, "
        f"at worst {late:.1f} s late"
    )


# -- the program -------------------------------------------------------------------------------------------


async def main(url: str, chosen: argparse.Namespace) -> None:
    async with scratch(url) as place:
        connection, watching = await asyncpg.connect(url), await asyncpg.connect(url)
        try:
            if await connection.fetchval("show autovacuum") != "on":
                sys.exit("autovacuum is off on this server")
            if chosen.tuned:
                await connection.execute(TUNE.format(schema=place.schema))
            await fill(place, connection, chosen.waiting, chosen.kept)
            print(HEADER)
            samples = await observe(place, connection, Horizon(watching, place.schema), chosen)
        finally:
            await connection.close(timeout=5)
            await watching.close(timeout=5)
    for line in (pace(samples, chosen.rate), *verdict(samples, chosen.rate)):
        print(line or "the adder kept the pace")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?")
    parser.add_argument("--waiting", type=int, default=100_000, help="future jobs in the table")
    parser.add_argument("--kept", type=int, default=100_000, help="finished jobs in the history")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--rate", type=float, default=2_000, help="jobs per second")
    parser.add_argument("--keep", action="store_true", help="keep the jobs that run, too; the history grows")
    parser.add_argument("--processes", type=int, default=1, help="worker processes")
    parser.add_argument("--tuned", action="store_true", help="autovacuum as the page on performance has it")
    parser.add_argument("--every", type=float, default=60, help="seconds from one line to the next")
    given = parser.parse_args()
    with ExitStack() as stack:
        target = given.url or stack.enter_context(own_server()).url
        asyncio.run(main(target, given))

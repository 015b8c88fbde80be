"""Adding in a transaction of another library, compared with a bare insert and `pg_notify` in the same place.

    python -m benchmarks.foreign_adding postgres:///scratch_database

Rounds take turns. Each one adds the same jobs, one or several in each transaction: by the client; by two bare
statements, `insert` and `select pg_notify(…)`; and by one bare statement that does both. The ratios compare
the speed of the client with theirs. On Linux, with the server on the same machine, processor time of both
processes is compared, too: on a loaded machine the clock says little. Jobs of the task `benchmark` are
deleted before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from graphile_worker import SyncWorkerUtils, WorkerUtils, make_sync_worker_utils

TASK = "benchmark"
JOBS = "graphile_worker._private_jobs"
TASK_ID = f"(select id from graphile_worker._private_tasks where identifier = '{TASK}')"
INSERT = f"insert into {JOBS} (task_id, payload) values ({TASK_ID}, cast(%s as json)) returning id"
NOTIFY = "select pg_notify('jobs:insert', '{}')"
BOTH = f"with added as ({INSERT}) select id, pg_notify('jobs:insert', '{{}}') from added"
CLEAR = f"delete from {JOBS} where task_id = {TASK_ID}"


class Place(NamedTuple):
    """A connection, and the ways to add jobs on it. Each is called with numbers of transactions and adds."""

    backend: int
    """The server's process."""
    ways: dict[str, Callable[[int, int], None]]


def payload(number: int) -> dict[str, Any]:
    return {"number": number, "to": "someone@example.com"}


@contextmanager
def on_psycopg(url: str) -> Iterator[Place]:
    with psycopg.connect(url) as connection:
        utils = SyncWorkerUtils.bound(connection)

        def client(number: int) -> None:
            utils.add_job(TASK, payload(number))

        def two(number: int) -> None:
            connection.execute(INSERT, (json.dumps(payload(number)),)).fetchone()
            connection.execute(NOTIFY).fetchone()

        def one(number: int) -> None:
            connection.execute(BOTH, (json.dumps(payload(number)),)).fetchone()

        def repeated(add: Callable[[int], None]) -> Callable[[int, int], None]:
            def run(transactions: int, adds: int) -> None:
                for _ in range(transactions):
                    for number in range(adds):
                        add(number)
                    connection.commit()

            return run

        ways = {name: repeated(add) for name, add in (("client", client), ("two", two), ("one", one))}
        yield Place(connection.info.backend_pid, ways)


@contextmanager
def on_sqlalchemy(url: str) -> Iterator[Place]:
    engine = create_async_engine("postgresql+asyncpg://" + url.partition("://")[2], pool_size=1)
    insert, notify, both = (text(sql.replace("%s", ":payload")) for sql in (INSERT, NOTIFY, BOTH))

    async def client(session: AsyncSession, adds: int) -> None:
        utils = WorkerUtils.bound(session)
        for number in range(adds):
            await utils.add_job(TASK, payload(number))

    async def two(session: AsyncSession, adds: int) -> None:
        for number in range(adds):
            await session.scalar(insert, {"payload": json.dumps(payload(number))})
            await session.execute(notify)

    async def one(session: AsyncSession, adds: int) -> None:
        for number in range(adds):
            await session.scalar(both, {"payload": json.dumps(payload(number))})

    async def backend() -> int:
        async with AsyncSession(engine) as session:
            return int(await session.scalar(text("select pg_backend_pid()")))

    def repeated(add: Any) -> Callable[[int, int], None]:
        async def run(transactions: int, adds: int) -> None:
            for _ in range(transactions):
                async with AsyncSession(engine) as session, session.begin():
                    await add(session, adds)

        return lambda transactions, adds: runner.run(run(transactions, adds))

    with asyncio.Runner() as runner:
        ways = {name: repeated(add) for name, add in (("client", client), ("two", two), ("one", one))}
        yield Place(runner.run(backend()), ways)
        runner.run(engine.dispose())


PLACES = {"AsyncSession on asyncpg": on_sqlalchemy, "bound to psycopg": on_psycopg}


def processor_seconds(backend: int) -> float:
    """What this process and the server's have used."""
    try:
        return time.process_time() + int(Path(f"/proc/{backend}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def measure(place: Place, transactions: int, adds: int, rounds: int) -> dict[str, tuple[float, float]]:
    """For each way the seconds, and the processor's, that a round takes; medians."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in place.ways}
    for number in range(rounds + 2):
        for name, way in place.ways.items():
            began, used = time.perf_counter(), processor_seconds(place.backend)
            way(transactions, adds)
            if number >= 2:  # until then, statements are prepared
                seconds = time.perf_counter() - began
                found[name].append((seconds, processor_seconds(place.backend) - used))
    return {
        name: (statistics.median(s for s, _ in pairs), statistics.median(p for _, p in pairs))
        for name, pairs in found.items()
    }


def report(name: str, adds: int, jobs: int, found: dict[str, tuple[float, float]]) -> None:
    seconds, used = found["client"]
    line = f"{name}, {adds:>2} per transaction: {jobs / seconds:>6,.0f} jobs/s"
    for bare in ("two", "one"):
        line += f"; {found[bare][0] / seconds:.2f} of {bare} bare"
        if used:
            line += f" (processor {found[bare][1] / used:.2f})"
    print(line, flush=True)


def main(url: str, jobs: int, rounds: int, only: str) -> None:
    with make_sync_worker_utils(connection_string=url) as utils, psycopg.connect(url, autocommit=True) as own:
        utils.migrate()
        utils.add_job(TASK)
        for name, open_place in PLACES.items():
            for adds in (1, 10) if only in name else ():
                own.execute(CLEAR)
                own.execute(f"vacuum analyze {JOBS}")
                with open_place(url) as place:
                    report(name, adds, jobs, measure(place, jobs // adds, adds, rounds))
        own.execute(CLEAR)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=50, help="in each round")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="part of the name of a place")
    options = parser.parse_args()
    main(options.url, options.jobs, options.rounds, options.only)

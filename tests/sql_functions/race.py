"""Many processes that add, fetch, complete and fail jobs of a few keys; as a program, it writes a history.

Every event is written in the transaction that makes it, after the job's row or key is held, with the next
number of a sequence. What touches the same key or row waits for each other, so the numbers of one key's
events are in the order in which they took effect.

    python race.py DATABASE_URL ADDERS ADDS_PER_ADDER RUNNERS KEYS
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import sys
from collections.abc import Callable, Coroutine
from multiprocessing.synchronize import Barrier
from typing import Any

import asyncpg

SETUP = """
create sequence history_place;
create table history (
    place bigint not null default nextval('history_place'),
    event text not null,
    key text not null,
    number bigint not null,
    job_id bigint
);
create table race_over (at timestamptz);
create sequence add_number;
"""
WRITE = "insert into history (event, key, number, job_id) values ($1, $2, $3, $4)"
FETCH = """
update graphile_worker._private_jobs
set attempts = attempts + 1, locked_at = now(), locked_by = $1
where id = (
    select id from graphile_worker._private_jobs
    where is_available and run_at <= now()
    order by priority, run_at limit 1
    for update skip locked
)
returning id, payload
"""
COMPLETE = "delete from graphile_worker._private_jobs where id = $1"
FAIL = """
update graphile_worker._private_jobs
set locked_at = null, locked_by = null, last_error = 'failed' where id = $1 and locked_by = $2
"""
ADD_ONE = "select * from graphile_worker.add_job('race', $1::json, job_key => $2)"
ADD_MANY = "select * from graphile_worker.add_jobs($1::graphile_worker.job_spec[])"


async def adder(connection: Any, name: str, adds: int, keys: list[str]) -> None:
    """Add again and again: with one key by add_job, with several some of them in any order by add_jobs."""
    chance = random.Random(name)
    for _ in range(adds):
        async with connection.transaction():
            chosen = chance.sample(keys, chance.randint(1, len(keys)))
            payloads = {}
            for key in chosen:
                number = await connection.fetchval("select nextval('add_number')")
                payloads[key] = json.dumps({"key": key, "number": number})
            if len(keys) == 1:
                rows = [await connection.fetchrow(ADD_ONE, payloads[keys[0]], keys[0])]
            else:
                specs = [("race", payloads[key], None, None, None, key, None, None) for key in chosen]
                rows = await connection.fetch(ADD_MANY, specs)
            found = {row["key"]: row["id"] for row in rows}
            for key in chosen:
                number = json.loads(payloads[key])["number"]
                await connection.execute(WRITE, "add", key, number, found.get(key))


async def runner(connection: Any, name: str) -> None:
    """Fetch as Node does, then complete or, now and then, fail the job, until the race is over."""
    chance = random.Random(name)
    while not await connection.fetchval("select exists (select from race_over)"):
        async with connection.transaction():
            job = await connection.fetchrow(FETCH, name)
            if job is not None:
                values = json.loads(job["payload"])
                await connection.execute(WRITE, "run", values["key"], values["number"], job["id"])
        if job is not None and chance.random() < 0.2:
            await connection.execute(FAIL, job["id"], name)
        elif job is not None:
            await connection.execute(COMPLETE, job["id"])


def process(
    url: str, start: Barrier, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
) -> None:
    """One competitor: connect, wait for all the others, go."""

    async def compete() -> None:
        connection = await asyncpg.connect(url)
        try:
            await asyncio.to_thread(start.wait, 300)
            await work(connection, *arguments)
        finally:
            await connection.close(timeout=60)

    asyncio.run(compete())


async def once(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def main(url: str, adders: int, adds: int, runners: int, key_count: int) -> int:
    """Run the race; the exit status is the number of processes that died of an error."""
    context = multiprocessing.get_context("fork")
    keys = [f"key{place}" for place in range(key_count)]
    asyncio.run(once(url, SETUP))
    start = context.Barrier(adders + runners)
    adding = [
        context.Process(target=process, args=(url, start, adder, f"adder{place}", adds, keys))
        for place in range(adders)
    ]
    running = [
        context.Process(target=process, args=(url, start, runner, f"runner{place}"))
        for place in range(runners)
    ]
    for each in adding + running:
        each.start()
    for each in adding:
        each.join()
    asyncio.run(once(url, "insert into race_over values (now())"))
    for each in running:
        each.join()
    return sum(each.exitcode != 0 for each in adding + running)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))

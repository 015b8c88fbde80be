"""What each page and each answer of the API reads: never in proportion to the table.

Every statement that a request sends is explained with its own arguments, in its own transaction. `make scale`
does it with a million jobs, `make statements` with fewer; times count with a million only.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from scripts.lively.addresses import WHOLE, addresses, is_about_one_thing, is_readable, subject_of
from scripts.lively.past import write_past

from admin.conftest import client_of
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.live.hub import hubs_of
from graphile_worker.admin.table import ROUTES
from graphile_worker.admin.tasks.series import RANGES
from graphile_worker.admin.web.routes import Route
from graphile_worker.metrics.upkeep import FoldHours
from graphile_worker.values.schema_name import SchemaName
from support.server import DatabaseServer

JOBS = int(os.environ.get("SCALE_JOBS", "40000"))
MILLION = 1_000_000
PAGE_BUFFERS = 1000
LIST_BUFFERS = 300
GROUP_BUFFERS = 1500
GROUPS = ("", "/", "/overview", "/summary", "/failures")
"""Pages that count the jobs of error groups, and what is below them."""
SAMPLE_BUFFERS = 500
COUNT_BUFFERS = 22_000
"""Of pages that count what an action would change: exactly, up to 20,000 jobs."""
COLD_SECONDS = 0.5
"""Until the overview of a dashboard that has just been started, beside a million jobs."""
MILLISECONDS = 50.0
LISTS = ("/jobs", "/queues", "/audit", "/operations")
COMMENTS = re.compile(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)*", re.DOTALL)
FILL_NAMES = """
with tasks as (insert into _private_tasks (identifier) select 'task_' || n from generate_series(1, 20) n)
insert into _private_job_queues (queue_name) select 'queue_' || n from generate_series(1, 1000) n
"""
FILL_JOBS = """
insert into _private_jobs
  (task_id, job_queue_id, payload, priority, run_at, attempts, max_attempts, last_error, key, flags,
   locked_at, locked_by)
select
  (select min(id) from _private_tasks) + n % 20,
  case when n % 10 = 3 then (select min(id) from _private_job_queues) + n % 1000 end,
  json_build_object('user_id', n, 'to', 'someone' || n || '@example.com', 'text', repeat('x', 60)),
  case when n % 50 = 0 then -1 else 0 end,
  now() + case when n % 20 = 7 then -1 else 1 end * (n % 90000 + 1) * interval '1 second',
  case when n % 200 = 11 then 25 when n % 33 = 5 then 2 else 0 end, 25,
  case when n % 200 = 11 or n % 33 = 5 then 'TimeoutError: no answer after ' || n % 40 || ' s' end,
  case when n % 4 = 0 then 'key:' || n end,
  case when n % 100 = 1 then '{"slow": true}'::jsonb end,
  case when n % 1000 = 13 then now() end,
  case when n % 1000 = 13 then 'pool_' || n % 5 end
from generate_series(1, $1::integer) n
"""
FILL_POOLS = """
insert into _private_py_workers
  (id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, jobs_held, running)
select
  'pool_' || n, 'host-' || n, n, '1.0', array(select identifier from _private_tasks), 20, 'heartbeat',
  interval '1 day', interval '1 day', 20, (
    select jsonb_agg(jsonb_build_array(id, 1.5))
    from (select id from _private_jobs where locked_by = 'pool_' || n limit 20) running
  )
from generate_series(0, 4) n
"""
FILL_ERRORS = """
with names as (
  insert into _private_py_task_names (id, identifier) select id, identifier from _private_tasks
),
groups as (
  insert into _private_py_error_groups
    (fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id,
     first_version, last_version)
  select
    lpad(to_hex(n), 16, '0'), (select min(id) from _private_tasks) + n % 20, 'TimeoutError', 'no answer',
    'a.py in b', now() - interval '1 day', now() - n * interval '1 minute', 100, 10, 1, '1.0', '1.0'
  from generate_series(1, 500) n
),
history as (
  insert into _private_py_history
    (job_id, task_id, state, priority, attempts, max_attempts, created_at, run_at, started_at, finished_at,
     duration, pool_id, expires_on)
  select
    -n, (select min(id) from _private_tasks) + n % 20, 'completed', 0, 1, 25, now(), now(), now(),
    now() - n * interval '0.5 second', 1, 'pool_1', current_date + 7
  from generate_series(1, $1::integer) n
)
insert into _private_py_errors
  (job_id, attempt, task_id, failed_at, duration, is_final, error_type, message, traceback, fingerprint,
   pool_id, version, expires_on)
select
  n, 1, (select min(id) from _private_tasks) + n % 20, now() - n * interval '1 second', 1, false,
  'TimeoutError', 'no answer', 'Traceback',
  lpad(to_hex(case when n % 200 = 11 then 1 else n % 500 + 1 end), 16, '0'), 'pool_1', '1.0',
  current_date + 7
from generate_series(1, $1::integer) n
"""


@dataclass
class Reading:
    """What the statements of one request read."""

    buffers: int = 0
    milliseconds: float = 0.0
    statements: list[str] = field(default_factory=list)


READING: ContextVar[Reading | None] = ContextVar("reading", default=None)


class Explained(asyncpg.Connection):  # type: ignore[misc, type-arg, unused-ignore]
    """Explains each statement before it is executed, with the same arguments."""

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        await self._explain(query, args)
        return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        await self._explain(query, args)
        return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        await self._explain(query, args)
        return await super().fetchval(query, *args, **options)

    async def _explain(self, query: str, args: tuple[Any, ...]) -> None:
        reading = READING.get()
        begin = COMMENTS.sub("", query)
        if reading is None or not begin[:6].lower().startswith(("select", "with")):
            return
        # Without a clock around each row, which takes longer than the row.
        found = await super().fetchval(f"explain (analyze, timing off, buffers, format json) {begin}", *args)
        (plan,) = json.loads(found)
        buffers = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        reading.buffers += buffers
        reading.milliseconds += plan["Execution Time"]
        reading.statements.append(
            f"{buffers} buffers, {plan['Execution Time']:.1f} ms: {' '.join(begin.split())[:150]}"
        )


@pytest.fixture(scope="module")
def large_url(server: DatabaseServer, template_database: str) -> Iterator[str]:
    """A database with many jobs, and statistics, errors and history to go with them."""
    name = server.create_database(template=template_database)
    server.run(server.url(name), _fill)
    yield server.url(name)
    server.drop_database(name)


async def _fill(connection: Any) -> None:
    await connection.execute("set search_path = graphile_worker")
    await connection.execute(FILL_NAMES)
    await connection.execute(FILL_JOBS, JOBS, timeout=3000)
    await connection.execute(FILL_POOLS)
    for table in ("_private_py_errors", "_private_py_history"):
        await connection.execute(
            "select _private_py_add_partition(to_regclass($1::text), current_date + 7)", table
        )
    await connection.execute(FILL_ERRORS, JOBS // 5, timeout=3000)
    await write_past(connection, await connection.fetchval("select now()"), random.Random(1))
    while await FoldHours(SchemaName()).run(connection):
        pass
    await connection.execute("vacuum (analyze)", timeout=3000)


@pytest.fixture
async def explained(large_url: str) -> AsyncIterator[Any]:
    """A pool whose connections explain what they execute."""
    async with asyncpg.create_pool(
        large_url, connection_class=Explained, min_size=1, max_size=4, command_timeout=600
    ) as pool:
        yield pool


def readable() -> list[Route]:
    return sorted(
        (route for route in ROUTES if is_readable(route) and route.path not in WHOLE),
        key=lambda route: route.path,
    )


async def _address(url: str, path: str) -> str | None:
    """The address of a route with a value that exists, or None if there is none in this database."""
    if not is_about_one_thing(path):
        return path
    subject = subject_of(path)
    assert subject is not None, f"scripts/lively/addresses.py does not know a value for {path}"
    connection = await asyncpg.connect(url, server_settings={"search_path": "graphile_worker"})
    value = await connection.fetchval(f"{subject[1]} limit 1")
    await connection.close()
    return None if value is None else addresses(path, subject[0], [value])[0]


async def _read(pool: Any, address: str) -> Reading:
    """What a request reads, besides the sample that all pages of some seconds share."""
    app = admin_app(pg_pool=pool, authorize=everyone_may)
    await hubs_of(app).of(app.databases[0]).current()
    reading = Reading()
    token = READING.set(reading)
    try:
        async with client_of(app) as client:
            answer = await client.get(address)
    finally:
        READING.reset(token)
        await app.aclose()
    assert answer.status_code < 400, f"{address}: {answer.status_code} {answer.text[:500]}"
    return reading


@pytest.mark.timeout(3600 if JOBS >= MILLION else 600)
async def test_no_page_reads_in_proportion_to_the_table(explained: Any, large_url: str) -> None:
    complaints = []
    await _read(explained, "/")  # fills the catalog caches of the connection
    for route in readable():
        address = await _address(large_url, route.path)
        if address is not None:
            reading = await _read(explained, address)
            print(f"{address}: {reading.buffers} buffers, {reading.milliseconds:.1f} ms")
            complaints += _complaints(address, reading, _allowed(route.path))
    assert not complaints, "\n".join(complaints)


@pytest.mark.timeout(3600 if JOBS >= MILLION else 600)
async def test_every_range_is_bounded(explained: Any) -> None:
    await _read(explained, "/")
    complaints = []
    for name in RANGES:
        for address in (
            f"/?range={name}",
            f"/api/v1/series?range={name}&by=task&metric=completed,busy,run_p95",
            f"/queue?name=queue_7&range={name}",
        ):
            reading = await _read(explained, address)
            print(f"{address}: {reading.buffers} buffers, {reading.milliseconds:.1f} ms")
            complaints += _complaints(address, reading, _allowed(address.partition("?")[0]))
    assert not complaints, "\n".join(complaints)


@pytest.mark.timeout(3600 if JOBS >= MILLION else 600)
async def test_a_sorted_list_is_bounded(explained: Any) -> None:
    await _read(explained, "/")
    complaints = []
    for address in ("/failures?order=failed&period=7d", "/queues?order=waiting", "/workers?order=memory"):
        reading = await _read(explained, address)
        print(f"{address}: {reading.buffers} buffers, {reading.milliseconds:.1f} ms")
        complaints += _complaints(address, reading, _allowed(address.partition("?")[0]))
    assert not complaints, "\n".join(complaints)


@pytest.mark.timeout(3600 if JOBS >= MILLION else 600)
async def test_what_counts_jobs_is_bounded(explained: Any) -> None:
    await _read(explained, "/")
    complaints = []
    for address in (
        "/operations/new?action=retry&q=state:failed",
        "/operations/new?action=give_up&q=state:scheduled",
        "/failures/0000000000000001/actions",
        "/failures/0000000000000001",
    ):
        reading = await _read(explained, address)
        print(f"{address}: {reading.buffers} buffers, {reading.milliseconds:.1f} ms")
        complaints += _complaints(address, reading, COUNT_BUFFERS, milliseconds=1000.0)
    assert not complaints, "\n".join(complaints)


async def test_the_first_overview_is_soon_there(large_url: str) -> None:
    app = admin_app(connection_string=large_url, authorize=everyone_may)
    async with client_of(app) as client:
        await client.get("/healthz")
        begin = time.monotonic()
        answer = await client.get("/")
        took = time.monotonic() - begin
    await app.aclose()
    assert answer.status_code == 200
    print(f"the first overview took {took:.3f} s")
    # timing: the docs promise half a second; only `make scale` has a million jobs
    assert took < COLD_SECONDS or JOBS < MILLION


@pytest.mark.timeout(3600 if JOBS >= MILLION else 600)
async def test_a_sample_reads_little(explained: Any) -> None:
    app = admin_app(pg_pool=explained, authorize=everyone_may)
    hub = hubs_of(app).of(app.databases[0])
    await hub.current()
    reading = Reading()
    READING.set(reading)
    await hub.current(max_age=0)
    await app.aclose()
    assert reading.statements
    assert not _complaints("sample", reading, SAMPLE_BUFFERS)


def _complaints(
    address: str, reading: Reading, allowed: int, milliseconds: float = MILLISECONDS
) -> list[str]:
    is_slow = JOBS >= MILLION and reading.milliseconds > milliseconds
    if reading.buffers <= allowed and not is_slow:
        return []
    summary = f"{address}: {reading.buffers} buffers, {allowed} are allowed; {reading.milliseconds:.0f} ms"
    return ["\n  ".join([summary, *reading.statements])]


def _allowed(path: str) -> int:
    page = path.removeprefix("/api/v1")
    if page.startswith("/operations/new"):
        return COUNT_BUFFERS
    if page in GROUPS or page.startswith("/failures/"):
        return GROUP_BUFFERS
    return LIST_BUFFERS if page in LISTS else PAGE_BUFFERS

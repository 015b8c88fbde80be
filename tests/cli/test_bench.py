"""`graphile-worker bench`: the shape of its results, and its cleanup."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.cli.commands.bench import _fill, _running, scratch_schema
from graphile_worker.client import make_worker_utils
from graphile_worker.errors import GraphileWorkerError
from graphile_worker.values.options import WorkerOptions
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment
from support.server import DatabaseServer
from support.working import PATIENCE

SMALL = ("--jobs", "40", "--processes", "2")
WORKERS = (
    "select 1 from pg_locks join pg_stat_activity using (pid) "
    "where locktype = 'advisory' and objsubid = 1 and classid <> 7231964501297834 >> 32 "
    "and application_name = 'graphile_worker'"
)
"""Those of pools; the number is the lock of clients that add."""
SCHEMAS = "select nspname from pg_namespace where nspname like 'graphile_worker_bench_%'"


def test_everything_is_measured_and_nothing_is_left(
    spawn: Call, empty_database_url: str, server: DatabaseServer
) -> None:
    report = spawn("bench", *SMALL, "--json", DATABASE_URL=empty_database_url).check().json
    assert report["environment"]["postgresql"]["version"]
    rates = [*report["adding"], *report["running"]]
    assert [rate.get("name", rate.get("processes")) for rate in rates] == [
        "one by one", "in batches of 1,000", 1, 2,
    ]  # fmt: skip
    assert [rate["jobs"] for rate in rates] == [10, 40, 50, 50]
    assert {rate["load"] for rate in report["running"]} == {"plain"}
    assert all(rate["per_second"] > 0 for rate in rates)
    assert report["latency"]["samples"] == 10
    assert 0 < report["latency"]["median_ms"] <= report["latency"]["p95_ms"]
    assert server.run(empty_database_url, lambda connection: connection.fetch(SCHEMAS)) == []


def test_people_get_a_table_on_an_embedded_server(spawn: Call) -> None:
    lines = spawn("bench", "--embedded", "--jobs", "10", "--processes", "1").check().out.splitlines()
    assert lines[0].startswith("PostgreSQL ")
    assert "fsync on, synchronous_commit on" in lines[0]
    table = [line.rsplit(maxsplit=2) for line in lines[2:6]]
    assert [row[:2] for row in table] == [
        ["MEASURED", "JOBS"],
        ["adding, one by one", "10"],
        ["adding, in batches of 1,000", "10"],
        ["running, worker processes: 1", "20"],
    ]
    assert all(int(row[2]) > 0 for row in table[1:])
    assert lines[-1].startswith("From adding a job to its start on an idle worker: median ")
    assert lines[-1].endswith("(10 jobs, one at a time)")


def test_only_the_loads_that_are_asked_for_are_measured(spawn: Call, empty_database_url: str) -> None:
    arguments = ("--jobs", "10", "--processes", "1", "--loads", "kept, one-queue")
    report = spawn("bench", *arguments, "--json", DATABASE_URL=empty_database_url).check().json
    assert [(rate["load"], rate["jobs"]) for rate in report["running"]] == [("kept", 10), ("one-queue", 10)]
    assert all(rate["per_second"] > 0 for rate in report["running"])
    assert (report["adding"], report["latency"]) == ([], None)


def test_each_load_has_a_line(spawn: Call) -> None:
    arguments = ("--embedded", "--jobs", "10", "--processes", "1", "--loads", "failing,queues,waiting")
    lines = spawn("bench", *arguments).check().out.splitlines()
    assert [line.rsplit(maxsplit=2)[0] for line in lines[3:]] == [
        "running, all fail, worker processes: 1",
        "running, 1,000 named queues, worker processes: 1",
        "running, 5 ms each, concurrency 100, worker processes: 1",
    ]


COUNTS = {
    "plain": "select count(*) = 0 from {schema}._private_jobs",
    "failing": "select count(*) = 60 from {schema}._private_jobs where attempts = max_attempts",
    "queues": "select count(*) = 60 from {schema}._private_job_queues",
    "one-queue": "select count(*) = 1 from {schema}._private_job_queues",
    "kept": "select count(*) = 60 from {schema}._private_py_history where state = 'completed'",
}


@looped("load", COUNTS)
async def test_jobs_of_a_load_are_what_it_says(empty_database_url: str, load: str) -> None:
    async with scratch_schema(WorkerOptions(connection_string=empty_database_url)) as options:
        await _fill(options, load, 60)
        assert await _running(options, 60, processes=1, load=load) > 0
        connection = await asyncpg.connect(empty_database_url)
        try:
            assert await connection.fetchval(COUNTS[load].format(schema=options.schema))
        finally:
            await connection.close()


async def test_jobs_that_wait_run_at_the_same_time(empty_database_url: str) -> None:
    """One at a time they could not be faster than 200 per second."""
    async with scratch_schema(WorkerOptions(connection_string=empty_database_url)) as options:
        await _fill(options, "waiting", 1000)
        assert await _running(options, 1000, processes=1, load="waiting") > 200


async def test_a_rate_of_other_jobs_than_were_added_is_refused(empty_database_url: str) -> None:
    async with scratch_schema(WorkerOptions(connection_string=empty_database_url)) as options:
        async with make_worker_utils(options=options) as utils:
            await utils.add_job("bench")
        with pytest.raises(GraphileWorkerError, match="workers ran 1 of 5 jobs"):
            await _running(options, 5, processes=2)


async def test_a_worker_process_that_fails_says_why(server: DatabaseServer) -> None:
    missing = WorkerOptions(connection_string=server.url("missing"))
    with pytest.raises(GraphileWorkerError, match=r'ended early: .*database "missing" does not exist'):
        await _running(missing, 1, processes=1)


@pytest.mark.parametrize(
    ("number", "status", "sign"),
    [
        (signal.SIGINT, 130, WORKERS),
        (signal.SIGTERM, 143, SCHEMAS),
    ],
    ids=["SIGINT while workers run", "SIGTERM while the schema is new"],
)
async def test_a_signal_ends_it_and_nothing_is_left(
    empty_database_url: str, place: Path, number: signal.Signals, status: int, sign: str
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "bench", "--jobs", "50000"],
        env=clean_environment(DATABASE_URL=empty_database_url),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    connection = await asyncpg.connect(empty_database_url)
    try:
        await until(connection, f"select exists ({sign})")
        process.send_signal(number)
        _, err = process.communicate(timeout=180)
        assert (process.returncode, err) == (status, b"")
        assert await connection.fetch(SCHEMAS) == []
        await until(
            connection, "select count(*) = 1 from pg_stat_activity where datname = current_database()"
        )
    finally:
        await connection.close()
        process.kill()
        process.communicate(timeout=180)


def test_an_error_removes_the_schema_too(
    spawn: Call, server: DatabaseServer, empty_database_url: str
) -> None:
    """Installing the schema fails halfway."""
    sabotage = (
        "create function refuse() returns event_trigger language plpgsql as "
        "$$ begin raise exception 'no more tables' using errcode = '42501'; end $$;"
        "create event trigger refuse on ddl_command_end when tag in ('CREATE INDEX') "
        "execute function refuse();"
    )
    server.run(empty_database_url, lambda connection: connection.execute(sabotage))
    result = spawn("bench", *SMALL, DATABASE_URL=empty_database_url)
    assert result.status == 1
    assert result.err.startswith("graphile-worker: error:")
    assert server.run(empty_database_url, lambda connection: connection.fetch(SCHEMAS)) == []


async def test_an_interrupt_waits_until_the_schema_is_dropped(empty_database_url: str) -> None:
    """It comes while a lock keeps the schema from being dropped."""
    interrupts: list[int] = []
    connection = await asyncpg.connect(empty_database_url)
    watching = await asyncpg.connect(empty_database_url)
    waits = "select exists (select from pg_stat_activity where wait_event_type = 'Lock')"

    async def interrupt() -> None:
        await until(watching, waits)
        signal.raise_signal(signal.SIGINT)
        assert interrupts == []
        await transaction.rollback()

    previous = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        transaction = connection.transaction()
        async with scratch_schema(WorkerOptions(connection_string=empty_database_url)) as options:
            await transaction.start()
            await connection.execute(f"lock table {options.schema}._private_jobs in access share mode")
            interrupting = asyncio.create_task(interrupt())
        assert interrupts == [signal.SIGINT]
        assert await connection.fetch(SCHEMAS) == []
        await interrupting
    finally:
        signal.signal(signal.SIGINT, previous)
        await connection.close()
        await watching.close()


def test_without_a_database_the_embedded_one_is_offered(call: Call) -> None:
    result = call("bench")
    assert result.status == 1
    assert "--embedded" in result.err


@looped(
    ("arguments", "message"),
    [
        (["--jobs", "1"], "1 is not in the range"),
        (["--processes", "0"], "0 is not in the range"),
        (["--loads", "plain,fast"], "expected names from plain, failing, queues"),
        (["--loads", ","], "expected names from plain, failing, queues"),
    ],
)
def test_wrong_usage_is_reported_before_anything_is_measured(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call("bench", *arguments)
    assert result.status == 2
    assert message in result.err


async def until(connection: Any, condition: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await connection.fetchval(condition):
        assert time.monotonic() < deadline, condition

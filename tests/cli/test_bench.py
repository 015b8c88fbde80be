"""`graphile-worker bench`: the shape of its results, and its cleanup."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import asyncpg
import pytest

from graphile_worker.cli.bench.chart import growth_chart
from graphile_worker.cli.bench.results import (
    Adding,
    BenchReport,
    Growth,
    Latency,
    Rate,
    Throughput,
    percentile,
)
from graphile_worker.cli.bench.scratch import Jobs, Scratch, scratch_schema
from graphile_worker.cli.bench.tables import print_report
from graphile_worker.cli.bench.throughput import run_ready_jobs
from graphile_worker.cli.bench.workbench import Scale, Workbench
from graphile_worker.cli.bench.worker_process import drain
from graphile_worker.errors import GraphileWorkerError
from graphile_worker.values.options import WorkerOptions
from graphile_worker.values.schema_name import SchemaName
from support.cases import looped
from support.command_line import COMMAND, Call, clean_environment
from support.rust_port import RustPort
from support.server import DatabaseServer
from support.working import PATIENCE

SMALL = ("--jobs", "40", "--rounds", "1", "--max-backlog", "100")
SCHEMAS = "select nspname from pg_namespace where nspname like 'graphile_worker_bench_%'"
ALONE = "select count(*) = 1 from pg_stat_activity where datname = current_database()"
SVG = "{http://www.w3.org/2000/svg}"


def test_everything_is_measured_and_nothing_is_left(
    spawn: Call, empty_database_url: str, place: Path, server: DatabaseServer
) -> None:
    result = spawn("bench", *SMALL, "--json", "--plot", "growth.svg", DATABASE_URL=empty_database_url).check()
    report = result.json
    assert report["environment"]["postgresql"]["version"]
    assert [entry["name"] for entry in report["throughput"]] == [
        "default settings",
        "def tasks in threads",
        "no prefetch",
        "no prefetch, 10,000 queues",
        "failing jobs",
        "1,000 named queues",
        "one named queue",
    ]
    assert all(entry["rate"]["per_second"] > 0 for entry in report["throughput"])
    assert [entry["name"] for entry in report["latency"]] == [
        "idle worker",
        "beside 500 jobs per second",
        "after 40 jobs",
        "beside 100 future jobs",
        "beside 20 jobs of other workers",
        "beside 10 jobs of a busy queue",
    ]
    for entry in report["latency"]:
        assert 0 < entry["p50_ms"] <= entry["p99_ms"] <= entry["max_ms"]
    assert [entry["name"] for entry in report["adding"]] == ["one by one", "in batches of 1,000"]
    assert len(report["growth"]) == 7
    assert report["growth"][0]["share"] == 1.0
    assert {entry["size"] for entry in report["growth"][1:]} == {100}
    chart = ElementTree.parse(place / "growth.svg").getroot()
    assert chart.tag == f"{SVG}svg"
    assert len(chart.findall(f"{SVG}polyline")) == 6
    assert server.run(empty_database_url, lambda connection: connection.fetch(SCHEMAS)) == []


async def test_several_processes_share_the_work(empty_database_url: str) -> None:
    options = WorkerOptions(connection_string=empty_database_url)
    async with scratch_schema(options) as scratch:
        bench = Workbench(scratch, options.with_values(schema=scratch.schema.name), Scale(processes=2))
        drained = await run_ready_jobs(bench, 200, Jobs(queues=0), concurrency=2)
        assert drained.rate > 0
        assert drained.peak_memory_mb > 1
        with pytest.raises(GraphileWorkerError, match="workers ran 0 of 5 jobs"):
            await run_ready_jobs(bench, 5, Jobs(delay=60))


async def test_a_worker_process_that_fails_says_why(server: DatabaseServer) -> None:
    missing = WorkerOptions(connection_string=server.url("missing"))
    with pytest.raises(GraphileWorkerError, match=r'ended early: .*database "missing" does not exist'):
        await drain(missing)


@pytest.mark.parametrize(
    ("number", "status", "sign"),
    [
        (signal.SIGINT, 130, "select 1 from pg_stat_activity where application_name = 'graphile_worker'"),
        (signal.SIGTERM, 143, SCHEMAS),
    ],
    ids=["SIGINT while workers run", "SIGTERM while jobs are prepared"],
)
async def test_a_signal_ends_it_and_nothing_is_left(
    empty_database_url: str, place: Path, number: signal.Signals, status: int, sign: str
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "bench", "--jobs", "100000", "--only", "throughput"],
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


def test_without_a_database_the_embedded_one_is_offered(call: Call) -> None:
    result = call("bench")
    assert result.status == 1
    assert "--embedded" in result.err


def test_it_runs_on_an_embedded_server_of_its_own(spawn: Call) -> None:
    result = spawn("bench", "--embedded", *SMALL, "--only", "adding", "--json").check()
    assert [entry["rate"]["jobs"] for entry in result.json["adding"]] == [10, 40]


@looped(
    ("arguments", "message"),
    [
        (["--only", "speed"], "expected names from throughput, latency, adding, growth; got 'speed'"),
        (["--plot", "rate.png"], "name a file that ends in .svg"),
        (["--plot", "missing/rate.svg"], "the directory 'missing' does not exist"),
        (["--plot", "rate.svg", "--only", "adding"], "--plot shows growth"),
        (["--jobs", "1"], "1 is not in the range"),
    ],
)
def test_wrong_usage_is_reported_before_anything_is_measured(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call("bench", *arguments)
    assert result.status == 2
    assert message in result.err


async def test_the_schema_is_cleared_beside_a_foreign_key(connection: Any) -> None:
    """A Rust worker has one in a table of its own."""
    schema = SchemaName()
    await RustPort(connection).migrate()
    await connection.execute(
        "with job as (select id from graphile_worker.add_job('a', queue_name => 'q')) "
        "insert into graphile_worker._private_job_retirements select id from job"
    )
    await Scratch(connection, schema, WorkerOptions()).clear()
    for table in ("jobs", "job_queues", "job_retirements"):
        assert await connection.fetchval(f"select count(*) from graphile_worker._private_{table}") == 0


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0
    latency = Latency.of("some", [0.003, 0.001, 0.002])
    assert (latency.p50_ms, latency.max_ms, latency.average_ms) == (2.0, 3.0, pytest.approx(2.0))


def test_sizes_of_backlogs_end_at_the_largest_asked_for() -> None:
    assert Scale(max_backlog=0).backlogs == []
    assert Scale(max_backlog=5000).backlogs == [5000]
    assert Scale(max_backlog=1_000_000).backlogs == [10_000, 100_000, 1_000_000]


def test_the_chart_has_a_line_for_each_backlog_inside_its_frame() -> None:
    def growth(backlog: str, size: int, per_second: float) -> Growth:
        rate = Rate.of(5000, [per_second])
        return Growth(backlog=backlog, size=size, rate=rate, share=per_second / 30000)

    results = [growth("none", 0, 30000)]
    for name in ("future <jobs>", "dead & buried"):
        results += [growth(name, size, 30000 - size / 100) for size in (10_000, 100_000, 1_000_000)]
    chart = ElementTree.fromstring(growth_chart(results))
    lines = chart.findall(f"{SVG}polyline")
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert len(points) == 4
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert all(90 <= x <= 660 and 60 <= y <= 450 for x, y in points)
    texts = {text.text for text in chart.iter(f"{SVG}text")}
    assert {"future <jobs>", "dead & buried", "1,000,000", "30,000"} <= texts


def test_people_get_tables(capsys: pytest.CaptureFixture[str]) -> None:
    rate = Rate.of(200, [1000.0, 2000.0, 1500.0])
    options = {"concurrency": 10, "prefetch": 0.0}
    server = {"version": "18.0", "fsync": "on", "synchronous_commit": "on"}
    print_report(
        BenchReport(
            environment={"postgresql": server, "cpus": 2, "python": "3.12.1", "event_loop": "uvloop"},
            throughput=[
                Throughput(
                    name="some",
                    options=options,
                    processes=2,
                    rate=rate,
                    cpu_microseconds_per_job=12.34,
                    peak_memory_mb=40.04,
                )
            ],
            latency=[Latency.of("idle worker", [0.001, 0.002])],
            adding=[Adding(name="one by one", rate=rate)],
            growth=[Growth(backlog="future jobs", size=100, rate=rate, share=0.987)],
        )
    )
    out = capsys.readouterr().out
    assert out.startswith("PostgreSQL 18.0 (fsync on, synchronous_commit on), 2 CPUs on this machine, ")
    rows = [line.split() for line in out.splitlines()]
    assert ["some", "concurrency=10,", "prefetch=0", "200", "1500", "1000", "2000", "12.3", "40.0"] in rows
    assert ["idle", "worker", "2", "1.5", "1.0", "2.0", "2.0"] in rows
    assert ["one", "by", "one", "200", "1500", "1000", "2000"] in rows
    assert ["future", "jobs", "100", "1500", "1000", "2000", "0.99"] in rows


async def until(connection: Any, condition: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await connection.fetchval(condition):
        assert time.monotonic() < deadline, condition

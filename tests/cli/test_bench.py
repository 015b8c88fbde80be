"""`graphile-worker bench`: the shape of its results, and that it leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import asyncpg
import pytest

from cli.command_line import COMMAND, Call, clean_environment
from graphile_worker.cli.benchmarks.chart import growth_chart
from graphile_worker.cli.benchmarks.results import Growth, Latency, Rate, percentile
from graphile_worker.cli.benchmarks.workbench import Extent

SMALL = ("--jobs", "40", "--rounds", "1", "--max-backlog", "100")
SCHEMAS = "select nspname from pg_namespace where nspname like 'graphile_worker_bench_%'"
SVG = "{http://www.w3.org/2000/svg}"


async def schemas(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(SCHEMAS)]
    finally:
        await connection.close()


def test_everything_is_measured_and_nothing_is_left(
    spawn: Call, empty_database_url: str, place: Path, server: Any
) -> None:
    result = spawn("bench", *SMALL, "--json", "--plot", "growth.svg", DATABASE_URL=empty_database_url).check()
    report = result.json
    assert report["environment"]["postgresql"]["version"]
    assert [entry["name"] for entry in report["throughput"]] == [
        "default settings",
        "def tasks in threads",
        "nothing locked ahead",
        "failing jobs",
        "1,000 named queues",
        "one named queue",
    ]
    assert all(entry["rate"]["per_second"] > 0 for entry in report["throughput"])
    assert [entry["name"] for entry in report["latency"]] == [
        "idle worker",
        "beside 500 jobs per second",
        "beside 100 future jobs",
    ]
    for entry in report["latency"]:
        assert 0 < entry["p50_ms"] <= entry["p99_ms"] <= entry["max_ms"]
    assert [entry["name"] for entry in report["adding"]] == ["one by one", "in batches of 1,000"]
    assert len(report["growth"]) == 7
    assert report["growth"][0]["share"] == 1.0
    assert {entry["size"] for entry in report["growth"][1:]} == {100}
    picture = ElementTree.parse(place / "growth.svg").getroot()
    assert picture.tag == f"{SVG}svg"
    assert len(picture.findall(f"{SVG}polyline")) == 6
    assert server.run(empty_database_url, lambda connection: connection.fetch(SCHEMAS)) == []


def test_people_get_tables_and_several_processes_share_the_work(spawn: Call, empty_database_url: str) -> None:
    result = spawn(
        "bench", *SMALL, "--only", "throughput", "--processes", "2", DATABASE_URL=empty_database_url
    ).check()
    lines = result.out.splitlines()
    assert lines[0].startswith("PostgreSQL ")
    assert "Throughput: 40 trivial jobs, worker processes: 2" in lines
    assert any(line.startswith("one named queue") for line in lines)
    assert "Latency" not in result.out
    assert result.err == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_it_and_the_schema_is_removed(
    empty_database_url: str, place: Path, number: signal.Signals, status: int
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "bench", "--jobs", "1000000", "--only", "throughput"],
        env=clean_environment(DATABASE_URL=empty_database_url),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        await until(lambda: schemas(empty_database_url))
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(30)
    assert process.returncode == status, err
    assert err == b""
    assert await schemas(empty_database_url) == []


def test_an_error_removes_the_schema_too(spawn: Call, server: Any, empty_database_url: str) -> None:
    """Workers that end before they have run all jobs would give a wrong figure; here none can connect."""
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "allowed are throughput, latency, adding, growth; given was 'speed'"),
        (["--plot", "rate.png"], "name a file that ends in .svg"),
        (["--plot", "missing/rate.svg"], "the folder 'missing' does not exist"),
        (["--plot", "rate.svg", "--only", "adding"], "--plot shows growth"),
        (["--jobs", "1"], "1 is not in the range"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(
    call: Call, arguments: list[str], message: str
) -> None:
    result = call("bench", *arguments)
    assert result.status == 2
    assert message in result.err


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0
    latency = Latency.of("some", [0.003, 0.001, 0.002])
    assert (latency.p50_ms, latency.max_ms, latency.average_ms) == (2.0, 3.0, pytest.approx(2.0))


def test_sizes_of_backlogs_end_at_the_largest_asked_for() -> None:
    assert Extent(max_backlog=0).backlogs == []
    assert Extent(max_backlog=5000).backlogs == [5000]
    assert Extent(max_backlog=1_000_000).backlogs == [10_000, 100_000, 1_000_000]


def test_the_chart_has_a_line_for_each_backlog_inside_its_frame() -> None:
    def growth(backlog: str, size: int, per_second: float) -> Growth:
        rate = Rate.of(5000, [per_second])
        return Growth(backlog=backlog, size=size, rate=rate, share=per_second / 30000)

    results = [growth("none", 0, 30000)]
    for name in ("future <jobs>", "dead & buried"):
        results += [growth(name, size, 30000 - size / 100) for size in (10_000, 100_000, 1_000_000)]
    picture = ElementTree.fromstring(growth_chart(results))
    lines = picture.findall(f"{SVG}polyline")
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert len(points) == 4
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert all(90 <= x <= 660 and 60 <= y <= 450 for x, y in points)
    texts = {text.text for text in picture.iter(f"{SVG}text")}
    assert {"future <jobs>", "dead & buried", "1,000,000", "30,000"} <= texts


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    deadline = time.monotonic() + 30
    while not await condition():
        assert time.monotonic() < deadline

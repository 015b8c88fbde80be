"""`--http-port`: probes and metrics through the life of a worker, with one process and with several."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Metric

from graphile_worker import Runner, run
from graphile_worker.config.calls import AwaitableContext
from graphile_worker.contrib.http import HttpPlugin
from graphile_worker.errors import ConfigError
from graphile_worker.runner.process.reports import ReportingPlugin, WorkerProcesses
from service.probes import address_of, probe, scrape
from service.programs import Start, write_program
from support.programs import needed
from support.proxy import Proxy, proxy_to
from support.trap import FAULTS
from support.working import Jobs, until

SUCCESSES = "jobs_total[outcome=success,task=hello]"
LIFESPAN = """
import contextlib
@contextlib.asynccontextmanager
async def slow_start():
    while not os.path.exists("begin"):
        await asyncio.sleep(0.01)
    yield

if __name__ == "__main__":
    serve(slow_start, task_list=[hello, wait], http_port=0, poll_interval=0.2)
"""


async def test_probes_from_start_to_end(start: Start, tmp_path: Path, database_url: str, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py")
    program = (tmp_path / "worker.py").read_text().partition("if __name__")[0] + LIFESPAN
    (tmp_path / "worker.py").write_text(program)
    (tmp_path / "socket").mkdir()

    async with proxy_to(database_url, tmp_path / "socket") as (_, url):
        worker = start("worker.py", DATABASE_URL=url)
        at = address_of(worker)
        assert (await probe(at, "/livez")).status == 200
        starting = await probe(at, "/readyz")
        assert (starting.status, starting.problems) == (503, "the worker is starting")

        (tmp_path / "begin").touch()
        await until(lambda: _is(at, "/readyz", 200))
        (process,) = (await probe(at, "/readyz?verbose")).body["workers"]
        assert process["pid"] == worker.pid
        (pool,) = process["pools"]
        assert (pool["state"], pool["slots"]) == ("running", 1)
        assert (await probe(at, "/")).body.keys() == {"/livez", "/readyz", "/metrics"}
        assert (await probe(at, "/nothing")).status == 404

    async def is_away() -> bool:
        ready = await probe(at, "/readyz")
        return ready.status == 503 and "jobs cannot be fetched" in ready.problems

    await until(is_away)
    assert (await probe(at, "/livez")).status == 200

    async with proxy_to(database_url, tmp_path / "socket"):
        await until(lambda: _is(at, "/readyz", 200))
        await jobs.add("wait")
        await until(lambda: "waiting in process" in worker.output)
        assert (await scrape(at))["jobs_running[task=wait]"] == 1
        worker.send(signal.SIGTERM)
        await until(lambda: _is(at, "/readyz", 503))
        assert (await probe(at, "/readyz")).problems == "the worker is stopping"
        assert (await probe(at, "/livez")).status == 200
        (tmp_path / "go_on").touch()
        await until(lambda: worker.process.poll() is not None)
        assert worker.ended() == 143
    with pytest.raises(httpx.ConnectError):
        await probe(at, "/livez")


async def _is(address: str, path: str, status: int) -> bool:
    return (await probe(address, path)).status == status


async def test_one_scrape_for_several_processes(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py", "processes=2, http_port=0, concurrency=2")
    worker = start("worker.py")
    at = address_of(worker)
    assert (await probe(at, "/livez")).status == 200  # nothing has to run for that
    await until(lambda: _is(at, "/readyz", 200))
    first, _ = [each["pid"] for each in (await probe(at, "/readyz?verbose")).body["workers"]]
    for _ in range(20):
        await jobs.add("hello")
    await jobs.until_gone()

    async def all_are_counted() -> bool:
        return (await scrape(at))[SUCCESSES] == 20

    await until(all_are_counted)  # events follow the commit
    assert (await scrape(at))["slots"] == 4

    os.kill(first, signal.SIGSTOP)  # as a blocked event loop
    stuck = await probe(at, "/livez")
    assert stuck.status == 503
    assert f"worker process {first}: it does not answer" in stuck.problems
    os.kill(first, signal.SIGKILL)

    async def is_replaced() -> bool:
        ready = await probe(at, "/readyz?verbose")
        return ready.status == 200 and first not in [each["pid"] for each in ready.body["workers"]]

    await until(is_replaced)
    after = await scrape(at)
    assert (after[SUCCESSES], after["slots"]) == (20, 4)  # counters stay, gauges are those of the living

    children = subprocess.run(
        [needed("pgrep"), "-P", str(worker.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    living = {each["pid"] for each in (await probe(at, "/readyz?verbose")).body["workers"]}
    (front,) = {int(pid) for pid in children} - living
    os.kill(front, signal.SIGKILL)
    worker.wait_for(f"the observer process {front} was killed by SIGKILL; starting another")

    async def is_back() -> bool:
        try:
            return (await probe(at, "/readyz")).status == 200
        except httpx.TransportError:
            return False

    await until(is_back)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    with pytest.raises(httpx.ConnectError):
        await probe(at, "/livez")


async def test_what_a_process_counted_stays_when_it_ends(tmp_path: Path) -> None:
    workers = WorkerProcesses(expected=1)
    server = await asyncio.start_unix_server(workers.connected, tmp_path / "reports")
    counter = Counter("test_of_the_application", "Counted by tests.")
    gauge = Gauge("test_gauge_of_the_application", "Set by tests.")
    unknown = Gauge("test_unknown_of_the_application", "Set by tests.")
    unknown.set(math.nan)
    counter.inc(3)
    plugin = ReportingPlugin(str(tmp_path / "reports"))
    await plugin.open()

    async def said(text: str) -> bool:
        return text in (await workers.metrics() or b"").decode()

    try:
        await until(lambda: said("test_of_the_application_total 3.0"))
        assert await said(f'test_gauge_of_the_application{{pid="{os.getpid()}"}} 0.0')
        assert await said(f'test_unknown_of_the_application{{pid="{os.getpid()}"}} NaN')
        counter.inc()
    finally:
        await plugin.close()
        REGISTRY.unregister(counter)
        REGISTRY.unregister(gauge)
        REGISTRY.unregister(unknown)
    await until(lambda: not workers._connected)
    assert await said("test_of_the_application_total 4.0")  # it was counted after the last scrape
    assert not await said("test_gauge_of_the_application")
    server.close()


async def test_two_workers_in_one_program_share_a_server(database_url: str) -> None:
    http = HttpPlugin(0, "127.0.0.1")

    async def hello() -> None: ...

    def start() -> AwaitableContext[Runner]:
        return run(
            connection_string=database_url,
            task_list={"hello": hello},
            handle_signals=False,
            plugins=[http],
        )

    async with start() as one, start() as two:
        at = str(http.url)
        await until(lambda: _is(at, "/readyz", 200))
        (process,) = (await probe(at, "/readyz?verbose")).body["workers"]
        assert {pool["pool_id"] for pool in process["pools"]} == {one.pool_id, two.pool_id}
        await two.stop()
        (process,) = (await probe(at, "/livez?verbose")).body["workers"]
        assert [pool["pool_id"] for pool in process["pools"]] == [one.pool_id]
    assert http.url is None
    with pytest.raises(httpx.ConnectError):
        await probe(at, "/livez")


@pytest.mark.parametrize("processes", [1, 2])
async def test_without_the_client_library_metrics_are_missing_and_the_answer_says_why(
    start: Start, tmp_path: Path, processes: int
) -> None:
    write_program(tmp_path / "worker.py", f"http_port=0, processes={processes}")
    text = "import sys\nsys.modules['prometheus_client'] = None\n" + (tmp_path / "worker.py").read_text()
    (tmp_path / "worker.py").write_text(text)
    at = address_of(start("worker.py").wait_for("ready: "))
    missing = await probe(at, "/metrics")
    assert missing.status == 404
    assert "graphile-worker[metrics]" in missing.body["error"]
    assert (await probe(at, "/livez")).status == 200


def test_a_port_in_use_ends_the_start_with_one_line(start: Start, tmp_path: Path) -> None:
    taken = HttpPlugin(0)
    asyncio.run(_fails_beside(taken, start, tmp_path))


async def _fails_beside(taken: HttpPlugin, start: Start, tmp_path: Path) -> None:
    await taken.open()
    try:
        assert taken.url is not None
        port = taken.url.rpartition(":")[2]
        for processes in (1, 2):
            write_program(tmp_path / "worker.py", f"http_port={port}, processes={processes}")
            worker = start("worker.py")
            assert worker.ended() == 1
            assert f"error: http_port: cannot listen on port {port} of 0.0.0.0" in worker.output
            assert "Traceback" not in worker.output
    finally:
        await taken.close()


def test_ports_are_checked() -> None:
    with pytest.raises(ConfigError, match="http_port: expected a number from 0 to 65535, got 65536"):
        HttpPlugin(65536)


async def test_an_exporter_without_a_worker(
    start: Start, tmp_path: Path, database_url: str, jobs: Jobs
) -> None:
    await jobs.add("hello")
    (tmp_path / "socket").mkdir()
    command = ("-m", "graphile_worker", "exporter", "--http-port", "0", "--every", "1")
    exporter = start(*command, DATABASE_URL=Proxy(database_url).url(tmp_path / "socket"))
    at = address_of(exporter)
    assert (await probe(at, "/livez")).status == 200  # the database does not answer yet
    assert (await probe(at, "/readyz")).status == 503
    assert (await scrape(at))["exporter_up"] == 0
    async with proxy_to(database_url, tmp_path / "socket"):
        await until(lambda: _is(at, "/readyz", 200))
        found = await scrape(at)
        assert (found["exporter_up"], found["ready_jobs"], found["workers[state=alive]"]) == (1, 1, 0)
        exporter.send(signal.SIGTERM)
        await until(lambda: exporter.process.poll() is not None)
    assert exporter.ended() == 143


async def test_one_of_several_processes_has_the_gauges_about_the_database(
    start: Start, tmp_path: Path, jobs: Jobs
) -> None:
    write_program(tmp_path / "worker.py", "processes=2, http_port=0, database_metrics=True")
    worker = start("worker.py").wait_for("ready: ", times=2)
    at = address_of(worker)

    async def is_there() -> bool:
        return (await scrape(at)).get("exporter_up") == 1  # the sum of all processes

    await until(is_there)
    assert (await scrape(at))["jobs_table_bytes"] > 0
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_worker_survives_what_collectors_of_the_application_raise(
    database_url: str, fault: type[BaseException]
) -> None:
    class Breaks:
        def collect(self) -> list[Metric]:
            raise fault("as asked")

    registry = CollectorRegistry()
    registry.register(Breaks())
    plugin = HttpPlugin(0, "127.0.0.1", registry=registry)
    async with run(task_list={"hello": lambda: None}, connection_string=database_url, plugins=[plugin]):
        assert plugin.url is not None
        assert (await probe(plugin.url, "/metrics")).status == 500
        await until(lambda: _is(plugin.url or "", "/readyz", 200))

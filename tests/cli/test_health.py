"""`graphile-worker health`: healthy, hanging, missing, several processes, and where it finds the worker."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Run, running_in
from service.probes import port_of
from support.command_line import Call
from support.working import until


@pytest.fixture
def run(place: Path, database_url: str) -> Iterator[Run]:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text("def hello(): pass\n")
    with running_in(place) as run:
        yield run


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


async def test_a_worker_is_healthy_hangs_is_healthy_again_and_ends(
    run: Run, call: Call, database_url: str
) -> None:
    worker = run("--http-port", 0, DATABASE_URL=database_url).ready()
    port = port_of(worker)
    await until(lambda: call("health", "--http-port", port).status == 0)
    assert call("health", "--http-port", port).out == f"worker process {worker.pid} is healthy\n"
    assert call("health", "--live", "--http-port", port).status == 0
    report = call("health", "--http-port", port, "--json").check().json
    assert (report["healthy"], report["problems"]) == (True, [])
    (only,) = report["workers"]
    assert only["pid"] == worker.pid
    assert (only["healthy"], only["pools"][0]["state"]) == (True, "running")

    worker.send(signal.SIGSTOP)
    result = call("health", "--http-port", port, "--within", "0.2")
    assert result.status == 1
    assert "does not answer; its event loop may be blocked" in result.err
    worker.send(signal.SIGCONT)
    await until(lambda: call("health", "--http-port", port).status == 0)

    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    result = call("health", "--http-port", port)
    assert result.status == 1
    assert f"no worker answers at 127.0.0.1 on port {port}: " in result.err
    assert call("health", "--http-port", port, "--json").json["healthy"] is False


async def test_each_of_several_processes_counts(run: Run, call: Call, database_url: str) -> None:
    worker = run("--http-port", 0, "--processes", 2, DATABASE_URL=database_url).wait_for("ready: ", times=2)
    port = port_of(worker)
    await until(lambda: call("health", "--http-port", port).status == 0)
    report = call("health", "--http-port", port, "--json").check().json
    first, second = report["workers"]
    assert first["pid"] != second["pid"]


@pytest.mark.parametrize("configured", ["", "http_port = 0\n"])
def test_without_a_port_the_advice_says_how_to_set_one(call: Call, place: Path, configured: str) -> None:
    (place / "graphile_worker.toml").write_text(configured)
    result = call("health")
    assert result.status == 1
    for way in ("--http-port", "GRAPHILE_WORKER_HTTP_PORT"):
        assert way in result.err


def test_port_and_address_come_from_where_the_worker_has_them(call: Call, place: Path, port: int) -> None:
    (place / "graphile_worker.toml").write_text(f'http_port = {port}\nhttp_address = "127.0.0.2"\n')
    assert f"no worker answers at 127.0.0.2 on port {port}: " in call("health").err
    result = call("health", GRAPHILE_WORKER_HTTP_ADDRESS="::")
    assert f"no worker answers at ::1 on port {port}: " in result.err
    assert call("health", "--http-address", "127.0.0.3", "--json").json["workers"] == []


def test_something_else_on_the_port_is_not_a_worker(call: Call, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        result = call("health", "--http-port", port, "--within", "0.2")
    assert result.status == 1

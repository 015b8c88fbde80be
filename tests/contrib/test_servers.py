"""Real servers as child processes: a worker in uvicorn's processes, and Flask under gunicorn.

FastAPI stands for all with `GraphileWorkerApp`; each framework shows that Ctrl-C reaches the worker.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from blocking.test_gunicorn import get
from blocking.test_gunicorn import serving as gunicorn
from graphile_worker import make_worker_utils
from support.command_line import clean_environment
from support.ports import unused_port
from support.worker_process import WorkerProcess
from support.working import PATIENCE, Jobs, until, wait_until

HERE = Path(__file__).parent


@contextmanager
def uvicorn(
    url: str, folder: Path, *options: str, module: str = "web_app"
) -> Iterator[tuple[WorkerProcess, str]]:
    """uvicorn with one of the applications in this folder, and its address."""
    for name in ("web_app", module):
        shutil.copy(HERE / f"{name}.py", folder)
    port = unused_port()
    process = WorkerProcess(
        [sys.executable, "-m", "uvicorn", f"{module}:app", "--port", str(port), *options],
        folder=folder,
        environment=clean_environment(DATABASE_URL=url),
        new_session=True,
    )
    try:
        process.wait_for("Application startup complete").wait_for("Uvicorn running on")
        _wait_for_port(port)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its worker processes too, which hold the pipes
        process.close()


def _wait_for_port(port: int) -> None:
    """A process that uvicorn starts says that it is ready before it listens."""

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except ConnectionRefusedError:
            return False
        return True

    wait_until(listens, every=0.05)


def post(url: str) -> None:
    request = urllib.request.Request(url, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE):
        pass


async def test_every_process_of_uvicorn_has_a_worker(database_url: str, jobs: Jobs, tmp_path: Path) -> None:
    with uvicorn(database_url, tmp_path, "--workers", "2") as (server, address):
        server.wait_for("Application startup complete", times=2)
        async with make_worker_utils(connection_string=database_url) as utils:
            workers = await utils.list_workers()
        assert len([worker for worker in workers if worker.is_alive]) == 2
        assert server.pid not in {worker.pid for worker in workers}
        post(f"{address}/add/quick")
        await jobs.until_gone()
        server.send(signal.SIGTERM)
        assert server.ended() == 0
    assert "Traceback" not in server.output


@pytest.mark.parametrize("module", ["web_app", "litestar_app", "quart_app"])
async def test_ctrl_c_returns_the_running_job(
    module: str, database_url: str, jobs: Jobs, connection: Any, tmp_path: Path
) -> None:
    with uvicorn(database_url, tmp_path, module=module) as (server, address):
        post(f"{address}/add/endless")
        server.wait_for("endless: started")
        server.send(signal.SIGINT)
        server.ended()
    (job,) = await jobs.all()
    assert job["locked_at"] is None
    assert job["attempts"] < job["max_attempts"]
    assert await connection.fetchval("select count(*) from graphile_worker._private_py_workers") == 0


async def test_a_reload_starts_a_new_worker(database_url: str, jobs: Jobs, tmp_path: Path) -> None:
    with uvicorn(database_url, tmp_path, "--reload") as (server, address):
        post(f"{address}/add/endless")
        server.wait_for("endless: started")
        source = tmp_path / "web_app.py"
        source.write_text(
            source.read_text().replace("await asyncio.Event().wait()", "await asyncio.sleep(0)")
        )
        server.wait_for("Application startup complete", times=2)
        await jobs.until_gone()  # the job was returned, and the new code ends it
        server.send(signal.SIGINT)
        server.ended()


async def test_a_dead_worker_ends_the_server(database_url: str, tmp_path: Path) -> None:
    with uvicorn(database_url, tmp_path) as (server, address):
        post(f"{address}/kill-worker")
        server.ended()
    assert "the worker in this process has ended" in server.output


async def test_flask_under_gunicorn_with_preload(database_url: str, jobs: Jobs, tmp_path: Path) -> None:
    served = gunicorn(
        database_url, tmp_path, "--preload", "--threads=2", application="flask_app:application", where=HERE
    )
    with served as (server, port):

        async def all_answer() -> bool:
            pids.add(get(port)["pid"])
            return len(pids) == 2

        pids: set[int] = set()
        await until(all_answer)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    assert {job["identifier"] for job in await jobs.all()} == {"loaded", "request"}

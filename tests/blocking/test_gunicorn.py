"""The blocking client under gunicorn: opened before the fork, used in the children, also by threads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.command_line import clean_environment

HERE = Path(__file__).parent
PATIENCE = 120.0  # seconds
REQUESTS = 40


@contextmanager
def serving(
    url: str, folder: Path, *options: str, application: str = "wsgi:application", where: Path = HERE
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """gunicorn with two processes, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        os.set_inheritable(listener.fileno(), True)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "gunicorn", "--workers=2", "--bind", f"fd://{listener.fileno()}",
                 "--chdir", str(where), "--worker-tmp-dir", str(folder), "--no-control-socket", *options,
                 application],
                env=clean_environment(DATABASE_URL=url),
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        try:
            yield server, port
        finally:
            server.kill()
            server.wait(PATIENCE)


def get(port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
        found: dict[str, int] = json.load(answer)
    return found


@pytest.mark.parametrize("options", [("--preload",), ("--preload", "--threads=4"), ("--threads=4",)], ids=str)
def test_requests_add_jobs_in_all_processes(
    options: tuple[str, ...], database_url: str, session: Any, tmp_path: Path
) -> None:
    with serving(database_url, tmp_path, *options) as (server, port):
        pids: set[int] = set()
        deadline = time.monotonic() + PATIENCE
        with ThreadPoolExecutor(8) as threads:
            while len(pids) < 2 and time.monotonic() < deadline:
                pids |= {answer["pid"] for answer in threads.map(get, [port] * REQUESTS)}
        assert len(pids) == 2
        assert server.pid not in pids
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "loop" not in log
    rows = session.execute(
        "select task_identifier, count(*), count(distinct payload ->> 'pid') from graphile_worker.jobs "
        "join graphile_worker._private_jobs using (id) group by 1 order by 1"
    ).fetchall()
    is_preloaded = "--preload" in options
    assert rows[0] == ("loaded", 1 if is_preloaded else 2, 1 if is_preloaded else 2)
    assert rows[1][1] >= REQUESTS
    assert rows[1][2] == 2

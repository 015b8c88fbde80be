"""A server that is told to stop does not wait for streams, wherever the dashboard is mounted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from support.working import PATIENCE

PROGRAM = """
import sys, uvicorn
from starlette.applications import Starlette
from graphile_worker.admin import admin_app, everyone_may
app = Starlette()
app.mount("/jobs", admin_app(connection_string=sys.argv[1], authorize=everyone_may))
uvicorn.run(app, port=0)
"""


@pytest.fixture
def mounted(database_url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, database_url],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_open_streams_end_on_sigterm(mounted: subprocess.Popen[str]) -> None:
    assert mounted.stderr is not None
    address = next(found[0] for line in mounted.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
    headers = {"Sec-Fetch-Site": "same-origin"}
    with httpx.stream("GET", f"{address}/jobs/api/v1/events", headers=headers, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        assert any(line == "event: hello" for line in lines)
        mounted.send_signal(signal.SIGTERM)
        mounted.wait(PATIENCE)  # without the hub's help uvicorn would wait for ever
        list(lines)  # the stream was ended, not cut
    assert mounted.returncode in (0, -signal.SIGTERM)

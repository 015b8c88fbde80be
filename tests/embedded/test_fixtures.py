"""The fixtures that all other tests stand on: own databases, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

from embedded.asking import Participate, query
from support.command_line import INNER_PYTEST
from support.scratch import PREFIX, SETTLED_SECONDS, remove_leftovers, scratch_folder
from support.server import DatabaseServer
from support.working import until

TESTS = Path(__file__).parents[1]


def inner_run(folder: Path, text: str, **environment: str) -> subprocess.Popen[str]:
    """A test run of its own that uses these fixtures."""
    (folder / "test_inner.py").write_text(text)
    options = ["-c", os.devnull, "--rootdir", str(folder), "-o", "asyncio_mode=auto", "-p", "conftest", "-sq"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, folder / "test_inner.py"],
        env={
            **os.environ,
            **INNER_PYTEST,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


async def test_each_database_is_fresh_and_of_its_own(
    database_url: str, empty_database_url: str, create_database: Callable[..., str]
) -> None:
    names = {str(await query(url, "SELECT current_database()")) for url in (database_url, empty_database_url)}
    names.add(str(await query(create_database(), "SELECT current_database()")))
    assert len(names) == 3
    installed = "SELECT to_regnamespace('graphile_worker') IS NOT NULL"
    assert await query(database_url, installed) is True
    assert await query(empty_database_url, installed) is False


async def test_the_connection_leads_to_the_tests_own_database(
    connection: asyncpg.Connection, database_url: str
) -> None:
    assert await connection.fetchval("SELECT current_database()") == database_url.split("/")[3].split("?")[0]
    assert await connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0


async def test_failed_tests_leave_no_database_on_a_server_that_was_given(
    server: DatabaseServer, server_url: str, folder: Path
) -> None:
    text = """
import asyncpg, os

async def test_that_fails_with_a_connection_left_open(database_url, create_database):
    create_database()
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT 1") == 2

def test_that_passes(empty_database_url):
    assert f"/gw_test_{os.getpid()}_" in empty_database_url
"""
    run = inner_run(folder, text, TEST_DATABASE_URL=server_url)
    output, _ = run.communicate(timeout=180)
    assert "1 failed, 1 passed" in output
    assert f"Tested on PostgreSQL {server.version} (the server of TEST_DATABASE_URL)" in output
    left = f"SELECT count(*) FROM pg_database WHERE starts_with(datname, 'gw_test_{run.pid}_')"
    assert await query(server_url, left) == 0


def test_ctrl_c_ends_the_embedded_server_of_the_run(folder: Path) -> None:
    text = """
import threading

def test_that_is_interrupted(empty_database_url):
    print("\\nurl", empty_database_url, flush=True)
    threading.Event().wait(60)
"""
    run = inner_run(folder, text, TMPDIR=str(folder), TEST_DATABASE_URL="")
    assert run.stdout is not None
    line = next(line for line in run.stdout if line.startswith("url "))
    assert "host=" in line
    assert len(list(folder.glob(f"*/{PREFIX}*"))) == 1
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=180)
    assert list(folder.glob(f"*/{PREFIX}*")) == []


async def test_a_temporary_folder_that_is_still_used_is_removed_when_its_last_user_is_gone(
    participate: Participate,
) -> None:
    with scratch_folder() as folder:
        other = participate(data_dir=folder)
        assert other.ask("start")["running"]
    assert other.ask("status")["running"]
    other.kill()

    async def is_gone() -> bool:
        return not folder.exists()

    await until(is_gone)


def test_the_next_run_clears_away_what_a_killed_run_left(participate: Participate, folder: Path) -> None:
    killed, alive, young = (folder / f"{PREFIX}{name}" for name in ("killed", "alive", "young"))
    for each in (killed, alive, young):
        each.mkdir(mode=0o755)
    victim, survivor = participate(data_dir=killed), participate(data_dir=alive)
    url = victim.ask("start")["url"]
    assert survivor.ask("start")["running"]
    victim.kill()
    long_ago = time.time() - 2 * SETTLED_SECONDS
    for each in (killed, alive):
        os.utime(each, (long_ago, long_ago))

    remove_leftovers(folder)

    assert not killed.exists()
    assert young.exists()
    assert survivor.ask("status")["running"]
    assert not survivor.ask("stop")["running"]
    assert str(killed) in url

"""Tests end: each has a limit, and nothing that a run started outlives it, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_line import INNER_PYTEST
from support.run_guard import PREFIX, marked_processes
from support.working import PATIENCE

TESTS = Path(__file__).parent.parent

HANGS = """
import asyncio, subprocess, sys
import pytest

@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    yield process
    process.kill()
    process.wait()

async def test_that_hangs(child):
    async def somewhere():
        await asyncio.Event().wait()
    await asyncio.create_task(somewhere())

def test_that_comes_after():
    pass
"""
IGNORES = """
import asyncio, subprocess, sys

async def test_that_ignores_everything():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass
"""
WAITS = """
import subprocess, sys, time
from graphile_worker.database.embedded import EmbeddedPostgres

def test_that_waits(database_url, tmp_path_factory):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with EmbeddedPostgres(tmp_path_factory.mktemp("own") / "data"):
        print("\\nready", flush=True)
        time.sleep(3600)
"""
MULTIPROCESSING = """
from multiprocessing.util import get_temp_dir

def test_with_the_folder_of_a_fork_server():
    assert get_temp_dir()
"""

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts a test run of its own; it has the settings of this one, and temporary folders of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *options: str) -> subprocess.Popen[str]:
        (tmp_path / "test_inner.py").write_text(text)
        (tmp_path / "tmp").mkdir()
        (tmp_path / "tmp").chmod(0o755)
        setup = ["-c", TESTS.parent / "pyproject.toml", "--rootdir", tmp_path, "-p", "conftest", *options]
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "pytest", "-s", *map(str, setup), tmp_path / "test_inner.py"],
                env={
                    **os.environ,
                    **INNER_PYTEST,
                    "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
                    "TMPDIR": str(tmp_path / "tmp"),
                    "PYTEST_DEBUG_TEMPROOT": str(tmp_path / "tmp"),
                    "TEST_DATABASE_URL": "",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


def run_folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").glob(f"{PREFIX}*"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) >= 300


def test_a_test_that_hangs_fails_with_stacks_and_the_next_one_runs(run: Run) -> None:
    output, _ = run(HANGS, "--timeout", "3").communicate(timeout=2 * PATIENCE)
    assert "1 failed, 1 passed" in output
    assert "Timeout (>3.0s)" in output
    assert "in somewhere" in output


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only Linux shows whose processes are whose")
def test_a_test_that_cannot_be_interrupted_ends_the_run_and_its_processes(run: Run, tmp_path: Path) -> None:
    process = run(IGNORES, "--timeout", "3")
    until(lambda: bool(run_folders(tmp_path)))
    (folder,) = run_folders(tmp_path)
    until(lambda: bool(marked_processes(folder.name)))
    output, _ = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 1
    assert "most recent call first" in output  # the stacks of all threads
    until(lambda: not folder.exists() and not marked_processes(folder.name))


def test_a_run_with_a_folder_of_multiprocessing_ends_without_an_error(run: Run, tmp_path: Path) -> None:
    output, _ = run(MULTIPROCESSING).communicate(timeout=2 * PATIENCE)
    assert "1 passed" in output
    assert "Traceback" not in output
    assert not run_folders(tmp_path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only Linux shows whose processes are whose")
def test_a_killed_run_leaves_no_server_no_process_and_no_folder(run: Run, tmp_path: Path) -> None:
    process = run(WAITS)
    assert process.stdout is not None
    assert any(line.startswith("ready") for line in process.stdout)
    (folder,) = run_folders(tmp_path)
    programs = list(marked_processes(folder.name).values())
    assert programs.count("postgres") >= 2
    assert len(programs) > 2
    process.send_signal(signal.SIGKILL)
    until(lambda: not folder.exists() and not marked_processes(folder.name))

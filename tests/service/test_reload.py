"""SIGHUP: reloads without a controlling terminal, stops with one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.terminal import Terminal
from service.programs import Start, write_program
from support.command_line import clean_environment
from support.programs import needed
from support.working import Jobs

COMMAND = ("-m", "graphile_worker", "--tasks", "jobs.py:tasks")
JOBS = """\
import asyncio, os

async def hello(payload, helpers):
    helpers.logger.info("hello from {version}")

async def wait(payload, helpers):
    helpers.logger.info("began to wait")
    while not os.path.exists("go_on"):
        await asyncio.sleep(0.01)

tasks = [hello, wait]
"""

Open = Callable[..., Terminal]


def write_jobs(folder: Path, version: str) -> None:
    (folder / "jobs.py").write_text(JOBS.format(version=version))


@pytest.fixture
def terminal(tmp_path: Path, database_url: str) -> Iterator[Open]:
    """Starts Python programs with a controlling terminal."""
    opened: list[Terminal] = []

    def start(*arguments: object) -> Terminal:
        environment = clean_environment(DATABASE_URL=database_url)
        terminal = Terminal(
            [sys.executable, *map(str, arguments)], environment, tmp_path, columns=400, rows=100
        )
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_command_ends_running_jobs_and_starts_again_with_the_current_code_in_the_same_process(
    start: Start, tmp_path: Path, jobs: Jobs, processes: int
) -> None:
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--processes", processes).wait_for("ready: ", times=processes)
    await jobs.add("wait")
    worker.wait_for("began to wait")
    write_jobs(tmp_path, "three")
    worker.send(signal.SIGHUP)
    worker.wait_for("got SIGHUP; ").wait_for("waiting for running jobs to finish")
    assert "restarting with" not in worker.output
    (tmp_path / "go_on").touch()
    worker.wait_for("completed in").wait_for("restarting with the current code")
    worker.wait_for("ready: ", times=2 * processes)
    assert worker.output.count("began to wait") == 1
    assert await jobs.count() == 0
    await jobs.add("hello")
    worker.wait_for("hello from three")
    assert worker.process.poll() is None
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "hello from one" not in worker.output


async def test_a_program_starts_again_too(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py", "processes=2")
    worker = start("worker.py").wait_for("ready: ", times=2)
    write_program(tmp_path / "worker.py", "processes=2", version="two")
    worker.send(signal.SIGHUP)
    worker.wait_for("ready: ", times=4)
    await jobs.add("hello")
    worker.wait_for("hello from two")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


async def test_a_job_that_takes_too_long_is_returned_and_runs_again(
    start: Start, tmp_path: Path, jobs: Jobs
) -> None:
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--grace", "0.1").wait_for("ready: ")
    await jobs.add("wait")
    worker.wait_for("began to wait")
    worker.send(signal.SIGHUP)
    worker.wait_for("ready: ", times=2).wait_for("began to wait", times=2)
    (tmp_path / "go_on").touch()
    worker.wait_for("completed in")


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_stop_while_it_reloads_stops_it(
    start: Start, tmp_path: Path, jobs: Jobs, processes: int
) -> None:
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--processes", processes).wait_for("ready: ", times=processes)
    await jobs.add("wait")
    worker.wait_for("began to wait")
    worker.send(signal.SIGHUP)
    worker.wait_for("waiting for running jobs to finish")
    worker.send(signal.SIGTERM)
    worker.wait_for("SIGTERM ignored: the worker is stopping already")
    (tmp_path / "go_on").touch()
    assert worker.ended() == 143
    assert worker.was_killed_by() == signal.SIGTERM
    assert "restarting with" not in worker.output


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hang_up_during_the_start_reloads_when_it_has_started(
    start: Start, tmp_path: Path, processes: int
) -> None:
    write_jobs(tmp_path, "one")
    (tmp_path / "jobs.py").write_text(
        "import os, signal\n"
        "if not os.path.exists('started'):\n"
        "    open('started', 'w').close()\n"
        f"    os.kill({'os.getpid()' if processes == 1 else 'os.getppid()'}, signal.SIGHUP)\n"
        "def hello(): pass\n"
        "tasks = [hello]\n"
    )
    worker = start(*COMMAND, "--processes", processes).wait_for("restarting with the current code")
    worker.wait_for("ready: ", times=2)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert worker.output.count("restarting with") == 1


def test_a_hang_up_at_any_time_of_a_reload_does_not_kill_it(start: Start, tmp_path: Path) -> None:
    """A SIGHUP while Python starts has no handler yet; it must wait for one."""
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND).wait_for("ready: ")
    while worker.output.count("restarting with") < 3 and worker.process.poll() is None:
        worker.send(signal.SIGHUP)
        time.sleep(0.002)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


def test_a_hang_up_while_handlers_are_removed_does_not_end_it(start: Start, tmp_path: Path) -> None:
    """An event loop that removes a handler leaves the signal to its default for a moment."""
    write_jobs(tmp_path, "one")
    program = (
        "import asyncio, os, runpy, signal, sys\n"
        "sys.modules['uvloop'] = None\n"
        "remove = asyncio.SelectorEventLoop.remove_signal_handler\n"
        "def removed(loop, number):\n"
        "    was_there = remove(loop, number)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return was_there\n"
        "asyncio.SelectorEventLoop.remove_signal_handler = removed\n"
        "runpy.run_module('graphile_worker', run_name='__main__')\n"
    )
    worker = start("-c", program, *COMMAND[2:]).wait_for("ready: ")
    worker.send(signal.SIGHUP)
    worker.wait_for("ready: ", times=2)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


@pytest.mark.parametrize("processes", [1, 2])
def test_code_that_cannot_be_started_ends_it_with_an_error(
    start: Start, tmp_path: Path, processes: int
) -> None:
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--processes", processes).wait_for("ready: ", times=processes)
    (tmp_path / "jobs.py").write_text("import no_such_module\n")
    worker.send(signal.SIGHUP)
    assert worker.ended() == 1
    assert "graphile-worker: error: " in worker.output
    assert "no_such_module" in worker.output


def test_it_starts_again_where_a_symbolic_link_points_now(tmp_path: Path, start: Start) -> None:
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "tasks").mkdir()
        (tmp_path / release / "tasks" / f"from_{release}.py").write_text(f"def from_{release}(): pass\n")
    current = tmp_path / "current"
    current.symlink_to(tmp_path / "one")
    script = "import os, sys; os.chdir('current'); os.execv(sys.executable, sys.argv[1:])"
    worker = start("-c", script, sys.executable, "-m", "graphile_worker", PWD=str(current))
    worker.wait_for("1 task (from_one)")
    current.unlink()
    current.symlink_to(tmp_path / "two")
    worker.send(signal.SIGHUP)
    worker.wait_for("1 task (from_two)")


# -- with a terminal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--processes", "2"), ("--watch",)])
def test_with_a_terminal_it_stops(terminal: Open, tmp_path: Path, more: tuple[str, ...]) -> None:
    write_jobs(tmp_path, "one")
    opened = terminal(*COMMAND, *more)
    opened.until_says("ready: ")
    opened.process.send_signal(signal.SIGHUP)
    assert opened.wait() == -signal.SIGHUP
    assert "restarting" not in opened.screen.text


def test_a_program_with_a_terminal_stops_too(terminal: Open, tmp_path: Path) -> None:
    write_program(tmp_path / "worker.py")
    opened = terminal("worker.py")
    opened.until_says("ready: ")
    opened.process.send_signal(signal.SIGHUP)
    assert opened.wait() == -signal.SIGHUP


# -- with --watch, and with nohup ----------------------------------------------------------------------------


async def test_a_watching_parent_restarts_its_worker(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--watch").wait_for("ready: ")
    worker.send(signal.SIGHUP)
    worker.wait_for("got SIGHUP; restarting the worker").wait_for("ready: ", times=2)
    await jobs.add("hello")
    worker.wait_for("hello from one")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143


@pytest.mark.parametrize("more", [(), ("--processes", "2"), ("--watch",)])
async def test_under_nohup_it_is_ignored(
    start: Start, tmp_path: Path, jobs: Jobs, more: tuple[str, ...]
) -> None:
    write_jobs(tmp_path, "one")
    script = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, "
        "[sys.executable, *sys.argv[1:]])"
    )
    worker = start("-c", script, *COMMAND, *more).wait_for("ready: ")
    worker.send(signal.SIGHUP)
    await jobs.add("hello")
    worker.wait_for("hello from one")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "SIGHUP" not in worker.output


def test_the_worker_process_of_several_stops_by_it(start: Start, tmp_path: Path) -> None:
    """Only the parent reloads; a worker process that gets the signal itself is replaced."""
    write_jobs(tmp_path, "one")
    worker = start(*COMMAND, "--processes", "2").wait_for("ready: ", times=2)
    found = subprocess.run(
        [needed("pgrep"), "-P", str(worker.pid)], capture_output=True, text=True, check=True
    )
    os.kill(int(found.stdout.split()[0]), signal.SIGHUP)
    worker.wait_for("was killed by SIGHUP; starting another").wait_for("ready: ", times=3)
    assert "restarting with" not in worker.output

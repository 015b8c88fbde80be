"""The parent of several worker processes: signals, crashes, errors, and its own death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from support.command_line import clean_environment

SCRIPT = """
import logging, os, signal, sys
from graphile_worker.runner.process.processes import Supervisor

logging.basicConfig(level="ERROR", format="%(message)s")

def say(word):
    os.write(1, f"{word} {os.getpid()}\\n".encode())

def work():
    WORK

def stop(*_):
    say("stopping")
    raise SystemExit(0)

status = Supervisor(2, work, replace=REPLACE, kill_after=KILL_AFTER).run()
say("ended")
sys.exit(status)
"""
WAIT_FOR_SIGNAL = """
    signal.signal(signal.SIGTERM, stop)
    say("started")
    while True:
        signal.pause()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def run(work: str, *, replace: bool = True, kill_after: float = 600.0) -> subprocess.Popen[str]:
        script = SCRIPT.replace("WORK", work.strip()).replace("REPLACE", str(replace))
        process = subprocess.Popen(
            [sys.executable, "-c", script.replace("KILL_AFTER", str(kill_after))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
        )  # fmt: skip
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def read(process: subprocess.Popen[str], word: str, times: int = 1) -> list[int]:
    """The process ids in the next lines that start with `word`; other lines are skipped."""
    assert process.stdout is not None
    found: list[int] = []
    while len(found) < times:
        line = process.stdout.readline()
        assert line, f"the output ended before {word!r} was said"
        if line.startswith(word):
            found.append(int(line.split()[1]))
    return found


def test_a_signal_reaches_every_worker_once_and_the_parent_ends_by_it(start: Start) -> None:
    parent = start(WAIT_FOR_SIGNAL)
    workers = read(parent, "started", 2)
    parent.send_signal(signal.SIGTERM)
    assert sorted(read(parent, "stopping", 2)) == sorted(workers)
    assert parent.wait(timeout=60) == -signal.SIGTERM


def test_a_worker_that_was_killed_is_replaced(start: Start) -> None:
    parent = start(WAIT_FOR_SIGNAL)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGKILL)
    (third,) = read(parent, "started")
    assert third not in (first, second)
    parent.send_signal(signal.SIGTERM)
    assert sorted(read(parent, "stopping", 2)) == sorted((second, third))
    _, err = parent.communicate(timeout=60)
    assert f"worker process {first} was killed by SIGKILL; starting another" in err


def test_a_worker_that_ends_with_an_error_stops_the_others(start: Start) -> None:
    work = f"""
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
    {WAIT_FOR_SIGNAL.strip()}
    """
    parent = start(work)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGUSR1)
    assert read(parent, "stopping") == [second]
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 3
    assert f"worker process {first} exited with status 3; stopping the others" in err


def test_a_worker_that_stops_by_itself_stops_all_of_them(start: Start) -> None:
    parent = start(WAIT_FOR_SIGNAL)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGTERM)
    assert read(parent, "stopping", 2) == [first, second]
    assert parent.wait(timeout=60) == 0


def test_all_of_them_stop_when_the_log_loses_its_reader(start: Start) -> None:
    work = f"""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    {WAIT_FOR_SIGNAL.strip()}
    """
    parent = start(work)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGPIPE)
    assert read(parent, "stopping") == [second]
    assert parent.wait(timeout=60) == -signal.SIGPIPE


def test_workers_stop_when_their_parent_is_killed(start: Start) -> None:
    parent = start(WAIT_FOR_SIGNAL)
    workers = read(parent, "started", 2)
    parent.kill()
    assert sorted(read(parent, "stopping", 2)) == sorted(workers)
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def test_workers_that_run_once_all_end_by_themselves(start: Start) -> None:
    parent = start('say("worked")\n    return 0', replace=False)
    read(parent, "worked", 2)
    assert parent.wait(timeout=60) == 0


def test_the_worst_status_of_workers_that_run_once_is_the_parents(start: Start) -> None:
    parent = start('say("worked")\n    os.kill(os.getpid(), signal.SIGKILL)', replace=False)
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert err.count("was killed by SIGKILL") == 2


@pytest.mark.parametrize("status", [0, 3])
def test_a_worker_that_vanishes_is_replaced(start: Start, status: int) -> None:
    """A task that calls `os._exit` does not stop the worker, whatever the status."""
    work = f"""
    signal.signal(signal.SIGUSR1, lambda *_: os._exit({status}))
    {WAIT_FOR_SIGNAL.strip()}
    """
    parent = start(work)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGUSR1)
    (third,) = read(parent, "started")
    assert third not in (first, second)
    parent.send_signal(signal.SIGTERM)
    assert sorted(read(parent, "stopping", 2)) == sorted((second, third))
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == -signal.SIGTERM
    assert f"worker process {first} exited abruptly with status {status}" in err
    assert "starting another" in err


def test_workers_that_vanish_at_once_are_replaced_again_and_again(start: Start) -> None:
    parent = start('say("started")\n    os._exit(0)')
    read(parent, "started", 6)  # two at once, then one after another
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=60) == -signal.SIGTERM


def test_a_worker_that_vanishes_from_a_run_once_is_an_error(start: Start) -> None:
    parent = start("os._exit(0)", replace=False)
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert err.count("exited abruptly with status 0") == 2


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="this system has no real-time signals")
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_worker_that_a_real_time_signal_ended_is_replaced(start: Start, offset: int) -> None:
    parent = start(WAIT_FOR_SIGNAL)
    first, second = read(parent, "started", 2)
    os.kill(first, signal.SIGRTMIN + offset)
    (third,) = read(parent, "started")
    parent.send_signal(signal.SIGTERM)
    assert sorted(read(parent, "stopping", 2)) == sorted((second, third))
    _, err = parent.communicate(timeout=60)
    name = f"SIGRTMIN+{offset}" if offset else "SIGRTMIN"
    assert f"worker process {first} was killed by {name}; starting another" in err


def test_a_process_that_does_not_end_is_killed_after_a_while(start: Start) -> None:
    process = start(
        """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("started")
    while True:
        signal.pause()
""",
        kill_after=0.2,
    )
    workers = read(process, "started", times=2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert sorted(errors.split("worker process ")[1:]) == [
        f"{pid} did not end in time; killing it\n" for pid in sorted(workers)
    ]

"""What a program prints becomes log lines: whole lines, of the right job, from any thread."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from graphile_worker.logging import configure_logging
from graphile_worker.logging.configure import PipeHandler
from graphile_worker.values.job import current_helpers
from observability.test_log_plugin import make_job
from support.process_state import restored_process


class Capture:
    """Output of this process as JSON lines."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.handler: PipeHandler = configure_logging("json", stdout=self.out, stderr=self.err, capture=True)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out.getvalue() + self.err.getvalue()).splitlines()]

    @property
    def texts(self) -> list[str]:
        return [line["msg"] for line in self.lines]


def capturing(test: Callable[[Capture], None]) -> Callable[[], None]:
    """Capture output during a test. A fixture is too early: pytest replaces the streams after it."""

    def run() -> None:
        with restored_process():
            test(Capture())

    run.__name__ = test.__name__
    return run


def in_job(job_id: int, slot: str, *writes: str) -> None:
    """Write as a task of this job does."""

    def write() -> None:
        helpers = SimpleNamespace(job=make_job(id=job_id), worker_id=slot)
        current_helpers.set(helpers)
        for text in writes:
            sys.stdout.write(text)

    contextvars.copy_context().run(write)


@capturing
def test_a_line_that_is_printed_is_a_record_of_the_logger_stdout_or_stderr(capture: Capture) -> None:
    print("one", 2)
    print("wrong", file=sys.stderr)
    out, err = capture.lines
    assert (out["logger"], out["level"], out["msg"]) == ("stdout", "info", "one 2")
    assert (err["logger"], err["level"], err["msg"]) == ("stderr", "warning", "wrong")
    assert "job_id" not in out


@capturing
def test_each_line_is_a_record_and_empty_ones_are_left_out(capture: Capture) -> None:
    print("a\n\nb\r\nc", end="")
    assert capture.texts == ["a", "b"]
    print("d")
    assert capture.texts == ["a", "b", "cd"]


@capturing
def test_of_a_progress_bar_the_last_state_is_logged(capture: Capture) -> None:
    for percent in (10, 50, 100):
        print(f"\r{percent} %", end="", flush=True)
    assert capture.texts == []
    print()
    assert capture.texts == ["100 %"]


@capturing
def test_lines_of_jobs_that_print_at_the_same_time_are_not_mixed(capture: Capture) -> None:
    in_job(1, "slot-a", "from ")
    in_job(2, "slot-b", "two\n")
    print("from no job")
    capture.handler.flush()
    assert [(line["msg"], line.get("job_id")) for line in capture.lines] == [
        ("two", 2),
        ("from no job", None),
        ("from ", 1),
    ]


@capturing
def test_what_an_earlier_job_of_a_slot_left_unfinished_is_still_its_own(capture: Capture) -> None:
    in_job(1, "slot-a", "first")
    in_job(2, "slot-a", "second\n")
    assert [(line["msg"], line["job_id"]) for line in capture.lines] == [("first", 1), ("second", 2)]


@capturing
def test_an_unfinished_line_comes_before_the_line_that_says_how_the_job_ended(capture: Capture) -> None:
    in_job(1, "slot-a", "no newline")
    logging.getLogger("graphile_worker.worker").info(
        "done", extra={"event": "job:success", "worker_id": "slot-a", "job_id": 1}
    )
    assert capture.texts == ["no newline", "done"]


@capturing
def test_the_next_job_of_the_slot_does_not_take_an_unfinished_line_past_the_end_of_its_job(
    capture: Capture,
) -> None:
    logger, jobs = logging.getLogger("graphile_worker.worker"), range(300)
    turns = threading.Barrier(2)

    def print_in_the_next_job() -> None:
        for _ in jobs:
            turns.wait(timeout=60)
            in_job(-1, "slot-a", "next\n")
            turns.wait(timeout=60)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=print_in_the_next_job)
        thread.start()
        for job_id in jobs:
            in_job(job_id, "slot-a", f"unfinished {job_id}")
            turns.wait(timeout=60)
            logger.info(
                "ended %d", job_id, extra={"event": "job:success", "worker_id": "slot-a", "job_id": job_id}
            )
            turns.wait(timeout=60)
        thread.join(timeout=60)
    finally:
        sys.setswitchinterval(interval)
    texts = capture.texts
    late = [job for job in jobs if texts.index(f"unfinished {job}") > texts.index(f"ended {job}")]
    assert late == []


@capturing
def test_threads_that_print_at_the_same_time_do_not_mix_their_lines(capture: Capture) -> None:
    barrier = threading.Barrier(4)

    def write(number: int) -> None:
        barrier.wait(timeout=60)
        for _ in range(200):
            print("thread", number, "says", number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(capture.texts) == sorted(f"thread {n} says {n}" for n in range(4) for _ in range(200))


@capturing
def test_a_line_without_an_end_is_logged_in_parts(capture: Capture) -> None:
    for _ in range(20):
        sys.stdout.write("x" * 10_000)
    capture.handler.flush()
    assert "".join(capture.texts) == "x" * 200_000
    assert len(capture.texts) > 1


@capturing
def test_the_stream_is_good_enough_for_code_that_looks_at_it(capture: Capture) -> None:
    click.echo("echoed")
    sys.stdout.buffer.write("bytes ü\n".encode())
    sys.stdout.writelines(["a\n", "b\n"])
    assert (sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.writable()) == (False, "utf-8", True)
    with pytest.raises(TypeError, match="must be str, not bytes"):
        sys.stdout.write(b"bytes")  # type: ignore[arg-type]
    assert capture.texts == ["echoed", "bytes ü", "a", "b"]


@capturing
def test_another_handler_that_writes_to_the_captured_stream_makes_no_endless_loop(capture: Capture) -> None:
    other = logging.StreamHandler(sys.stdout)
    logging.getLogger().addHandler(other)
    logging.getLogger("shop").info("said once")
    assert [(line["logger"], line["msg"]) for line in capture.lines] == [
        ("shop", "said once"),
        ("stdout", "said once"),
    ]


@capturing
def test_what_is_printed_is_logged_at_any_level_unless_it_is_turned_off(capture: Capture) -> None:
    configure_logging("json", "error", stdout=(out := io.StringIO()), capture=True)
    print("shown")
    assert json.loads(out.getvalue())["msg"] == "shown"
    configure_logging("json", levels={"stdout": "error"}, stdout=(out := io.StringIO()), capture=True)
    print("not shown")
    assert out.getvalue() == ""


@capturing
def test_an_error_in_the_log_itself_cannot_recurse(capture: Capture) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    configure_logging("json", stdout=Full(), stderr=Full(), capture=True)
    print("lost")
    logging.getLogger("shop").error("lost")


@capturing
def test_without_capturing_the_streams_are_as_before(capture: Capture) -> None:
    configure_logging("json", stdout=io.StringIO())
    assert type(sys.stdout).__name__ != "LogStream"
    assert sys.excepthook is sys.__excepthook__


PROGRAM = """
import sys, threading
from graphile_worker.logging import configure_logging
configure_logging("json", capture=True)
thread = threading.Thread(target=lambda: 1 / 0, name="t")
thread.start()
thread.join()
print("unfinished", end="")

class Broken:
    def __del__(self):
        raise KeyError("in del")

Broken()
raise ValueError("at the end")
"""


def test_exceptions_that_nothing_catches_are_lines_and_an_unfinished_line_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    errors = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["msg"] for line in errors] == [
        "uncaught exception in thread t: ZeroDivisionError: division by zero",
        errors[1]["msg"],
        "uncaught exception: ValueError: at the end",
    ]
    assert errors[1]["msg"].endswith(": KeyError: 'in del'")
    assert all(line["traceback"].startswith("Traceback") for line in errors)
    assert [json.loads(line)["msg"] for line in done.stdout.splitlines()] == ["unfinished"]


@capturing
def test_a_forked_process_does_not_repeat_unfinished_lines_of_its_parent(capture: Capture) -> None:
    read, write = os.pipe()
    print("of the parent", end="")
    child = os.fork()
    if child == 0:
        try:
            capture.handler.flush()
            os.write(write, capture.out.getvalue().encode() or b"nothing")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000) == b"nothing"
    capture.handler.flush()
    assert capture.texts == ["of the parent"]
    for end in (read, write):
        os.close(end)


@capturing
def test_printing_and_reporting_the_end_of_jobs_cannot_wait_for_each_other(capture: Capture) -> None:
    logger = logging.getLogger("graphile_worker.worker")
    ended = {"event": "job:success", "worker_id": "slot-a", "job_id": 1}

    def write() -> None:
        for job_id in range(1000):
            in_job(job_id, "slot-a", f"unfinished {job_id}")

    def report() -> None:
        for _ in range(1000):
            logger.info("ended", extra=ended)

    threads = [threading.Thread(target=work, daemon=True) for work in (write, report)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    capture.handler.flush()
    printed = [line for line in capture.lines if line["logger"] == "stdout"]
    assert sorted(line["job_id"] for line in printed) == list(range(1000))


@capturing
def test_threads_of_one_job_that_write_the_same_line_lose_nothing(capture: Capture) -> None:
    context = contextvars.copy_context()
    context.run(current_helpers.set, SimpleNamespace(job=make_job(id=1), worker_id="slot-a"))

    def write() -> None:
        for _ in range(3000):
            sys.stdout.write("x")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=context.copy().run, args=(write,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    finally:
        sys.setswitchinterval(interval)
    capture.handler.flush()
    assert len("".join(capture.texts)) == 9000

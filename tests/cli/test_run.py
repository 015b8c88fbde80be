"""`graphile-worker` without a sub-command: a real worker, as a real process where that makes a difference."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import COMMAND, Call, clean_environment

HELLO = """
def hello(payload, helpers):
    helpers.logger.info("hello %s", payload["name"])
    if payload.get("fail"):
        raise ValueError("boom")
"""

Worker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def tasks(place: Path) -> Path:
    (place / "tasks").mkdir()
    (place / "tasks" / "hello.py").write_text(HELLO)
    return place / "tasks"


@pytest.fixture
def once(gw: Call, tasks: Path) -> Call:
    """`graphile-worker --once` in a directory with a task, in this process."""
    return lambda *arguments, **environment: gw("--once", *arguments, **environment)


@pytest.fixture
def spawn_once(spawn: Call, tasks: Path, database_url: str) -> Call:
    """The same as a separate process."""
    return lambda *arguments: spawn("--once", *arguments, DATABASE_URL=database_url)


@pytest.fixture
def worker(place: Path, tasks: Path, database_url: str) -> Iterator[Worker]:
    """A worker that runs until it is stopped; at the end it is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=clean_environment(**{"DATABASE_URL": database_url} | environment),
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
        process.wait(timeout=60)


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The next log line that contains `text`."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"the log ended without {text!r}: {process.stderr and process.stderr.read()}")


def test_once_runs_what_is_there_and_ends_with_status_0_also_when_jobs_fail(
    gw: Call, spawn_once: Call
) -> None:
    gw("add", "hello", '{"name": "Ada"}').check()
    gw("add", "hello", '{"name": "Bob", "fail": true}').check()
    result = spawn_once().check()
    assert " INFO [job] task hello (job 1): hello Ada\n" in result.out
    assert " INFO [worker] task hello (job 1) completed in " in result.out
    assert "on attempt 1 of 25: ValueError: boom; retrying in 2.7 s" in result.err
    (left,) = gw("list", "--json").json
    assert (left["id"], left["attempts"], left["last_error"].split("\n")[0]) == (2, 1, "ValueError: boom")


def test_once_installs_the_schema_where_it_is_missing(once: Call, empty_database_url: str) -> None:
    once("-c", empty_database_url, "-s", "other").check()
    once("-c", empty_database_url, "-s", "other").check()


def test_the_log_can_be_json_with_stable_keys(gw: Call, once: Call) -> None:
    gw("add", "hello", '{"name": "Ada"}').check()
    lines = [json.loads(line) for line in once("--log-format", "json").check().out.splitlines()]
    (done,) = [line for line in lines if line.get("event") == "job:success"]
    assert (done["task"], done["job_id"], done["attempt"], done["level"]) == ("hello", 1, 1, "info")
    assert done["worker_id"]
    assert done["duration_ms"] >= 0


def test_the_log_level_hides_what_is_less_important(gw: Call, once: Call) -> None:
    gw("add", "hello", '{"name": "Bob", "fail": true}', "--max-attempts", 1).check()
    result = once("--log-level", "error").check()
    assert result.out == ""
    assert result.err.count("ERROR [worker] task hello (job 1) permanently failed") == 1
    assert re.search(
        r'^    Traceback .*\n      File ".*tasks/hello\.py", line 5, in hello\n', result.err, re.M
    )


def test_success_is_not_logged_when_the_environment_says_so(gw: Call, once: Call) -> None:
    gw("add", "hello", '{"name": "Ada"}').check()
    out = once(NO_LOG_SUCCESS="1").check().out
    assert "hello Ada" in out
    assert "completed" not in out


def test_debug_lines_appear_when_the_environment_asks_for_them(gw: Call, once: Call) -> None:
    gw("add", "hello", '{"name": "Bob", "fail": true}').check()
    assert "task hello (job 1) started, attempt 1 of 25" in once(GRAPHILE_LOGGER_DEBUG="1").check().out


@pytest.mark.compat("RUN-1")
def test_a_missing_task_directory_is_an_error_that_names_it(gw: Call, place: Path) -> None:
    result = gw("--once")
    assert result.status == 1
    assert result.err.startswith(f"graphile-worker: error: the task directory '{place}/tasks' does not exist")
    assert result.err.count("\n") == 1


def test_tasks_come_from_a_directory_or_a_module(gw: Call, place: Path) -> None:
    (place / "jobs.py").write_text(
        "def greet(payload):\n    print('greeted', flush=True)\n\ntasks = {'greet': greet}\n"
    )
    for source in ("jobs.py:tasks", "jobs:tasks"):
        gw("add", "greet").check()
        assert "greeted" in gw("--once", "--tasks", source).check().out


def test_a_task_that_cannot_be_imported_stops_the_start_with_file_and_line(once: Call, tasks: Path) -> None:
    (tasks / "broken.py").write_text("import no_such_module_here\n")
    result = once()
    assert result.status == 1
    assert "tasks/broken.py:1: " in result.err
    assert "no_such_module_here" in result.err


def test_a_bad_crontab_stops_the_start_also_with_once(once: Call, place: Path) -> None:
    (place / "crontab").write_text("* * * * hello\n")
    result = once()
    assert result.status == 1
    assert result.err.startswith("graphile-worker: error: ")
    assert "crontab" in result.err


def test_flags_win_over_environment_and_file(once: Call, gw: Call, place: Path) -> None:
    (place / "graphile_worker.toml").write_text("concurrency = 2\npoll_interval = 1\n")
    shown = gw("config", "--json").json
    assert shown["concurrency"]["value"] == 2
    result = once("--jobs", "0", GRAPHILE_WORKER_CONCURRENCY="3")
    assert result.err == "graphile-worker: error: command line: concurrency: must be at least 1, got 0\n"
    result = once(GRAPHILE_WORKER_CONCURRENCY="0")
    assert "environment variable GRAPHILE_WORKER_CONCURRENCY: concurrency: must be at least 1" in result.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -15), (signal.SIGINT, -2)])
def test_a_signal_stops_the_worker_gracefully_and_the_process_ends_by_it(
    worker: Worker, gw: Call, number: signal.Signals, status: int
) -> None:
    process = worker("-j", "2", "--poll-interval", "500")
    ready = line_with(process, "ready: ")
    assert "1 task (hello), 0 recurring jobs, 2 jobs at a time" in ready
    gw("add", "hello", '{"name": "Ada"}').check()
    line_with(process, "completed in")
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert f"got {number.name}; waiting for running jobs to finish" in out
    assert process.returncode == status
    assert gw("list", "--json").json == []


def test_a_worker_whose_reader_went_away_stops_in_an_orderly_way(worker: Worker, gw: Call) -> None:
    process = worker()
    line_with(process, "ready: ")
    assert process.stdout is not None
    process.stdout.close()
    gw("add", "hello", '{"name": "Ada"}').check()
    assert process.wait(timeout=60) == -signal.SIGPIPE
    assert process.stderr is not None
    err = process.stderr.read()
    assert "Traceback" not in err
    assert "Exception" not in err
    assert gw("list", "--json", "--state", "running").json == []


def test_several_processes_share_the_work_and_stop_together(worker: Worker, gw: Call, tasks: Path) -> None:
    process = worker("--processes", "2", "--log-format", "json")
    pools = {json.loads(line_with(process, '"msg":"ready'))["pool_id"] for _ in range(2)}
    assert len(pools) == 2
    gw(
        "add",
        "--from",
        "-",
        input="".join('{"task": "hello", "payload": {"name": "x"}}\n' for _ in range(50)),
    )
    for _ in range(50):
        line_with(process, "completed in")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert gw("list", "--json").json == []


def test_several_processes_can_run_once(spawn_once: Call, gw: Call) -> None:
    gw(
        "add",
        "--from",
        "-",
        input="".join('{"task": "hello", "payload": {"name": "x"}}\n' for _ in range(20)),
    )
    result = spawn_once("--processes", "2").check()
    assert result.out.count("completed in") == 20
    assert gw("list", "--json").json == []


def test_an_error_at_the_start_of_several_processes_ends_them_all(spawn: Call, tasks: Path) -> None:
    result = spawn("--processes", "2", "--wait-for-database", "0", DATABASE_URL="postgres://127.0.0.1:1/db")
    assert result.status == 1
    assert "cannot be reached" in result.err


async def test_a_breaking_migration_stops_the_start_with_status_57(connection: Any, spawn_once: Call) -> None:
    await connection.execute("insert into graphile_worker.migrations (id, breaking) values (1000, true)")
    result = spawn_once()
    assert result.status == 57
    assert result.err.startswith("graphile-worker: error: ")


def test_without_prepared_statements_nothing_changes(once: Call, gw: Call) -> None:
    gw("add", "hello", '{"name": "Ada"}').check()
    assert "completed in" in once("--no-prepared-statements", "-m", "4", "--grace", "1").check().out

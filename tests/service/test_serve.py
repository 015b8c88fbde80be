"""`serve`: a program that behaves like the command `graphile-worker`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import serve
from graphile_worker.errors import ConfigError
from graphile_worker.options import WorkerOptions
from service.programs import Start, write_program
from support.command_line import clean_environment
from support.programs import needed
from support.working import Jobs


def pids(output: str) -> set[int]:
    """The processes that ran the task `hello`."""
    return {int(pid) for pid in re.findall(r"hello from \w+ in process (\d+)", output)}


@pytest.mark.parametrize(
    ("processes", "number"), [(1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGTERM)]
)
async def test_a_program_runs_jobs_and_ends_by_the_signal(
    start: Start, tmp_path: Path, jobs: Jobs, processes: int, number: signal.Signals
) -> None:
    write_program(tmp_path / "worker.py", f"processes={processes}")
    program = start("worker.py").wait_for("ready: graphile-worker", times=processes)
    await jobs.add("hello")
    program.wait_for("completed in")
    assert (program.pid in pids(program.output)) == (processes == 1)
    program.send(number)
    assert program.ended() == 128 + number
    assert program.was_killed_by() == number
    assert f"got {number.name}; waiting for running jobs to finish" in program.output
    assert "never printed" not in program.output
    assert await jobs.count() == 0


async def test_once_ends_with_status_0_when_no_job_is_ready(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py", "once=True, processes=2")
    for _ in range(10):
        await jobs.add("hello")
    program = start("worker.py")
    assert program.ended() == 0
    assert program.output.count("completed in") == 10
    assert await jobs.count() == 0


async def test_a_killed_process_is_replaced(start: Start, tmp_path: Path) -> None:
    write_program(tmp_path / "worker.py", "processes=2")
    program = start("worker.py").wait_for("ready: graphile-worker", times=2)
    children = subprocess.run(
        [needed("pgrep"), "-P", str(program.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(children[0]), signal.SIGKILL)
    program.wait_for(f"worker process {children[0]} was killed by SIGKILL; starting another")
    program.wait_for("ready: graphile-worker", times=3)
    program.send(signal.SIGTERM)
    assert program.ended() == 143


async def test_worker_processes_do_not_clean_up_what_belongs_to_the_program(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(
        "import atexit, os\n"
        "from graphile_worker import serve\n"
        "atexit.register(lambda: print('atexit in', os.getpid(), flush=True))\n"
        "print('written once')\n"
        "try:\n"
        "    serve(task_list={'hello': lambda: None}, processes=2, once=True)\n"
        "finally:\n"
        "    print('finally in', os.getpid(), flush=True)\n"
    )
    program = start("worker.py")
    assert program.ended() == 0
    assert re.findall(r"(?:atexit|finally) in (\d+)", program.output) == [str(program.pid)] * 2
    assert program.output.count("written once") == 1


async def test_the_log_is_that_of_the_command_also_as_json(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py", "once=True, log_format='json'")
    await jobs.add("hello")
    program = start("worker.py")
    assert program.ended() == 0
    lines = [json.loads(line) for line in program.output.splitlines()]
    assert [line["task"] for line in lines if line.get("event") == "job:success"] == ["hello"]


@pytest.mark.parametrize(
    ("arguments", "environment", "is_ours"),
    [
        ("", {}, False),
        ("log_level='warning'", {}, None),
        ("log_format='text'", {}, True),
        ("", {"GRAPHILE_WORKER_LOG_FORMAT": "text"}, True),
    ],
)
async def test_logging_that_the_program_has_set_up_is_kept_unless_a_format_is_wanted(
    start: Start,
    tmp_path: Path,
    jobs: Jobs,
    arguments: str,
    environment: dict[str, str],
    is_ours: bool | None,
) -> None:
    (tmp_path / "worker.py").write_text(
        "import logging\n"
        "from graphile_worker import serve\n"
        "logging.basicConfig(format='MINE %(message)s', level='INFO')\n"
        f"serve(task_list={{'hello': lambda: None}}, once=True, {arguments})\n"
    )
    await jobs.add("hello")
    program = start("worker.py", **environment)
    assert program.ended() == 0
    assert ("MINE task hello (job 1) completed in" in program.output) == (is_ours is False)
    assert ("INFO [worker] task hello (job 1) completed in" in program.output) == (is_ours is True)


async def test_what_a_worker_does_not_use_is_not_imported(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    (tmp_path / "worker.py").write_text(
        "import sys\n"
        "from graphile_worker import serve\n"
        "def loaded():\n"
        "    names = [name for name in sys.modules if name.startswith('graphile_worker.runner.process.')]\n"
        "    found = ' '.join(sorted(name.rpartition('.')[2] for name in names))\n"
        "    print(f'loaded: {found}\\n', end='')\n"
        "serve(task_list={'loaded': loaded})\n"
    )
    await jobs.add("loaded")
    program = start("worker.py").wait_for("loaded: ")
    assert "loaded: dev_database error_report logs run_service run_worker serve signals\n" in program.output
    program.send(signal.SIGTERM)
    assert program.ended() == 143


async def test_a_change_restarts_the_program(start: Start, tmp_path: Path, jobs: Jobs) -> None:
    write_program(tmp_path / "worker.py", "watch=True, processes=2")
    program = start("worker.py").wait_for("ready: graphile-worker", times=2)
    await jobs.add("hello")
    program.wait_for("hello from one")
    write_program(tmp_path / "worker.py", "watch=True, processes=2", version="two")
    program.wait_for("worker.py changed; restarting the worker").wait_for("ready: ", times=4)
    await jobs.add("hello")
    program.wait_for("hello from two")
    (tmp_path / "worker.py").write_text("import no_such_module\n")
    program.wait_for("No module named 'no_such_module'")
    program.wait_for("the worker exited with status 1; waiting for the code to change")
    write_program(tmp_path / "worker.py", "watch=True", version="three")
    program.wait_for("ready: ", times=5)
    program.send(signal.SIGTERM)
    assert program.ended() == 143


async def test_a_watched_program_ends_with_its_parent(start: Start, tmp_path: Path) -> None:
    write_program(tmp_path / "worker.py", "watch=True")
    program = start("worker.py").ready()
    program.process.kill()
    program.wait_for("got SIGTERM")


def test_an_error_at_the_start_is_one_line_and_status_1(start: Start, tmp_path: Path) -> None:
    write_program(tmp_path / "worker.py")
    url = "postgres://127.0.0.1:1/db"
    program = start("worker.py", DATABASE_URL=url, GRAPHILE_WORKER_WAIT_FOR_DATABASE="0")
    assert program.ended() == 1
    assert program.output.startswith("graphile-worker: error: the database server at 127.0.0.1:1 cannot be ")
    assert program.output.count("\n") == 1
    program = start("worker.py", DATABASE_URL="")
    assert program.ended() == 1
    assert "graphile-worker: error: no database was given; set connection_string" in program.output
    assert "pg_pool" not in program.output


async def test_a_breaking_migration_is_status_57(start: Start, tmp_path: Path, connection: Any) -> None:
    await connection.execute("insert into graphile_worker.migrations (id, breaking) values (1000, true)")
    write_program(tmp_path / "worker.py", "processes=2")
    assert start("worker.py").ended() == 57


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_the_programs_own_code_is_shown_with_its_traceback(
    start: Start, tmp_path: Path, processes: int
) -> None:
    (tmp_path / "worker.py").write_text(
        "from graphile_worker import serve\n"
        "class Broken:\n"
        "    def install(self, hooks):\n"
        "        raise RuntimeError('boom')\n"
        f"serve(task_list={{'hello': lambda: None}}, plugins=[Broken()], processes={processes})\n"
    )
    program = start("worker.py")
    assert program.ended() == 1
    assert "RuntimeError: boom" in program.output
    assert 'worker.py", line 4, in install' in program.output


def test_options_come_from_the_configuration_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "graphile_worker.toml").write_text("processes = 2\nconcurrency = 7\nlog_format = 'json'\n")
    write_program(tmp_path / "worker.py")
    program = start("worker.py").wait_for("7 jobs at a time", times=2)
    assert all(line.startswith('{"ts":') for line in program.output.splitlines())


async def test_the_configured_app_is_used_unless_the_call_names_another_or_none(
    start: Start, tmp_path: Path, jobs: Jobs
) -> None:
    (tmp_path / "graphile_worker.toml").write_text("app = 'shop:app'\n")
    (tmp_path / "shop.py").write_text(
        "from graphile_worker import App\napp = App(concurrency=7)\n@app.task\ndef of_the_app(): ...\n"
    )
    (tmp_path / "worker.py").write_text("from graphile_worker import serve\nserve(once=True)\n")
    await jobs.add("of_the_app")
    program = start("worker.py")
    assert program.ended() == 0, program.output
    assert "task of_the_app (job 1) completed in" in program.output
    (tmp_path / "worker.py").write_text("from graphile_worker import serve\nserve('', once=True)\n")
    program = start("worker.py")
    assert program.ended() == 1
    assert f"the task directory '{tmp_path}/tasks' does not exist" in program.output


def test_a_module_can_be_the_program(start: Start, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    write_program(tmp_path / "shop" / "worker.py", "watch=True")
    start("-m", "shop.worker").ready()


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pg_pool": object()}, "pg_pool: a pool cannot be used in another event loop or process"),
        ({"watch": True, "once": True}, "watch and once cannot be combined"),
        ({"processes": 0}, "processes: expected a number from 1 to 1024, got 0"),
        ({"processes": 0, "options": WorkerOptions()}, "processes: expected a number from 1 to 1024, got 0"),
        ({"log_format": "xml"}, "log_format: expected text or json, got 'xml'"),
        ({"process": 2}, "unknown option 'process'; did you mean 'processes'?"),
        ({"queue_name": "x"}, "queue_name: this is not an option of this call; it is for adding a job"),
    ],
)
def test_arguments_that_make_no_sense_are_raised(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        serve(task_list={"hello": lambda: None}, **arguments)


async def test_in_an_event_loop_it_names_run() -> None:
    with pytest.raises(ConfigError, match=re.escape("in a coroutine, use `async with run(…)` instead")):
        serve(task_list={"hello": lambda: None})


def test_in_another_thread_it_is_refused() -> None:
    errors: list[Exception] = []

    def call() -> None:
        try:
            serve(task_list={"hello": lambda: None})
        except ConfigError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert "must be called in the main thread" in str(errors[0])


def test_importing_the_package_does_not_import_it() -> None:
    code = "import sys, graphile_worker; print('graphile_worker.runner.process' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(), check=True
    )
    assert done.stdout == "False\n"

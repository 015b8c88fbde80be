"""`manage.py graphile_worker` as a real process: signals, reloading, our commands."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from django_backend.test_suite import PROJECT
from graphile_worker.config.settings import ProcessOptions
from graphile_worker.values.option_groups import spread
from graphile_worker.values.options import OPTION_NAMES, WorkerOptions
from support.command_line import clean_environment
from support.worker_process import WorkerProcess
from support.working import Jobs


class Project:
    """A copy of the project with its own database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self._url = url
        self._started: list[WorkerProcess] = []

    def manage(self, *arguments: str, **environment: str) -> WorkerProcess:
        process = WorkerProcess(
            [sys.executable, "manage.py", *arguments],
            folder=self.folder,
            environment=clean_environment(DATABASE_URL=self._url, **environment),
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            process.close()


@pytest.fixture
def project(tmp_path: Path, database_url: str) -> Iterator[Project]:
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    project = Project(folder, database_url)
    try:
        yield project
    finally:
        project.close()


def arguments(*values: object) -> dict[str, object]:
    """The payload of a task of Django's framework."""
    return {"args": values, "kwargs": {}}


def test_the_options_of_a_process_are_flags_here_too(project: Project) -> None:
    shown = project.manage("graphile_worker", "--help")
    assert shown.ended() == 0
    flags = ("--processes N", "--http-port PORT", "--http-address ADDRESS", "--database-metrics")
    for flag in (*flags, "--wait-for-database PERIOD"):
        assert flag in shown.output
    wrong = project.manage("graphile_worker", "--wait-for-database", "soon")
    assert wrong.ended() == 2
    assert "'soon' is not a period such as 30s" in wrong.output
    refused = project.manage("graphile_worker", "--http-port", "70000")
    assert refused.ended() == 1
    assert "http_port: expected a number from 0 to 65535, got 70000" in refused.output


OPTIONS: dict[str, Any] = {
    "max_pool_size": 7, "prepared_statements": False, "use_local_time": True, "concurrency": 4,
    "lanes": {"video": 2}, "executors": {"process": {"processes": 3}}, "poll_interval": 1.5,
    "task_directory": "more_tasks", "crontab_file": "more_crontab", "prefetch": 0.25, "hold": 0.125,
    "local_queue": {"size": 5, "ttl": 60.0, "refetch_delay": {"duration": 0.5, "threshold": 1,
                                                              "max_abort_threshold": 9}},
    "complete_job_batch_delay": 0.03, "fail_job_batch_delay": 0.04, "get_queue_name_batch_delay": 0.06,
    "min_reset_locked_interval": 100.0, "max_reset_locked_interval": 200.0,
    "graceful_shutdown_abort_timeout": 6.0, "grace": 12.0, "interrupted_job_retry_delay": 2.0,
    "job_timeout": 90.0, "timeout_grace": 7.0, "max_leaked_tasks": 5, "handle_signals": False,
    "executables_inherit_database": False, "history": "all", "history_retention": 86400.0,
    "error_retention": 172800.0, "failed_retention": 259200.0, "app_version": "2026.11", "recovery": False,
    "heartbeat_interval": 3.0, "recovery_grace": 20.0, "sweep_interval": 8.0, "recovery_delay": 1.0,
    "max_recoveries": 9, "resilient_flag": "patient", "forbidden_flags": ["a"],
    "accepted_flags": ["b"], "flag_allowlist": ["b", "c"],
    "statistics": False, "plugins": ["suite.plugins:PrintOptions"],
    "plugin_options": {"other.level": 3}, "wait_for_database": 9.0,
}  # fmt: skip
"""Every option of a worker, with another value than the default."""
PROCESS_OPTIONS: dict[str, Any] = {
    "log_format": "json", "log_level": "debug", "log_levels": {"asyncio": "error"}, "processes": 2,
    "http_port": 0, "http_address": "127.0.0.1", "database_metrics": True,
}  # fmt: skip
ELSEWHERE = {"schema", "connection_string"}
"""Options with a key of their own."""


def shown(process: WorkerProcess) -> dict[str, Any]:
    """What `config --json` has printed, by option."""
    assert process.ended() == 0, process.output
    found: dict[str, Any] = json.loads(process.output[process.output.index("{") :])
    return found


def flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options by their dotted names, as `config` shows them."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        is_group = name in ("local_queue", "refetch_delay")
        found |= flat(value, f"{prefix}{name}.") if is_group else {prefix + name: value}
    return found


def test_every_option_of_the_settings_applies_to_the_worker(project: Project) -> None:
    assert OPTIONS.keys() | ELSEWHERE == set(OPTION_NAMES) - {"node"}
    usual = WorkerOptions()
    default = msgspec.to_builtins(spread({name: getattr(usual, name) for name in usual.__struct_fields__}))
    assert [name for name, value in OPTIONS.items() if default[name] == value] == []
    (project.folder / "more_tasks").mkdir()
    (project.folder / "more_tasks" / "hello.py").write_text("def hello(payload, helpers):\n    pass\n")
    (project.folder / "more_crontab").write_text("")
    setting = json.dumps({"OPTIONS": OPTIONS})
    worker = project.manage("graphile_worker", "--once", DJANGO_GRAPHILE_WORKER=setting)
    assert worker.ended() == 0, worker.output
    (line,) = re.findall(r"options: (\{.*)", worker.output)
    applied = json.loads(line)
    crontab = applied.pop("crontab_file")
    assert crontab == str(project.folder / "more_crontab")
    executors = {"process.processes": 3}
    wanted = OPTIONS | {"executors": executors}
    assert {name: applied[name] for name in OPTIONS if name != "crontab_file"} == {
        name: value for name, value in wanted.items() if name != "crontab_file"
    }


def test_config_shows_what_applies_and_from_where(project: Project) -> None:
    assert PROCESS_OPTIONS.keys() | {"app"} == set(ProcessOptions.__struct_fields__)
    options = {**OPTIONS, **PROCESS_OPTIONS, "plugins": ["sentry"], "admin": {"listen": "127.0.0.1:9"}}
    del options["grace"]
    setting = {"SCHEMA": "graphile_worker", "PLUGINS": ["suite.plugins.PrintOptions"], "OPTIONS": options}
    environment = {
        "DJANGO_GRAPHILE_WORKER": json.dumps(setting),
        "GRAPHILE_WORKER_SCHEMA": "nowhere",
        "GRAPHILE_WORKER_CONNECTION_STRING": "postgres://nowhere",
        "GRAPHILE_WORKER_SWEEP_INTERVAL": "9",
        "GRAPHILE_WORKER_CONCURRENCY": "8",
    }
    found = shown(project.manage("graphile_worker", "-j", "6", "config", "--json", **environment))
    of_setting = "setting GRAPHILE_WORKER['OPTIONS']"
    for name, value in flat({**OPTIONS, **PROCESS_OPTIONS}).items():
        if name not in ("concurrency", "sweep_interval", "grace", "crontab_file", "executors", "plugins"):
            assert found[name]["source"] == of_setting, name
            assert found[name]["value"] == value, name
    assert found["concurrency"] == {"value": 6, "source": "command line"}
    variable = "environment variable GRAPHILE_WORKER_SWEEP_INTERVAL"
    assert found["sweep_interval"] == {"value": 9.0, "source": variable}
    assert found["grace"] == {"value": 25.0, "source": "default"}
    assert found["schema"] == {"value": "graphile_worker", "source": "default"}
    assert found["connection_string"]["source"] == "setting DATABASES['default']"
    plugins = ["suite.plugins:PrintOptions", "sentry"]
    assert found["plugins"] == {"value": plugins, "source": "setting GRAPHILE_WORKER['PLUGINS']"}
    assert found["admin.listen"] == {"value": "127.0.0.1:9", "source": of_setting}
    table = project.manage("graphile_worker", "config", **environment)
    assert table.ended() == 0
    assert re.search(rf"history +all +{re.escape(of_setting)}", table.output)


def test_flags_and_the_environment_override_the_settings_of_a_worker(project: Project) -> None:
    setting = {"PLUGINS": ["suite.plugins.PrintOptions"], "OPTIONS": {"concurrency": 4, "grace": 3}}
    environment = {"DJANGO_GRAPHILE_WORKER": json.dumps(setting), "GRAPHILE_WORKER_HISTORY": "all"}
    worker = project.manage("graphile_worker", "--once", "--grace", "5", **environment)
    assert worker.ended() == 0, worker.output
    (line,) = re.findall(r"options: (\{.*)", worker.output)
    applied = json.loads(line)
    assert (applied["concurrency"], applied["grace"], applied["history"]) == (4, 5.0, "all")
    setting["OPTIONS"] = {"log_format": "json"}
    worker = project.manage("graphile_worker", "--once", DJANGO_GRAPHILE_WORKER=json.dumps(setting))
    assert worker.ended() == 0, worker.output
    assert any(line.startswith('{"ts"') for line in worker.output.splitlines()), worker.output


def test_mistakes_are_one_line(project: Project) -> None:
    for setting, flags, message in (
        ({"OPTIONS": {"concurency": 4}}, (), "did you mean 'concurrency'?"),
        ({"OPTIONS": {"schema": "other"}}, (), "schema: this is the key SCHEMA of GRAPHILE_WORKER"),
        ({"OPTIONS": {"processes": "2"}}, (), "processes: expected a whole number, got '2'"),
        ({"CRONTAB": "0 4 * * * a$"}, (), "the name of a task may not have '$'"),
        ({}, ("--grace", "-1"), "grace: must be a finite number"),
        ({}, ("--once", "list"), "--once is for running a worker and has no effect on 'list'"),
        ({}, ("-j", "3", "list"), "--jobs is for running a worker and has no effect on 'list'"),
    ):
        for more in ((), ("--skip-checks",)):
            environment = {"DJANGO_GRAPHILE_WORKER": json.dumps(setting)}
            worker = project.manage("graphile_worker", *more, *flags, **environment)
            assert worker.ended() == 1
            assert message in worker.output
            assert "Traceback" not in worker.output


async def test_ctrl_c_lets_one_job_finish_and_returns_the_other(
    project: Project, jobs: Jobs, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    endless = await jobs.add("shop.tasks.endless", arguments())
    await jobs.add("shop.tasks.waits_for", arguments(str(gate)))
    worker = project.manage("graphile_worker", "--grace", "3", "-j", "2")
    worker.wait_for("endless: started").wait_for("waits_for: started")
    worker.send(signal.SIGINT)
    worker.wait_for("SIGINT")
    gate.touch()
    await jobs.until_left(endless)
    assert worker.ended() == 128 + signal.SIGINT
    job = await jobs.one()
    assert (job["locked_at"], job["attempts"]) == (None, 0)


async def test_a_reload_lets_jobs_finish_and_a_second_signal_ends_it_at_once(
    project: Project, jobs: Jobs, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await jobs.add("shop.tasks.waits_for", arguments(str(gate)))
    worker = project.manage("graphile_worker", "--grace", "600", DJANGO_DEBUG="1")
    worker.wait_for("waits_for: started")
    source = project.folder / "shop" / "tasks.py"
    source.write_text(source.read_text().replace("endless: started", "new code: started"))
    worker.wait_for("restarting the worker")
    gate.touch()
    await jobs.until_gone()
    await jobs.add("shop.tasks.endless", arguments())
    worker.wait_for("new code: started")
    assert worker.output.count("waits_for: started") == 1
    while worker.process.poll() is None:  # for some seconds after the first, further ones are ignored
        worker.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(timeout=0.5)
    job = await jobs.one()
    assert (job["locked_at"], job["attempts"]) == (None, 0)


async def test_once_and_our_commands(project: Project, jobs: Jobs, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(40):
        await jobs.add("shop.tasks.append", arguments(str(log), number))
    assert project.manage("graphile_worker", "--once", "--processes", "2").ended() == 0
    await jobs.until_gone()
    assert sorted(map(int, log.read_text().split())) == list(range(40))  # each exactly once
    await jobs.add("charge")
    listed = project.manage("graphile_worker", "list", "--state", "ready")
    assert listed.ended() == 0
    assert "charge" in listed.output

"""`manage.py graphile_worker` as a real process: signals, reloading, our commands."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from django_backend.test_suite import PROJECT
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

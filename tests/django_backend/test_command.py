"""`manage.py graphile_worker` as a real process: signals, reloading, our commands."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
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
        assert project.manage("migrate", "graphile_worker").ended() == 0
        yield project
    finally:
        project.close()


async def test_a_signal_returns_the_running_job(project: Project, jobs: Jobs) -> None:
    await jobs.add("shop.tasks.endless", {"args": [], "kwargs": {}}, max_attempts=1)
    worker = project.manage("graphile_worker", "--grace", "0.2", "-j", "2").wait_for("endless: started")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    (job,) = await jobs.all()
    assert job["locked_at"] is None
    assert job["attempts"] < job["max_attempts"]


async def test_a_reload_returns_the_job_to_the_new_code(project: Project, jobs: Jobs) -> None:
    await jobs.add("shop.tasks.endless", {"args": [], "kwargs": {}}, max_attempts=1)
    worker = project.manage("graphile_worker", "--grace", "0.2", DJANGO_DEBUG="1").wait_for(
        "endless: started"
    )
    source = project.folder / "shop" / "tasks.py"
    code = source.read_text()
    source.write_text(code.replace("await asyncio.Event().wait()", "await asyncio.sleep(0)"))
    await jobs.until_gone()
    worker.send(signal.SIGTERM)
    worker.ended()


async def test_once_and_our_commands(project: Project, jobs: Jobs) -> None:
    await jobs.add("shop.tasks.add", {"args": [1], "kwargs": {}})
    assert project.manage("graphile_worker", "--once", "--processes", "1").ended() == 0
    await jobs.until_gone()
    added = project.manage("graphile_worker", "add", "charge", '{"n": 1}')
    assert added.ended() == 0
    listed = project.manage("graphile_worker", "list", "--state", "ready")
    assert listed.ended() == 0
    assert "charge" in listed.output

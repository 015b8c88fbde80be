"""Jobs and helpers without a database, and folders of task files whose modules are unloaded afterwards."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from graphile_worker.tasks import JobHelpers
from graphile_worker.values.job import Job
from support import working
from support.executing import services_without_database
from support.modules import modules_unloaded

MakeJob = Callable[..., Job]
MakeHelpers = Callable[..., JobHelpers]
Until = Callable[[Callable[[], object]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Poll for a condition without an event: a file of another process, the end of a thread."""

    async def wait(condition: Callable[[], object]) -> None:
        await working.until(lambda: bool(condition()), every=0.002)

    return wait


@pytest.fixture
def make_job() -> MakeJob:
    def make(**values: Any) -> Job:
        defaults: dict[str, Any] = {
            "id": 7,
            "raw_payload": "{}",
            "priority": 0,
            "raw_run_at": 1_700_000_000.123456,
            "attempts": 1,
            "max_attempts": 25,
            "last_error": None,
            "raw_created_at": 1_700_000_000.0,
            "raw_updated_at": 1_700_000_000.0,
            "key": None,
            "raw_locked_at": None,
            "locked_by": None,
            "revision": 0,
            "raw_flags": None,
            "task_id": 1,
            "job_queue_id": None,
            "task_identifier": "hello",
        }
        return Job(**(defaults | values))

    return make


@pytest.fixture
async def make_helpers(make_job: MakeJob) -> MakeHelpers:
    """Helpers of a job; `services` replace the placeholders."""

    def make(job: Job | None = None, **services: Any) -> JobHelpers:
        return JobHelpers(job or make_job(), services_without_database(**services), "worker-1")

    return make


class TaskFolder:
    """A folder of task files in a project folder, which is the current directory."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.path = project / "tasks"

    def write(self, name: str, text: str = "", *, executable: bool = False) -> Path:
        """Write a file below the tasks folder."""
        return self.write_beside(f"tasks/{name}", text, executable=executable)

    def write_beside(self, name: str, text: str = "", *, executable: bool = False) -> Path:
        """Write a file below the project folder."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))
        if executable:
            path.chmod(0o755)
        return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskFolder]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name == "tasks" or name.startswith("tasks.")]:
        monkeypatch.delitem(sys.modules, name)  # of another test in this process
    with modules_unloaded(tmp_path):
        yield TaskFolder(tmp_path)

"""From an executable file of any language to a task."""

from __future__ import annotations

from .executable import run_executable
from .helpers import JobHelpers
from .task import AnyTask, Task
from .task_files import TaskFile


def executable_task(file: TaskFile) -> AnyTask:
    """A task that runs the file once per job; the payload is passed on as it is, not decoded here."""

    async def run_file(helpers: JobHelpers) -> None:
        await run_executable(file.path, helpers)

    return Task(run_file, file.identifier, path=str(file.path))

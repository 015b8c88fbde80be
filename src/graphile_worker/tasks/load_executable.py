"""Makes an executable file, in any language, a task."""

from __future__ import annotations

from ..errors import InvalidArgumentError, TaskLoadError
from ..spec import MAX_IDENTIFIER_LENGTH, check_name
from .executable import run_executable
from .helpers import JobHelpers
from .task import AnyTask, Task
from .task_files import TaskFile


def executable_task(file: TaskFile) -> AnyTask:
    """A task that runs the file once per job; the payload is passed on without being decoded."""
    try:
        check_name("identifier", file.identifier, MAX_IDENTIFIER_LENGTH)
    except InvalidArgumentError as error:
        raise TaskLoadError(str(error), path=str(file.path)) from None

    async def run_file(helpers: JobHelpers) -> None:
        await run_executable(file.path, helpers)

    return Task(run_file, file.identifier, path=str(file.path))

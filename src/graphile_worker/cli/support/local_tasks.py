"""The tasks of the project that a command is started in, for commands that can do without them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import TaskLoadError
from ...options import WorkerOptions
from ...tasks.task import AnyTask


@dataclass(frozen=True)
class LocalTasks:
    """Tasks by identifier, and why there are none although there should be."""

    tasks: Mapping[str, AnyTask] = field(default_factory=dict)
    problem: TaskLoadError | None = None

    def get(self, name: str) -> AnyTask | str:
        """The task, or the name itself if it is unknown here."""
        return self.tasks.get(name, name)


def load_local_tasks(source: str, *, must_exist: bool = False) -> LocalTasks:
    """Load the tasks of a folder, file or module.

    Unless it `must_exist`, it is no problem if there is no folder with the default name.
    """
    from ...tasks.load import load_tasks

    if not must_exist and source == WorkerOptions().task_directory and not Path(source).exists():
        return LocalTasks()
    try:
        with redirect_stdout(sys.stderr):  # what task files print must not mix with the command's output
            return LocalTasks(load_tasks(source))
    except TaskLoadError as error:
        return LocalTasks(problem=error)

"""The tasks of the project that a command is started in, for commands that can do without them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import TaskLoadError
from ...options import WorkerOptions
from ...tasks.task import AnyTask

if TYPE_CHECKING:
    from ...app import App


@dataclass(frozen=True)
class LocalTasks:
    """Tasks by identifier, and why there are none although there should be."""

    tasks: Mapping[str, AnyTask] = field(default_factory=dict)
    problem: TaskLoadError | None = None

    def get(self, name: str) -> AnyTask | str:
        """The task, or the name itself if it is unknown here."""
        return self.tasks.get(name, name)


def load_local_tasks(
    options: WorkerOptions, app: App | None = None, *, must_exist: bool = False, is_named: bool | None = None
) -> LocalTasks:
    """Load the tasks of the app, and of the folder, file or module in the options.

    Unless it `must_exist`, it is no problem if there is no folder with the default name. `is_named`: see
    `tasks_of`.
    """
    from ...tasks.load import load_tasks

    source = options.task_directory
    if (
        not must_exist
        and app is None
        and source == WorkerOptions().task_directory
        and not Path(source).exists()
    ):
        return LocalTasks()
    try:
        with redirect_stdout(sys.stderr):  # what task files print must not mix with the command's output
            if app is None:
                return LocalTasks(load_tasks(source))
            from ...app.tasks import tasks_of

            return LocalTasks(tasks_of(app, options, is_named=is_named))
    except TaskLoadError as error:
        return LocalTasks(problem=error)

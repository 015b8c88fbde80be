"""Detects misspelt task names in `add`, and loads the tasks of the project for commands that can do without.

`database/statements/inspection.py` says which names are good; so are those of the app and the task directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...database.statements.inspection import Doubt, KnownTasks
from ...errors import InvalidArgumentError, TaskLoadError
from ...tasks.task import AnyTask
from ...values.options import WorkerOptions

if TYPE_CHECKING:
    from ...runner.application import App


@dataclass
class TaskNames:
    """The known names, and the suspect ones that were used.

    A role that may only add jobs can read none; then no name is suspect.
    """

    known: KnownTasks
    directory: str
    loaded: frozenset[str] = frozenset()
    """Names of the tasks of the app, and of those that could be loaded from the directory."""
    is_complete: bool = True
    """Whether they could all be loaded; if not, a name that resembles no other may be one of them."""
    suspect: dict[str, Doubt] = field(default_factory=dict)
    """Names that may be misspelt."""

    @cached_property
    def local(self) -> frozenset[str]:
        """Names of the app's tasks, and of the tasks and files in the task directory."""
        from ...tasks.loading.files import find_task_files

        path = Path(self.directory)
        return self.loaded.union(find_task_files(path) if path.is_dir() else ())

    def check(self, names: Iterable[str], *, strict: bool) -> None:
        """Collect suspect names. `strict` raises for those, and for names that no worker has registered."""
        for name in names:
            if name in self.known.running or name in self.suspect:
                continue
            doubt = self.known.doubt(name, self.local)
            if strict and (doubt is not None or not self.known.is_proven(name, self.local)):
                doubt = doubt or Doubt(name, was_registered=False, meant=[])
                raise InvalidArgumentError(
                    "TASK", f"{_finding(doubt)}{doubt.question or '.'} Nothing was added, because of --strict"
                )
            if doubt is not None and (doubt.meant or self.is_complete):
                self.suspect[name] = doubt

    def warnings(self) -> list[str]:
        """A sentence about each suspect name."""
        return [f"{_finding(doubt)}{doubt.question or '.'}" for doubt in self.suspect.values()]


def _finding(doubt: Doubt) -> str:
    return f"{doubt.reason} a task {doubt.name!r}"


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
    from ...tasks.loading.load import load_tasks

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
            from ...runner.application import tasks_of

            return LocalTasks(tasks_of(app, options, is_named=is_named))
    except TaskLoadError as error:
        return LocalTasks(problem=error)

"""Detects misspelt task names in `add`, and loads the tasks of the project for commands that can do without.

A name is known if a running Python worker or the app has the task, or the task directory has it. Any other
name is suspect if it resembles a known one. A name that the database has seen before is suspect only if it
resembles a task of a running worker: a misspelt name is in the database from its first job on.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...client import WorkerUtils
from ...database.connections.connection import Connection
from ...database.connections.errors import sqlstate_of
from ...database.statements.fetch import known_task_names, worker_task_names
from ...errors import InvalidArgumentError, TaskLoadError
from ...tasks.task import AnyTask
from ...values.options import WorkerOptions
from ...values.schema_name import SchemaName
from ...values.text import did_you_mean, similar_names

if TYPE_CHECKING:
    from ...app import App


@dataclass
class TaskNames:
    """The known names, and the suspect ones that were used."""

    recorded: set[str]
    """Names in the database."""
    of_workers: set[str]
    """Names of the tasks of running Python workers."""
    directory: str
    loaded: frozenset[str] = frozenset()
    """Names of the tasks of the app, and of those that could be loaded from the directory."""
    suspect: dict[str, list[str]] = field(default_factory=dict)
    """Names that may be misspelt, each with the names that may be meant."""

    @cached_property
    def local(self) -> frozenset[str]:
        """Names of the app's tasks, and of the tasks and files in the task directory."""
        from ...tasks.loading.files import find_task_files

        path = Path(self.directory)
        return self.loaded.union(find_task_files(path) if path.is_dir() else ())

    def check(self, names: Iterable[str], *, strict: bool) -> None:
        """Collect suspect names. `strict` raises for those, and for unknown names."""
        for name in names:
            if name in self.of_workers or name in self.suspect:
                continue
            meant = self._meant(name)
            if strict and (meant or name not in self.recorded | self.local):
                question = did_you_mean(meant) or "."
                raise InvalidArgumentError(
                    "TASK", f"{self._finding(name)}{question} Nothing was added, because of --strict"
                )
            if meant:
                self.suspect[name] = meant

    def warnings(self) -> list[str]:
        """A sentence about each suspect name."""
        return [f"{self._finding(name)}{did_you_mean(meant)}" for name, meant in self.suspect.items()]

    def _meant(self, name: str) -> list[str]:
        if name in self.local:
            return []
        similar = similar_names(name, self.of_workers | self.local)
        if name in self.recorded:
            return similar if self.of_workers else []
        return similar or similar_names(name, self.recorded)

    def _finding(self, name: str) -> str:
        if name in self.recorded:
            return f"no running worker has a task {name!r}"
        return f"the database has no task {name!r}"


async def known_names(
    utils: WorkerUtils, schema: SchemaName, directory: str, *, loaded: Iterable[str] = ()
) -> TaskNames:
    """Load the known names. A role that may only add jobs can read none; then no name is suspect."""
    async with utils.with_pg_client() as connection:
        recorded = await _readable(known_task_names, connection, schema)
        of_workers = await _readable(worker_task_names, connection, schema)
    return TaskNames(recorded, of_workers, directory, frozenset(loaded))


async def _readable(
    query: Callable[[Connection, SchemaName], Awaitable[set[str]]],
    connection: Connection,
    schema: SchemaName,
) -> set[str]:
    try:
        return await query(connection, schema)
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return set()


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
            from ...app.application import tasks_of

            return LocalTasks(tasks_of(app, options, is_named=is_named))
    except TaskLoadError as error:
        return LocalTasks(problem=error)

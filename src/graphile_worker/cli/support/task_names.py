"""Detects misspelt task names in `add`.

A name is known if a running Python worker or the app has the task, or the task directory has it. Any other
name is suspect if it resembles a known one. A name that the database has seen before is suspect only if it
resembles a task of a running worker: a misspelt name is in the database from its first job on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...client import WorkerUtils
from ...db.connection import Connection
from ...db.errors import sqlstate_of
from ...errors import InvalidArgumentError
from ...queries.names import known_task_names, worker_task_names
from ...queries.similar_names import did_you_mean, similar_names
from ...schema_name import SchemaName


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
        from ...tasks.task_files import find_task_files

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

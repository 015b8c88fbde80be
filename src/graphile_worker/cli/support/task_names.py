"""Misspelt task names in `add`: adding never depends on it, but whoever mistyped a name gets to know.

A name is good if a worker of this package has the task, or a file in the folder of tasks is named like it.
Other names are compared with those; one that the database has seen before passes unless a worker has a task
whose name is nearly the same, because a misspelt name is seen from its first job on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from ...client import WorkerUtils
from ...db.connection import Connection
from ...db.errors import sqlstate_of
from ...errors import InvalidArgumentError
from ...queries.names import known_task_names, worker_task_names
from ...schema_name import SchemaName

NEAR = 0.75
"""How alike two names must be, from 0 to 1."""
MOST_SHOWN = 3


@dataclass
class TaskNames:
    """What is known, and the doubtful names that were used."""

    recorded: set[str]
    """Names in the database."""
    of_workers: set[str]
    """Names of tasks that workers of this package have."""
    folder: str
    doubtful: dict[str, list[str]] = field(default_factory=dict)
    """Names that may be misspelt, and what may be meant by each."""

    @cached_property
    def local(self) -> set[str]:
        """Names of the files in the folder of tasks; nothing is imported."""
        from ...tasks.task_files import find_task_files

        place = Path(self.folder)
        return set(find_task_files(place)) if place.is_dir() else set()

    def check(self, names: Iterable[str], *, strict: bool) -> None:
        """Note the doubtful ones; `strict` refuses them, and names that are simply not known."""
        for name in names:
            if name in self.of_workers or name in self.doubtful:
                continue
            meant = self._meant(name)
            if strict and (meant or name not in self.recorded | self.local):
                question = _question(meant) or "."
                raise InvalidArgumentError(
                    "TASK", f"{self._finding(name)}{question} Nothing was added, because of --strict"
                )
            if meant:
                self.doubtful[name] = meant

    def warnings(self) -> list[str]:
        """A sentence about each doubtful name."""
        return [f"{self._finding(name)}{_question(meant)}" for name, meant in self.doubtful.items()]

    def _meant(self, name: str) -> list[str]:
        if name in self.local:
            return []
        good = _near(name, self.of_workers | self.local)
        if name in self.recorded:
            return good if self.of_workers else []
        return good or _near(name, self.recorded)

    def _finding(self, name: str) -> str:
        if name in self.recorded:
            return f"no worker that is running here has a task {name!r}"
        return f"the database knows no task {name!r}"


async def known_names(utils: WorkerUtils, schema: SchemaName, folder: str) -> TaskNames:
    """What the database knows; a role that may only add jobs sees nothing, and then nothing is doubtful."""
    async with utils.with_pg_client() as connection:
        recorded = await _seen(known_task_names, connection, schema)
        of_workers = await _seen(worker_task_names, connection, schema)
    return TaskNames(recorded, of_workers, folder)


async def _seen(
    question: Callable[[Connection, SchemaName], Awaitable[set[str]]],
    connection: Connection,
    schema: SchemaName,
) -> set[str]:
    try:
        return await question(connection, schema)
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return set()


def _near(name: str, known: set[str]) -> list[str]:
    """Known names that look alike, whatever their case, or end with the name as that of a nested task."""
    folded: dict[str, str] = {one.casefold(): one for one in sorted(known)}
    wanted = name.casefold()
    found = [one for key, one in folded.items() if key.endswith(f"/{wanted}")]
    found += [folded[key] for key in get_close_matches(wanted, folded, n=MOST_SHOWN, cutoff=NEAR)]
    return list(dict.fromkeys(found))[:MOST_SHOWN]


def _question(meant: list[str]) -> str:
    return f"; did you mean {' or '.join(repr(name) for name in meant)}?" if meant else ""

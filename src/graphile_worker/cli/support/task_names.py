"""Detects misspelt task names in `add`.

A name is known if a running Python worker has the task, or the task directory has it. Any other name is
suspect if it resembles a known one. A name that the database has seen before is suspect only if it resembles
a task of a running worker: a misspelt name is in the database from its first job on.
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

SIMILAR = 0.75
"""Similarity of two names, from 0 to 1, above which one may be meant for the other."""
MOST_SHOWN = 3


@dataclass
class TaskNames:
    """The known names, and the suspect ones that were used."""

    recorded: set[str]
    """Names in the database."""
    of_workers: set[str]
    """Names of the tasks of running Python workers."""
    directory: str
    loaded: frozenset[str] = frozenset()
    """Names of the tasks that were loaded from the directory, if they could be."""
    suspect: dict[str, list[str]] = field(default_factory=dict)
    """Names that may be misspelt, each with the names that may be meant."""

    @cached_property
    def local(self) -> set[str]:
        """Names of the tasks and files in the task directory."""
        from ...tasks.task_files import find_task_files

        path = Path(self.directory)
        return {*self.loaded, *(find_task_files(path) if path.is_dir() else ())}

    def check(self, names: Iterable[str], *, strict: bool) -> None:
        """Collect suspect names. `strict` raises for those, and for unknown names."""
        for name in names:
            if name in self.of_workers or name in self.suspect:
                continue
            meant = self._meant(name)
            if strict and (meant or name not in self.recorded | self.local):
                question = _question(meant) or "."
                raise InvalidArgumentError(
                    "TASK", f"{self._finding(name)}{question} Nothing was added, because of --strict"
                )
            if meant:
                self.suspect[name] = meant

    def warnings(self) -> list[str]:
        """A sentence about each suspect name."""
        return [f"{self._finding(name)}{_question(meant)}" for name, meant in self.suspect.items()]

    def _meant(self, name: str) -> list[str]:
        if name in self.local:
            return []
        similar = _similar(name, self.of_workers | self.local)
        if name in self.recorded:
            return similar if self.of_workers else []
        return similar or _similar(name, self.recorded)

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


def _similar(name: str, known: set[str]) -> list[str]:
    """Known names that resemble this one in any case, or that end with it, as a nested task's name does."""
    folded: dict[str, str] = {one.casefold(): one for one in sorted(known)}
    wanted = name.casefold()
    found = [one for key, one in folded.items() if key.endswith(f"/{wanted}")]
    found += [folded[key] for key in get_close_matches(wanted, folded, n=MOST_SHOWN, cutoff=SIMILAR)]
    return list(dict.fromkeys(found))[:MOST_SHOWN]


def _question(meant: list[str]) -> str:
    return f"; did you mean {' or '.join(repr(name) for name in meant)}?" if meant else ""

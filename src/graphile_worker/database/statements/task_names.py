"""Which names of tasks are good: what workers have registered, not what someone once added a job for.

A misspelt name is in the table of tasks from its first job on, so that table proves nothing. Python workers
register their tasks: those of running ones are in the table of workers, and those of any that ever ran are
kept for the history. Node and Rust workers do not say what they have. A task of theirs is known by its jobs:
some were attempted, or none of them waits for long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

from ...values.schema_name import SchemaName
from ...values.text import did_you_mean, similar_names
from ..connections.connection import Connection
from ..connections.errors import sqlstate_of
from ..sql import load
from .fetch import known_task_names, worker_task_names
from .inspection import ready_tasks

LONG_WAIT = 10.0  # seconds that a job may be ready before nobody seems to take it


@dataclass(frozen=True, slots=True)
class Doubt:
    """A name that may be misspelt."""

    name: str
    was_registered: bool
    """Whether a Python worker once had the task, which none that is running has."""
    meant: list[str]
    """Names that may be meant."""

    @property
    def reason(self) -> str:
        """What is wrong with the name: `no worker has registered`."""
        return "no running worker has" if self.was_registered else "no worker has registered"

    @property
    def question(self) -> str:
        """`; did you mean …?`, or empty."""
        return did_you_mean(self.meant)


@dataclass(frozen=True, slots=True)
class KnownTasks:
    """What is known about the names of tasks."""

    running: frozenset[str] = frozenset()
    """Of running Python workers."""
    registered: frozenset[str] = frozenset()
    """Of all Python workers that ever ran."""
    attempted: frozenset[str] = frozenset()
    """Tasks of jobs that some worker, of any runtime, has locked at least once; the newest jobs only."""
    recorded: frozenset[str] = frozenset()
    """Names in the table of tasks, good or not."""
    late: frozenset[str] = frozenset()
    """Tasks with jobs that have been ready for long."""

    def is_empty(self, local: frozenset[str] = frozenset()) -> bool:
        """Whether there is nothing to compare a name with: no worker has run yet."""
        return not (self.running or self.registered or self.attempted or local)

    def doubt(self, name: str, local: frozenset[str] = frozenset()) -> Doubt | None:
        """What speaks against a name; None if nothing does. `local`: tasks that the caller knows itself."""
        if name in self.running or name in local or self.is_empty(local):
            return None
        was_registered = name in self.registered
        meant = similar_names(name, self.running | local)
        if was_registered or name in self.attempted:  # perhaps its worker is not running now
            return Doubt(name, was_registered, meant) if meant else None
        meant = meant or similar_names(name, self.registered | self.attempted)
        is_of_others = name in self.recorded and name not in self.late
        return None if is_of_others and not meant else Doubt(name, False, meant)

    def is_proven(self, name: str, local: frozenset[str] = frozenset()) -> bool:
        """Whether some worker, or the caller, certainly has had the task.

        Where no Python worker has run, all are of other runtimes, and the table of tasks is all there is.
        """
        named = self.running | self.registered | local
        return name in named or name in self.attempted or (not named and name in self.recorded)


async def known_tasks(connection: Connection, schema: SchemaName) -> KnownTasks:
    """Read all of it. What the role may not read, or does not exist, is empty."""

    async def late() -> Iterable[str]:
        ready = await ready_tasks(connection, schema)
        return (task.task_identifier for task in ready if task.age >= LONG_WAIT)

    async def names(statement: str) -> Iterable[str]:
        return (row["identifier"] for row in await connection.fetch(load(statement, schema)))

    return KnownTasks(
        running=await _readable(worker_task_names(connection, schema)),
        registered=await _readable(names("names/registered_task_names")),
        attempted=await _readable(names("names/attempted_task_names")),
        recorded=await _readable(known_task_names(connection, schema)),
        late=await _readable(late()),
    )


async def _readable(query: Awaitable[Iterable[str]]) -> frozenset[str]:
    try:
        return frozenset(await query)
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return frozenset()

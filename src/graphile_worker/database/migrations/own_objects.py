"""Python-only objects in the shared schema: files by subject, with a ledger of their own, never required.

The ledger lists changes of the objects by number. A file has all changes of its objects, and is run if the
ledger lacks one of them. So every object is defined once, in its present form, and a file must bring a
database from any earlier state to it, without locking tables for longer than the missing changes need. To
change an object, change its file and add a number: to `Change`, to the file here and to `ledger.sql`.

If the role may not create the objects, a warning is logged and the package works without them. No
notification is sent: other runtimes do not use them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import IntEnum

import msgspec

from ...values.schema_name import SchemaName
from ..connections import sqlstates
from ..connections.connection import Connection
from ..connections.errors import sqlstate_of
from ..sql import load
from .shared import read_committed
from .state import SchemaState, read_state

BLIND = ", but workers cannot see pauses of tasks and cancelled jobs"

logger = logging.getLogger("graphile_worker.migrate")


class Change(IntEnum):
    """The changes of the Python-only objects, in the order in which they were made."""

    LEDGER = 1
    QUEUE_INDEXES = 2
    WORKERS = 3
    ADD_PLAIN_JOB = 4
    FAILED_INDEX = 5
    FUNCTIONS = 6
    RUNNING_JOBS = 7
    BLOCKED_LOOP = 8
    FIGURES = 9
    HISTORY = 10
    PROGRESS = 11
    CONTROL = 12
    LIMITS = 13
    UNIQUE_JOBS = 14
    TRACKS = 15
    FAILURE_HANDLERS = 16
    ADMIN = 17
    SCHEDULES = 18
    REQUESTS = 19
    TASK_DESCRIPTIONS = 20
    DAYS = 21
    MONITORING = 22
    MENDED_FUNCTIONS = 23
    LAST_DEATH = 24
    SAFE_OPERATORS = 25
    RUST_REGISTER = 26
    KEYED_INDEX = 27
    SAFE_SETTINGS = 28
    CONCURRENCY_REQUESTS = 29
    FLAG_RULES = 30
    LIMITS_BY_FETCH = 31
    HELD_LIMITS = 32

    @property
    def label(self) -> str:
        """Its name in the ledger."""
        return self.name.lower()


class OwnFile(msgspec.Struct, frozen=True):
    """One file of `database/sql/own_objects`, and the changes that it contains. Files may share a change."""

    name: str
    changes: frozenset[Change]

    @property
    def path(self) -> str:
        """The path for `sql.load`."""
        return f"own_objects/{self.name}"


def _file(name: str, *changes: Change) -> OwnFile:
    return OwnFile(name, frozenset(changes))


ADDING = _file(
    "adding",
    Change.ADD_PLAIN_JOB,
    Change.FUNCTIONS,
    Change.UNIQUE_JOBS,
    Change.MENDED_FUNCTIONS,
    Change.SAFE_SETTINGS,
)
"""With it, shared functions that an earlier version of this package installed are replaced."""

LEDGER = _file("ledger", Change.LEDGER)
"""Always run last: it protects new tables and records all changes."""

OWN_FILES: tuple[OwnFile, ...] = (
    _file("job_indexes", Change.QUEUE_INDEXES, Change.FAILED_INDEX, Change.KEYED_INDEX),
    ADDING,
    _file(
        "workers",
        Change.WORKERS,
        Change.RUNNING_JOBS,
        Change.BLOCKED_LOOP,
        Change.FAILURE_HANDLERS,
        Change.REQUESTS,
        Change.TASK_DESCRIPTIONS,
        Change.FLAG_RULES,
    ),
    _file("recovery", Change.WORKERS, Change.LAST_DEATH, Change.SAFE_OPERATORS, Change.RUST_REGISTER),
    _file("history", Change.HISTORY, Change.PROGRESS),
    _file("partitions", Change.HISTORY, Change.MENDED_FUNCTIONS, Change.SAFE_OPERATORS),
    _file("statistics", Change.FIGURES, Change.DAYS, Change.MONITORING, Change.SAFE_OPERATORS),
    _file("control", Change.CONTROL, Change.REQUESTS, Change.CONCURRENCY_REQUESTS),
    _file("limits", Change.LIMITS, Change.SAFE_OPERATORS, Change.LIMITS_BY_FETCH, Change.HELD_LIMITS),
    _file("limits@routed", Change.FLAG_RULES, Change.LIMITS_BY_FETCH, Change.HELD_LIMITS),
    _file("tracks", Change.TRACKS, Change.SAFE_OPERATORS, Change.SAFE_SETTINGS),
    _file("admin", Change.ADMIN),
    _file("schedules", Change.SCHEDULES),
    LEDGER,
)
"""All files, in the order in which they are run."""


async def migrate_own_objects(
    connection: Connection, schema: SchemaName, found: SchemaState
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Make the missing changes; return the numbers of those made and the names of those still missing."""
    missing = frozenset(Change)
    try:
        missing = await _missing(connection, schema, found)
        if not missing:
            return (), frozenset()
        async with read_committed(connection):
            await connection.fetchval(load("migrate/lock", schema), schema.name)
            await connection.execute(load("migrate/lock_ledger", schema))
            state = await read_state(connection, schema)
            missing = await _missing(connection, schema, state)
            if missing:
                await _run(connection, schema, missing)
    except Exception as error:
        if sqlstate_of(error) not in (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.READ_ONLY_SQL_TRANSACTION):
            raise
        logger.warning(
            "This role may not create the Python-only objects in the schema %s (%s). The package works "
            "without them%s; the owner of the schema can create them with: graphile-worker migrate",
            schema.quoted,
            error,
            BLIND if Change.CONTROL in missing else "",
        )
        return (), frozenset(change.label for change in missing)
    return tuple(change.value for change in sorted(missing)), frozenset()


async def applied_numbers(connection: Connection, schema: SchemaName) -> set[int]:
    """The numbers in the ledger, which must exist."""
    rows = await connection.fetch(load("migrate/applied_own_objects", schema))
    return {row["id"] for row in rows}


def missing_changes(applied: Collection[int]) -> list[Change]:
    """The changes that are not among the applied ones."""
    return [change for change in Change if change not in applied]


async def _missing(connection: Connection, schema: SchemaName, state: SchemaState) -> frozenset[Change]:
    applied: Collection[int] | None = state.own_changes if state.has_own_ledger else ()
    if applied is None:
        applied = await applied_numbers(connection, schema)
    return frozenset(missing_changes(applied))


async def _run(connection: Connection, schema: SchemaName, missing: Collection[Change]) -> None:
    for file in OWN_FILES:
        if file is not LEDGER and file.changes.isdisjoint(missing):
            continue
        await connection.execute(load(file.path, schema))
        if file is ADDING:
            from .own_functions import replace_earlier_functions  # needed once per database

            await replace_earlier_functions(connection, schema)

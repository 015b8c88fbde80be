"""Python-only objects in the shared schema: numbered files with a ledger of their own, never required.

Every file can be run again and ends by recording itself in the ledger. If the role may not create the
objects, a warning is logged and the package works without them. No notification is sent: other runtimes do
not use them.
"""

from __future__ import annotations

import logging
from functools import cache

import msgspec

from ...values.schema_name import SchemaName
from ..connections import sqlstates
from ..connections.connection import Connection
from ..connections.errors import sqlstate_of
from ..sql import FOLDER, load
from .shared import read_committed
from .state import SchemaState, read_state

REPLACING = frozenset({"functions", "mended_functions", "safe_settings"})
"""Files after which shared functions that an earlier version of this package installed are replaced."""

BLIND = ", but workers cannot see pauses of tasks and cancelled jobs"

logger = logging.getLogger("graphile_worker.migrate")


class OwnObjects(msgspec.Struct, frozen=True):
    """One numbered file of `database/sql/own_objects`."""

    number: int
    name: str

    @property
    def path(self) -> str:
        """The path for `sql.load`."""
        return f"own_objects/{self.number:04}_{self.name}"


@cache
def known_own_objects() -> tuple[OwnObjects, ...]:
    """All files, in the order of their numbers."""
    stems = sorted(file.stem for file in (FOLDER / "own_objects").glob("*.sql"))
    return tuple(OwnObjects(int(stem[:4]), stem[5:]) for stem in stems)


async def migrate_own_objects(
    connection: Connection, schema: SchemaName, found: SchemaState
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Apply missing files; return the numbers applied and the names of those still missing."""
    missing = known_own_objects()
    try:
        missing = await _missing(connection, schema, found)
        if not missing:
            return (), frozenset()
        async with read_committed(connection):
            await connection.fetchval(load("migrate/lock", schema), schema.name)
            await connection.execute(load("migrate/lock_ledger", schema))
            state = await read_state(connection, schema)
            missing = await _missing(connection, schema, state)
            for step in missing:
                await connection.execute(load(step.path, schema))
                if step.name in REPLACING:
                    from .own_functions import replace_earlier_functions  # needed once per database

                    await replace_earlier_functions(connection, schema)
    except Exception as error:
        if sqlstate_of(error) not in (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.READ_ONLY_SQL_TRANSACTION):
            raise
        logger.warning(
            "This role may not create the Python-only objects in the schema %s (%s). The package works "
            "without them%s; the owner of the schema can create them with: graphile-worker migrate",
            schema.quoted,
            error,
            BLIND if any(step.name == "control" for step in missing) else "",
        )
        return (), frozenset(step.name for step in missing)
    return tuple(step.number for step in missing), frozenset()


async def applied_numbers(connection: Connection, schema: SchemaName) -> set[int]:
    """The numbers in the ledger, which must exist."""
    rows = await connection.fetch(load("migrate/applied_own_objects", schema))
    return {row["id"] for row in rows}


async def _missing(connection: Connection, schema: SchemaName, state: SchemaState) -> tuple[OwnObjects, ...]:
    if not state.has_own_ledger:
        return known_own_objects()
    applied = await applied_numbers(connection, schema)
    return tuple(step for step in known_own_objects() if step.number not in applied)

"""Our own objects in the shared schema: numbered files behind a ledger of their own, never required.

Every file can be run again and ends by writing itself into the ledger. A role that may not create the
objects is told so, and the package works without. Nobody is notified: other runtimes have no part in it.
"""

from __future__ import annotations

import logging
from functools import cache

import msgspec

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..schema_name import SchemaName
from ..sql import FOLDER, load
from .shared import read_committed
from .state import SchemaState, read_state

logger = logging.getLogger("graphile_worker.migrate")


class Extension(msgspec.Struct, frozen=True):
    """One numbered file of `sql/extensions`."""

    number: int
    name: str

    @property
    def path(self) -> str:
        """Where `sql.load` finds it."""
        return f"own_objects/{self.number:04}_{self.name}"


@cache
def known_extensions() -> tuple[Extension, ...]:
    """All extensions, in the order of their numbers."""
    stems = sorted(file.stem for file in (FOLDER / "own_objects").glob("*.sql"))
    return tuple(Extension(int(stem[:4]), stem[5:]) for stem in stems)


async def migrate_extensions(
    connection: Connection, schema: SchemaName, found: SchemaState
) -> tuple[tuple[int, ...], frozenset[str]]:
    """Apply what is missing; return the numbers applied and the names of those that are not there."""
    missing = known_extensions()
    try:
        missing = await _missing(connection, schema, found)
        if not missing:
            return (), frozenset()
        async with read_committed(connection):
            await connection.fetchval(load("migrate/lock", schema), schema.name)
            state = await read_state(connection, schema)
            missing = await _missing(connection, schema, state)
            for extension in missing:
                await connection.execute(load(extension.path, schema))
                if extension.name == "functions":
                    from .own_functions import replace_earlier_functions  # needed once per database

                    await replace_earlier_functions(connection, schema)
    except Exception as error:
        if sqlstate_of(error) not in (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.READ_ONLY_SQL_TRANSACTION):
            raise
        logger.warning(
            "This role may not create the package's own objects in the schema %s (%s). It works without "
            "them; the owner of the schema can create them with: graphile-worker migrate",
            schema.quoted,
            error,
        )
        return (), frozenset(extension.name for extension in missing)
    return tuple(extension.number for extension in missing), frozenset()


async def _missing(connection: Connection, schema: SchemaName, state: SchemaState) -> tuple[Extension, ...]:
    if not state.has_extension_ledger:
        return known_extensions()
    rows = await connection.fetch(load("migrate/extensions_applied", schema))
    applied = {row["id"] for row in rows}
    return tuple(extension for extension in known_extensions() if extension.number not in applied)

"""The schema shared with Node and Rust: install it as a whole, or upgrade revisions 16 to 19 to 20.

Other runtimes may install at the same time. They take no advisory lock; all we share with them is the primary
key of the ledger. So each transaction writes its ledger rows first, and starts over after a conflict.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ...values.schema_name import SchemaName
from ..connections import sqlstates
from ..connections.connection import Connection, pause
from ..connections.encoding import teach_arrays
from ..connections.errors import sqlstate_of
from ..sql import load
from .refusals import check_not_newer, check_nothing_in_the_way, check_server, denied, too_old
from .state import (
    BASELINE,
    BREAKING_REVISIONS,
    OLDEST_UPGRADABLE_REVISION,
    SUPPORTED_REVISION,
    UPGRADES,
    SchemaState,
    read_state,
)

logger = logging.getLogger("graphile_worker.migrate")

CONFLICTS = frozenset(
    {
        sqlstates.UNIQUE_VIOLATION,
        sqlstates.DUPLICATE_SCHEMA,
        sqlstates.DUPLICATE_TABLE,
        sqlstates.DUPLICATE_OBJECT,
    }
)
"""Another process is installing the schema at the same time."""
MAX_CONFLICTS = 20
STILL_INSTALLING = timedelta(seconds=5)
"""A ledger below 16 whose newest row is younger than this is in use by another installer."""


async def migrate_shared(connection: Connection, schema: SchemaName) -> tuple[SchemaState, tuple[int, ...]]:
    """Upgrade the shared schema to revision 20; return the initial state and the revisions applied."""
    found: SchemaState | None = None
    applied: list[int] = []
    conflicts = 0
    while True:
        try:
            state = await read_state(connection, schema)
            found = found or state
            check_server(state)
            if state.revision is None:
                applied += await _install(connection, schema)
            elif state.revision >= OLDEST_UPGRADABLE_REVISION:
                check_not_newer(state, schema)
                applied += await _upgrade(connection, schema, state)
                return found, tuple(applied)
            elif state.age is not None and state.age < STILL_INSTALLING:
                await _pause(connection)
            else:
                raise too_old(state, schema)
        except Exception as error:
            if sqlstate_of(error) == sqlstates.INSUFFICIENT_PRIVILEGE:
                raise await denied(error, connection, schema) from error
            conflicts += 1
            if sqlstate_of(error) not in CONFLICTS or conflicts == MAX_CONFLICTS:
                raise
            logger.debug("Another process is installing the schema %s: %s", schema.quoted, error)
            await _pause(connection)


async def _install(connection: Connection, schema: SchemaName) -> range:
    """Create everything in one transaction, unless another process was faster; return what was applied."""
    async with read_committed(connection):
        await connection.fetchval(load("migrate/lock", schema), schema.name)
        state = await read_state(connection, schema)
        if state.revision is not None:
            return range(0)
        check_nothing_in_the_way(state, schema)
        if not state.schema_exists:
            await connection.execute(load("migrate/create_schema", schema))
        if state.ledger_exists and not state.ledger_marks_breaking:
            await connection.execute(load("migrate/add_breaking_column", schema))
        if state.has_own_ledger:
            await connection.execute(load("migrate/clear_own_ledger", schema))
        for name in BASELINE:
            await connection.execute(load(f"migrations/{name}", schema))
    return range(1, SUPPORTED_REVISION + 1)


async def _upgrade(connection: Connection, schema: SchemaName, state: SchemaState) -> list[int]:
    """Apply missing revisions, each in a transaction of its own; return those that we applied."""
    assert state.revision is not None  # noqa: S101
    if not state.ledger_marks_breaking:
        await _mark_breaking(connection, schema)
    missing = range(state.revision + 1, SUPPORTED_REVISION + 1)
    return [revision for revision in missing if await _apply(connection, schema, revision)]


async def _apply(connection: Connection, schema: SchemaName, revision: int) -> bool:
    """Apply one revision; return False if another process has."""
    breaking = revision in BREAKING_REVISIONS
    async with read_committed(connection):
        try:
            async with connection.transaction():
                await connection.execute(load("migrate/add_revision", schema), revision, breaking)
        except Exception as error:
            if sqlstate_of(error) in CONFLICTS:
                return False
            raise
        for name in UPGRADES[revision]:
            await connection.execute(load(f"migrations/{name}", schema))
        message = json.dumps({"migrationNumber": revision, "breaking": breaking}, separators=(",", ":"))
        await connection.fetchval(load("migrate/notify", schema), message)
    return True


async def _mark_breaking(connection: Connection, schema: SchemaName) -> None:
    """Upgrade a ledger that has no column `breaking`."""
    teach_arrays(connection)
    async with read_committed(connection):
        await connection.execute(load("migrate/add_breaking_column", schema))
        await connection.execute(load("migrate/mark_breaking", schema), sorted(BREAKING_REVISIONS))


@asynccontextmanager
async def read_committed(connection: Connection) -> AsyncIterator[None]:
    """READ COMMITTED, so that each statement sees what concurrent installers have committed.

    The role's timeouts do not apply, unless it is the caller's transaction.
    """
    if connection.is_in_transaction():
        async with connection.transaction():
            yield
        return
    async with connection.transaction(isolation="read_committed"):
        await connection.fetchrow(load("migrate/bounds"))
        yield


async def _pause(connection: Connection) -> None:
    await pause(connection, random.uniform(0.1, 0.3))  # noqa: S311 — jitter between installers

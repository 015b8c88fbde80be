"""The schema of the jobs, installed and upgraded by `manage.py migrate`."""

from __future__ import annotations

from typing import Any

from django.db import connections

from ...database.connections.bound import run_blocking
from ...database.connections.connection import Connection
from ...database.connections.foreign import as_blocking_connection
from ...database.migrations.own_objects import applied_numbers, missing_changes
from ...database.migrations.run import migrate
from ...database.migrations.state import SUPPORTED_REVISION, read_state
from ...values.schema_name import SchemaName
from .conf import worker_settings


def install(alias: str) -> None:
    """Install or upgrade the schema, if this is the database for it."""
    chosen = worker_settings()
    if alias == chosen.database:
        connection = as_blocking_connection(connections[alias])
        run_blocking(migrate(connection, SchemaName(chosen.schema)))


def upgrade(using: str, **kwargs: Any) -> None:
    """Called after each `manage.py migrate`: a new release may bring new objects without a migration."""
    if shortcoming(using):
        install(using)


def shortcoming(alias: str) -> str | None:
    """What the schema lacks, if this is the database for it: `older` or `missing`."""
    chosen = worker_settings()
    if alias != chosen.database:
        return None
    connection = as_blocking_connection(connections[alias])
    return run_blocking(_shortcoming(connection, SchemaName(chosen.schema)))


async def _shortcoming(connection: Connection, schema: SchemaName) -> str | None:
    state = await read_state(connection, schema)
    if state.revision is None:
        return "missing"
    if state.revision < SUPPORTED_REVISION or not state.has_own_ledger:
        return "older"
    return "older" if missing_changes(await applied_numbers(connection, schema)) else None

"""Reasons to refuse a migration, each with advice."""

from __future__ import annotations

import logging

from ...errors import MigrationError, PermissionDeniedError, SchemaTooNewError, SchemaTooOldError
from ...values.schema_name import SchemaName
from ..connections import sqlstates
from ..connections.connection import Connection
from ..sql import load
from .state import OLDEST_SERVER_VERSION, OLDEST_UPGRADABLE_REVISION, SUPPORTED_REVISION, SchemaState

logger = logging.getLogger("graphile_worker.migrate")


def check_server(state: SchemaState) -> None:
    """Refuse a server that is too old for the tables."""
    if state.server_version < OLDEST_SERVER_VERSION:
        raise MigrationError(
            f"PostgreSQL 12 or later is needed; this server's version number is {state.server_version}"
        )


def check_not_newer(state: SchemaState, schema: SchemaName) -> None:
    """Refuse a schema with unknown breaking migrations; warn about other unknown ones."""
    if state.breaking_revision is not None and state.breaking_revision > SUPPORTED_REVISION:
        raise SchemaTooNewError(
            f"the schema {schema.quoted} is at revision {state.revision} and its last breaking revision is "
            f"{state.breaking_revision}, but this version of the package supports revision "
            f"{SUPPORTED_REVISION}; install a newer version of graphile-worker for Python"
        )
    if state.revision is not None and state.revision > state.known_revision:
        logger.warning(
            "The schema %s is at revision %s and this version of the package supports revision %s. "
            "None of the newer revisions is breaking, so work continues; consider upgrading the package.",
            schema.quoted,
            state.revision,
            state.known_revision,
        )


def check_nothing_in_the_way(state: SchemaState, schema: SchemaName) -> None:
    """Refuse to install over objects without a ledger."""
    if state.objects:
        raise MigrationError(
            f"the schema {schema.quoted} already holds {', '.join(state.objects)}, but the ledger "
            f"{schema.quoted}.migrations is {'empty' if state.ledger_exists else 'missing'}; restore the "
            "ledger's rows from a backup, or choose another schema for Graphile Worker"
        )


def too_old(state: SchemaState, schema: SchemaName) -> SchemaTooOldError:
    """The error for a schema that only Node's installer can upgrade."""
    return SchemaTooOldError(
        f"the schema {schema.quoted} is at revision {state.revision}, and this package upgrades from "
        f"revision {OLDEST_UPGRADABLE_REVISION} on. Stop all workers and run Node's installer once: "
        f"npx graphile-worker@0.18 --schema-only --schema {schema.quoted} --connection … ; then try again"
    )


async def denied(error: BaseException, connection: Connection, schema: SchemaName) -> PermissionDeniedError:
    """The error for a role without the permissions."""
    advice = f"let an administrator run: create schema {schema.quoted} authorization <this role>"
    try:
        row = await connection.fetchrow(load("migrate/ownership", schema), schema.name)
    except Exception:  # in a transaction of the caller, which has failed
        row, advice = None, "connect as the role that owns it"
    if row is not None:
        advice = (
            f"connect as its owner {row['owner']}, or let an administrator run: "
            f"grant {row['owner']} to {row['role']}"
            if row["is_installed"]
            else f"the schema exists; let its owner {row['owner']} run: "
            f"grant usage, create on schema {schema.quoted} to {row['role']}"
        )
    return PermissionDeniedError(
        f"the role may not install or upgrade the schema {schema.quoted}: {error}; {advice}",
        sqlstate=sqlstates.INSUFFICIENT_PRIVILEGE,
    )

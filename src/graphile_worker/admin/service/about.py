"""What the dashboard runs on: versions, the schema, its objects and the sizes of its tables."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from ...database.migrations.own_objects import Change, applied_numbers
from ...database.migrations.state import read_state
from ...database.sql import load
from ...values import __version__
from ..database import Database
from ..identity import Identity
from ..models.doctor import About, OwnObject, OwnTable


async def about(database: Database, identity: Identity, settings: Mapping[str, str]) -> About:
    """Everything about this dashboard; `settings` in words."""
    async with database.read() as connection:
        state = await read_state(connection, database.schema)
        applied = await applied_numbers(connection, database.schema) if state.has_own_ledger else set()
        server = await connection.fetchrow(load("admin/server"))
        rows = await connection.fetch(load("admin/table_sizes", database.schema), database.schema.name)
    return About(
        version=__version__,
        python=platform.python_version(),
        server="" if server is None else server["version"],
        database="" if server is None else server["database"],
        schema=database.schema.name,
        role="" if server is None else server["role"],
        revision=state.revision,
        supported_revision=state.known_revision,
        objects=[
            OwnObject(number=change, name=change.label, is_applied=change in applied) for change in Change
        ],
        tables=[OwnTable(name=row["name"], bytes=row["bytes"], rows=row["rows"]) for row in rows],
        settings=dict(settings),
        user=identity.name,
        permissions=sorted(identity.permissions),
        is_read_only=database.is_read_only,
    )

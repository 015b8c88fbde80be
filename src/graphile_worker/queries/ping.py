"""A notification to ourselves."""

from __future__ import annotations

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def ping(connection: Connection, channel: str) -> None:
    """Notify a channel that only the caller listens on."""
    await connection.execute(load("queries/ping", SchemaName()), channel)

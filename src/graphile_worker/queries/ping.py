"""A notification to all workers, to test whether LISTEN works."""

from __future__ import annotations

from ..db.connection import Connection
from ..sql import load


async def ping(connection: Connection, channel: str) -> None:
    """Send an empty notification to a channel."""
    await connection.execute(load("session/ping"), channel)

"""A notification to all workers, to see whether any arrives."""

from __future__ import annotations

from ..db.connection import Connection
from ..sql import load


async def ping(connection: Connection, channel: str) -> None:
    """Notify a channel."""
    await connection.execute(load("session/ping"), channel)

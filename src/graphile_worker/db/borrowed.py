"""Connections that are borrowed from a pool for a long time and may be lost in between.

When the server closes such a connection, the driver returns it to the pool at once. From then on even
`is_closed` raises an error.
"""

from __future__ import annotations

from contextlib import suppress

import asyncpg

from .connection import Connection, Pool

RELEASE_WITHIN = 5.0  # seconds; a connection that cannot be reset in time is closed


def is_gone(connection: Connection) -> bool:
    """Whether the connection can no longer be used."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def give_back(pool: Pool, connection: Connection) -> None:
    """Return it to the pool; errors are ignored, as they only end the connection."""
    with suppress(Exception):
        await pool.release(connection, timeout=RELEASE_WITHIN)


async def throw_away(pool: Pool, connection: Connection) -> None:
    """Close it without waiting for the server; the pool opens another one."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
    await give_back(pool, connection)

"""Looking after a connection that is borrowed from a pool for long, and may be lost meanwhile.

When the server closes such a connection, the driver takes it back into the pool at once, and from then on
even asking whether it is closed raises an error.
"""

from __future__ import annotations

from contextlib import suppress

import asyncpg

from .connection import Connection, Pool

RELEASE_WITHIN = 5.0  # seconds; a connection that cannot be reset in that time is closed


def is_gone(connection: Connection) -> bool:
    """Whether the connection can no longer be used."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def give_back(pool: Pool, connection: Connection) -> None:
    """Return it to the pool; what goes wrong with that is the end of the connection and of no interest."""
    with suppress(Exception):
        await pool.release(connection, timeout=RELEASE_WITHIN)


async def throw_away(pool: Pool, connection: Connection) -> None:
    """Close it without a word to the server, which may not answer any more; the pool makes another one."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
    await give_back(pool, connection)

"""Deleting queues and task names that no job refers to, while others add jobs.

Whoever adds a job looks up its queue and its task first. If the row went away before that job is committed,
the job could never run. There are no foreign keys to prevent it, and other runtimes' functions add jobs too;
but every transaction that has read a table holds a lock on it to its end. So the table is locked for the
moment of the deletion, which also holds up workers and adders; it is tried for a short time only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..schema_name import SchemaName
from ..sql import load

LOCK_WITHIN = "200ms"
"""Everybody else waits behind us for so long at most while a transaction keeps us waiting."""
TRIES = 5
PAUSE = 0.2  # seconds between two tries
IN_THE_WAY = (sqlstates.LOCK_NOT_AVAILABLE, sqlstates.DEADLOCK_DETECTED)

logger = logging.getLogger("graphile_worker")

Kind = Literal["queues", "tasks"]


async def delete_unused(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    """How many were deleted; none if a transaction that uses the table stays open.

    Inside a transaction of the caller the table stays locked until that ends.
    """
    if not await connection.fetchval(load(f"maintain/has_unused_{kind}", schema), *arguments):
        return 0
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE)
        try:
            return await _delete(connection, schema, kind, *arguments)
        except Exception as error:
            if sqlstate_of(error) not in IN_THE_WAY:
                raise
    logger.warning(
        "unused %s were left: a transaction that has looked at them is still open; clean up again later", kind
    )
    return 0


async def _delete(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    # What was committed while we waited for the lock must be seen by the deletion: each statement looks anew.
    isolation = None if connection.is_in_transaction() else "read_committed"
    async with connection.transaction(isolation=isolation):
        usual = await connection.fetchval(load("maintain/limit_lock_wait", schema), LOCK_WITHIN)
        await connection.execute(load(f"maintain/lock_{kind}", schema))
        await connection.fetchval(load("maintain/limit_lock_wait", schema), usual)
        deleted: int = await connection.fetchval(load(f"maintain/delete_unused_{kind}", schema), *arguments)
        return deleted

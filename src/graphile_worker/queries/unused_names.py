"""Deleting queues and task identifiers that no job refers to, while clients add jobs.

To add a job is to read the rows of its queue and its task first. If such a row is deleted before the job is
committed, the job can never run. No foreign key prevents that, and functions of other runtimes add jobs, too.
But a transaction holds a lock on every table it has read. So the deletion locks the table, which blocks
workers and clients; it gives up after a short wait and retries.
"""

from __future__ import annotations

import logging
from typing import Literal

from .. import sqlstates
from ..db.connection import Connection, pause
from ..db.errors import sqlstate_of
from ..schema_name import SchemaName
from ..sql import load

LOCK_TIMEOUT = "200ms"
"""While we wait for the lock, everyone else waits behind us."""
ATTEMPTS = 5
PAUSE = 0.2  # seconds between two attempts
LOCK_FAILURES = (sqlstates.LOCK_NOT_AVAILABLE, sqlstates.DEADLOCK_DETECTED)

logger = logging.getLogger("graphile_worker")

Kind = Literal["queues", "tasks"]


async def delete_unused(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    """Delete unused rows; returns their number, 0 if an open transaction keeps the table locked.

    Inside a transaction of the caller the table stays locked until it ends.
    """
    if not await connection.fetchval(load(f"maintain/has_unused_{kind}", schema), *arguments):
        return 0
    for attempt in range(ATTEMPTS):
        if attempt:
            await pause(connection, PAUSE)
        try:
            return await _delete(connection, schema, kind, *arguments)
        except Exception as error:
            if sqlstate_of(error) not in LOCK_FAILURES:
                raise
    logger.warning(
        "unused %s were not deleted: an open transaction has read them; run the cleanup again later", kind
    )
    return 0


async def _delete(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    # The deletion must see what was committed while we waited for the lock: a new snapshot per statement.
    isolation = None if connection.is_in_transaction() else "read_committed"
    async with connection.transaction(isolation=isolation):
        previous = await connection.fetchval(load("maintain/limit_lock_wait", schema), LOCK_TIMEOUT)
        await connection.execute(load(f"maintain/lock_{kind}", schema))
        await connection.fetchval(load("maintain/limit_lock_wait", schema), previous)
        deleted: int = await connection.fetchval(load(f"maintain/delete_unused_{kind}", schema), *arguments)
        return deleted

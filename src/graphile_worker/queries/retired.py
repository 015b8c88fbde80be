"""Deletes jobs whose key was removed or used again while a worker had them locked, when they come back.

Such a job has lost its key and its attempts, so no runtime runs it again. If its worker returns it, or
dies, it would stay among the failed jobs forever, and a retry would run what was removed. Jobs that ran are
not handled here: they have an outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from .. import sqlstates
from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..error_text import message_of
from ..schema_name import SchemaName
from ..sql import load
from .end_cancelled import cancelled_among

CANNOT_READ = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)

logger = logging.getLogger("graphile_worker.worker")


async def delete_retired(
    connection: Connection, schema: SchemaName, job_ids: Collection[int]
) -> frozenset[int]:
    """Delete these jobs, in the transaction that has unlocked them; returns the ids of those deleted.

    Cancelled ones look the same and stay: the worker that ends them also records them.
    """
    try:
        async with connection.transaction():
            cancelled = await cancelled_among(connection, schema, job_ids)
    except Exception as error:
        if sqlstate_of(error) not in CANNOT_READ:
            raise
        logger.debug("whether jobs were cancelled cannot be read: %s", message_of(error))
        cancelled = frozenset()
    wanted = [job_id for job_id in job_ids if job_id not in cancelled]
    if not wanted:
        return frozenset()
    teach_arrays(connection)
    rows = await connection.fetch(load("write/delete_retired_jobs", schema), wanted)
    deleted = frozenset(row["id"] for row in rows)
    logger.debug("deleted %d jobs whose keys were removed or used again: %s", len(deleted), sorted(deleted))
    return deleted

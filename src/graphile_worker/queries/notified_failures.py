"""Which permanent failures the handlers of `@task(on_failure=…)` were notified of."""

from __future__ import annotations

from collections.abc import Sequence

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..schema_name import SchemaName
from ..sql import load

NO_TABLE = (sqlstates.UNDEFINED_TABLE, sqlstates.INSUFFICIENT_PRIVILEGE)


async def mark_notified(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> None:
    """Note it, in the transaction that adds the handlers' jobs. Without the table no one else tells them."""
    try:
        async with connection.transaction():
            await connection.execute(load("write/mark_notified_failures", schema), list(job_ids))
    except Exception as error:
        if sqlstate_of(error) not in NO_TABLE:
            raise

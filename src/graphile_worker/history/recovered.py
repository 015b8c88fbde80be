"""Keeps the ends of jobs that were failed by a sweep, because their workers died too often."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load
from .partitions import add_partitions


class RecoveryKeep(msgspec.Struct, frozen=True):
    """Seconds to keep the ends and the errors of such jobs; None not to keep them."""

    ends: float | None
    errors: float | None


async def keep_recovered(
    connection: Connection, schema: SchemaName, job_ids: Sequence[int], keep: RecoveryKeep
) -> None:
    """Keep what these jobs ended with; call it in the transaction that ended them."""
    await add_partitions(
        connection,
        schema,
        history=[] if keep.ends is None else [keep.ends],
        errors=[] if keep.errors is None else [keep.errors],
        days_ahead=0,
    )
    statement = load("history/keep_recovered", schema)
    await connection.execute(statement, list(job_ids), keep.ends, keep.errors, schema.name)

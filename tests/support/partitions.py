"""The partitions of the history that a worker with default settings makes when it starts."""

from __future__ import annotations

import asyncpg

from graphile_worker.history.upkeep import add_partitions
from graphile_worker.values.option_groups import HistoryOptions
from graphile_worker.values.schema_name import SchemaName


async def make_partitions(database_url: str) -> None:
    """For a template: databases that are cloned from it have the partitions of today and the next days."""
    defaults = HistoryOptions()
    connection = await asyncpg.connect(database_url)
    try:
        await add_partitions(
            connection,
            SchemaName(),
            history=[defaults.retention],
            errors=[defaults.error_retention],
        )
    finally:
        await connection.close()

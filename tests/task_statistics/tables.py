"""The tables with statistics, as a test sees and fills them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from graphile_worker.metrics.minutes import MinuteStatistics, TaskTotals, write_minutes
from graphile_worker.metrics.upkeep import FoldHours, FoldMinutes
from graphile_worker.values.schema_name import SchemaName
from support.working import SCHEMA

NAME = SchemaName()


def totals_of(completed: int = 1, *, failed: int = 0, took: float = 0.5, buckets: int = 3) -> TaskTotals:
    """Statistics in which all values differ."""
    totals = TaskTotals()
    totals.completed, totals.failed = completed, failed
    totals.run_seconds, totals.wait_seconds = completed * took, completed * took / 2
    totals.longest = took
    for bucket in range(buckets):
        totals.run_times[bucket] = bucket + completed
        totals.wait_times[bucket] = 2 * bucket + completed
    return totals


class Tables:
    """Direct access, past the client."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def write(
        self, minute: datetime, totals: TaskTotals, *, task: str = "step", pool: str = "pool-1"
    ) -> None:
        """Add statistics as a pool does."""
        row = MinuteStatistics(int(minute.timestamp()), task, totals)
        await write_minutes(self.connection, NAME, pool, [row])

    async def fold(self, **arguments: Any) -> bool:
        """Fold as a maintenance task does; whether there is more to do."""
        return await FoldMinutes(NAME, **arguments).run(self.connection)

    async def fold_days(self, **arguments: Any) -> None:
        """Fold hours as a maintenance task does, until there is no more to do."""
        while await FoldHours(NAME, **arguments).run(self.connection):
            pass

    async def completed(self, table: str = "minutes") -> int:
        """All completed jobs in this table."""
        return await self.connection.fetchval(
            f"select coalesce(sum(completed), 0)::bigint from {SCHEMA}._private_py_{table}"
        )

    async def sums(self, table: str, where: str = "true") -> list[Any]:
        """All sums of a table, the histograms bucket by bucket."""
        sums = await self.connection.fetchrow(
            "select sum(completed)::bigint, sum(failed)::bigint, sum(permanently_failed)::bigint, "
            "round(sum(run_seconds)::numeric, 6), round(sum(wait_seconds)::numeric, 6), max(longest) "
            f"from {table_of(table)} where {where}"
        )
        return [*sums, *[await self._buckets(table, name, where) for name in ("run_times", "wait_times")]]

    async def _buckets(self, table: str, column: str, where: str) -> list[int]:
        rows = await self.connection.fetch(
            f"select sum(n)::bigint from {table_of(table)}, "
            f"unnest({column}) with ordinality each (n, bucket) where {where} group by bucket order by bucket"
        )
        return [row[0] for row in rows]

    async def rows(self, table: str = "minutes") -> int:
        return await self.connection.fetchval(f"select count(*) from {table_of(table)}")


def table_of(name: str) -> str:
    return f"{SCHEMA}._private_py_{name}"

"""Settings of the planner for one transaction, so that large tables are read by their indexes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..db.connection import Connection


@asynccontextmanager
async def with_planner_settings(connection: Connection, settings: str) -> AsyncIterator[None]:
    """A transaction with these settings of the planner; one of the caller is left as it is."""
    if connection.is_in_transaction():
        yield
        return
    async with connection.transaction():
        await connection.fetchrow(settings)
        yield

"""Databases with a backlog, and a connection to one of them that explains plans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from graphile_worker.database.statements.fetch import register_tasks
from graphile_worker.values.schema_name import SchemaName
from plans.backlogs import OURS, READY, fill, jobs
from plans.explaining import ExplainingConnection, tune
from support.server import DatabaseServer

STATISTICS = ("fresh", "of an empty table")
STATEMENTS_FOR = {"this server": None, "PostgreSQL 12": "12.22"}
"""Some statements have another form for a server without incremental sorts; it must do well on any."""


@contextmanager
def filled_databases(
    server: DatabaseServer, template: str, statements: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """Two databases with the same jobs, by the state of their statistics."""
    stale = server.create_database(template=template)
    server.run(server.url(stale), lambda connection: fill(connection, statements))
    fresh = server.create_database(template=stale)
    server.run(server.url(fresh), lambda connection: connection.execute("vacuum analyze"))
    try:
        yield dict(zip(STATISTICS, (server.url(fresh), server.url(stale)), strict=True))
    finally:
        server.drop_database(fresh)
        server.drop_database(stale)


@dataclass(frozen=True)
class Desk:
    """A connection in a transaction that is rolled back."""

    connection: Any
    explaining: Any  # an ExplainingConnection, in place of the driver's
    schema: SchemaName
    tasks: dict[int, str]

    async def make_ready(self, count: int = READY) -> None:
        """Add ready jobs."""
        await self.connection.execute(jobs(count))


@asynccontextmanager
async def desk_in(url: str, *, tuned: bool = True) -> AsyncIterator[Desk]:
    """A desk with a connection like the worker's (`tuned`), or like a client's."""
    schema = SchemaName()
    connection = await asyncpg.connect(url)
    try:
        tasks = await register_tasks(connection, schema, [OURS])
        if tuned:
            await tune(connection, schema)
        transaction = connection.transaction()
        await transaction.start()
        yield Desk(connection, ExplainingConnection(connection), schema, tasks)
        await transaction.rollback()
    finally:
        await connection.close(timeout=60)

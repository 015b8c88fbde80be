"""Database: one database and schema that the dashboard shows, opened at the first request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..client import WorkerUtils
from ..clock import Clock, SystemClock
from ..db.connection import AnyPool, Connection, Pool
from ..db.dsn import Dsn
from ..db.open import close_pool, open_pool, resolve_connection
from ..schema_name import SchemaName
from ..sql import load
from .service.meter import Meter

MAX_CONNECTIONS = 4
CLOSE_WITHIN = 2.0  # seconds
READ_WITHIN = 3000  # milliseconds that one statement of a page may take
STEP_WITHIN = 15_000  # milliseconds for a step of an operation
LOCK_WITHIN = 500  # milliseconds to wait for a lock


class Database:
    """Statements of the dashboard go through `read` and `write`, which bound their time.

    Functions of the client take the connection:
    `await database.utils.list_jobs(filter, connection=connection)`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        connection_string: str | None = None,
        pg_pool: AnyPool | None = None,
        schema: str | None = None,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`name` is shown in the switch between several databases."""
        self.name = name
        self.schema = SchemaName(schema) if schema is not None else SchemaName()
        self.is_read_only = read_only
        self.clock = clock if clock is not None else SystemClock()
        self.meter = Meter()
        self._source = resolve_connection(connection_string, pg_pool)
        self._opening = asyncio.Lock()
        self._utils: WorkerUtils | None = None

    @property
    def utils(self) -> WorkerUtils:
        """The client; only inside of `read` and `write`, or after `open`."""
        if self._utils is None:
            raise RuntimeError("the database has not been opened")
        return self._utils

    async def open(self) -> None:
        """Connect, if that has not been done; raises what the driver says if the server does not answer."""
        async with self._opening:
            if self._utils is not None:
                return
            source = self._source
            pool: Pool = (
                await open_pool(
                    source, max_pool_size=MAX_CONNECTIONS, application_name="graphile_worker admin"
                )
                if isinstance(source, Dsn)
                else source
            )
            self._utils = WorkerUtils(pool, schema=self.schema, clock=self.clock, checks_names=False)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Connection]:
        """One read-only transaction for a whole page, so that its parts agree."""
        await self.open()
        async with (
            self._connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.fetchrow(load("admin/bounds", self.schema), str(READ_WITHIN), str(LOCK_WITHIN))
            yield connection

    @asynccontextmanager
    async def write(self, *, within: int = READ_WITHIN) -> AsyncIterator[Connection]:
        """One transaction that may change something. PostgreSQL refuses if the dashboard is read-only."""
        await self.open()
        async with (
            self._connection() as connection,
            connection.transaction(readonly=self.is_read_only),
        ):
            await connection.fetchrow(load("admin/bounds", self.schema), str(within), str(LOCK_WITHIN))
            yield connection

    @asynccontextmanager
    async def listening(self, channel: str, heard: Callable[..., None]) -> AsyncIterator[asyncio.Event]:
        """Listen on a connection of its own; the event is set when that is lost.

        A pool with few connections is left alone: the event is never set, and nothing is heard.
        """
        await self.open()
        lost = asyncio.Event()
        if self.utils.pool.get_max_size() < MAX_CONNECTIONS:
            yield lost
            return

        def end(*_: object) -> None:
            lost.set()

        async with self._connection() as connection:
            connection.add_termination_listener(end)
            await connection.add_listener(channel, heard)
            try:
                yield lost
            finally:
                connection.remove_termination_listener(end)
                if not connection.is_closed():
                    await connection.remove_listener(channel, heard)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        async with self.utils.pool.acquire() as connection:
            with self.meter.counting(connection):
                yield connection

    async def aclose(self) -> None:
        """Close the pool, if it was made here."""
        if self._utils is not None and isinstance(self._source, Dsn):
            await close_pool(self._utils.pool, within=CLOSE_WITHIN)
        self._utils = None

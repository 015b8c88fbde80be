"""Databases for tests: a server, a template database with the schema, and a copy of it for each test.

Statements run on a separate event loop in a short-lived thread, so that both sync fixtures and async tests
can call these functions.

`ConnectionPerUse` is a pool that needs no opening or closing, for the clients of fixtures. A real pool
belongs to the event loop that opened it, and pytest plugins for asyncio give each test its own loop. Here
each `acquire` opens a connection on the current loop, and releasing it closes it.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ..database.connections.connection import AcquireContext, Connection
from ..database.connections.dsn import Dsn
from ..database.connections.errors import sqlstate_of, translate_errors
from ..database.connections.open import connect
from ..database.connections.sqlstates import OBJECT_IN_USE
from ..database.migrations import migrate
from ..database.sql import load
from ..errors import PermissionDeniedError
from ..values.schema_name import SchemaName

Result = TypeVar("Result")
Prepare = Callable[[str], Any]
"""Creates the application's tables in the database at this URL; may be a coroutine function."""


class DatabaseServer:
    """A running server, given by the URL of a database; its role must be allowed to create others."""

    def __init__(self, url: str) -> None:
        self.admin_url = url
        version = load("testing/server_version")
        self.version: str = self.run(url, lambda admin: admin.fetchval(version))
        # Unique among concurrent test runs on this server.
        self.prefix = f"gw_test_{os.getpid()}_{os.urandom(3).hex()}_"
        self._names = (f"{self.prefix}{number}" for number in itertools.count(1))
        self._databases: set[str] = set()

    @property
    def major(self) -> int:
        """The major version: 12, 15, 18, …"""
        return int(self.version.split(".")[0].split(" ")[0])

    def url(self, database: str) -> str:
        """The URL of a database on this server."""
        return url_beside(self.admin_url, database)

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database, empty or as a copy of `template`, and return its name."""
        name = next(self._names)
        statement = _statement("create_database", DATABASE=name, TEMPLATE=template or "template0")
        self._databases.add(name)
        try:
            with translate_errors(SchemaName()):
                self.run(self.admin_url, lambda admin: admin.execute(statement))
        except PermissionDeniedError as error:
            error.add_note("Each test creates a database; allow it with: ALTER ROLE … CREATEDB")
            raise
        return name

    def create_template(self, schema: SchemaName | None = None, prepare: Prepare | None = None) -> str:
        """Create a template database with the schema, and with what `prepare` adds, and return its name."""
        name = self.create_database()
        url = self.url(name)
        self.run(url, lambda connection: migrate(connection, schema or SchemaName()))
        if prepare is not None:
            _in_thread(lambda: prepare(url))
            # A database with open sessions cannot be copied, and `prepare` may leave a pool open.
            end = load("testing/end_sessions")
            self.run(self.admin_url, lambda admin: admin.fetch(end, name))
        return name

    def drop_database(self, name: str) -> None:
        """Drop the database and end all sessions in it."""
        self.run(self.admin_url, lambda admin: self._drop(admin, name))
        self._databases.discard(name)

    def drop_all(self) -> None:
        """Drop every database that was created through this object."""
        for name in list(self._databases):
            self.drop_database(name)

    async def _drop(self, admin: Any, name: str) -> None:
        if self.major >= 13:
            await admin.execute(_statement("drop_database_by_force", DATABASE=name))
            return
        for attempts_left in reversed(range(12)):
            await admin.fetch(load("testing/end_sessions"), name)
            try:
                await admin.execute(_statement("drop_database", DATABASE=name))
                return
            except Exception as error:
                # A session that was just starting is not ended, and a busy one may need more than the five
                # seconds for which the server waits.
                if sqlstate_of(error) != OBJECT_IN_USE or not attempts_left:
                    raise

    @staticmethod
    def run(url: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Call `work` with a connection to `url` and return its result."""

        async def connected() -> Result:
            connection = await connect(url, application_name="graphile_worker_testing")
            try:
                return await work(connection)
            finally:
                await connection.close()

        result: Result = _in_thread(connected)
        return result


def url_beside(url: str, database: str) -> str:
    """The URL of another database on the same server."""
    parts = urlsplit(Dsn.parse(url).url)
    query = [pair for pair in parse_qsl(parts.query) if pair[0] not in ("dbname", "database")]
    # urlunsplit would drop the empty authority of postgres:///name
    other = f"{parts.scheme}://{parts.netloc}/{quote(database, safe='')}"
    return f"{other}?{urlencode(query, safe='/')}" if query else other


def _in_thread(work: Callable[[], Any]) -> Any:
    """Call a function or coroutine function in a separate thread with its own event loop."""

    async def awaited(result: Awaitable[Any]) -> Any:
        return await result

    def call() -> Any:
        result = work()
        return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()


def _statement(name: str, **identifiers: str) -> str:
    """A statement without parameters, with its placeholders replaced by quoted identifiers."""
    text = load(f"testing/{name}")
    for placeholder, identifier in identifiers.items():
        text = text.replace(f":{placeholder}", SchemaName(identifier).quoted)
    return text


class ConnectionPerUse:
    """A Pool for the database at this URL."""

    serves_any_loop = True

    def __init__(self, url: str) -> None:
        self._dsn = Dsn.parse(url)
        self._lent = 0

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        """Use it with `async with`, or `await` it and call `release`."""
        return _Borrowing(self)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        self._lent -= 1
        await connection.close(timeout=timeout)

    async def open(self) -> Connection:
        connection = await connect(self._dsn, application_name="graphile_worker_testing")
        self._lent += 1
        return connection

    def get_max_size(self) -> int:
        return 100  # the default max_connections of a server

    def get_size(self) -> int:
        return self._lent

    def get_idle_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing to do."""

    def terminate(self) -> None:
        """Nothing to do."""


class _Borrowing:
    def __init__(self, pool: ConnectionPerUse) -> None:
        self._pool = pool
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.open()
        return self._connection

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._pool.release(self._connection)

    def __await__(self) -> Generator[Any, Any, Connection]:
        return self._pool.open().__await__()

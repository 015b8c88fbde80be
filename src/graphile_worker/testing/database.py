"""Databases for tests: a server, a template with the schema that is made once, and a copy of it per test.

All work happens on an event loop of its own in a short-lived thread, so that it can be asked for from
sync fixtures and from async tests alike without touching their loops.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ..db.dsn import Dsn
from ..db.errors import translate_errors
from ..db.open import connect
from ..errors import PermissionDeniedError
from ..migrate import migrate
from ..schema_name import SchemaName
from ..sql import load

Result = TypeVar("Result")
Prepare = Callable[[str], Any]
"""Makes an application's own tables in the database of this URL; may be a coroutine function."""


class DatabaseServer:
    """A running server by the URL of one of its databases; the role there may create databases."""

    def __init__(self, url: str) -> None:
        self.admin_url = url
        version = load("testing/server_version")
        self.version: str = self.run(url, lambda admin: admin.fetchval(version))
        # Unique among all test runs that may use this server at the same time.
        self.prefix = f"gw_test_{os.getpid()}_{os.urandom(3).hex()}_"
        self._names = (f"{self.prefix}{number}" for number in itertools.count(1))
        self._databases: set[str] = set()

    @property
    def major(self) -> int:
        """12, 15, 18, ..."""
        return int(self.version.split(".")[0].split(" ")[0])

    def url(self, database: str) -> str:
        """The URL of this database on the server."""
        return url_beside(self.admin_url, database)

    def create_database(self, *, template: str | None = None) -> str:
        """Makes a database and returns its name; from `template` when given, else empty."""
        name = next(self._names)
        statement = _statement("create_database", DATABASE=name, TEMPLATE=template or "template0")
        self._databases.add(name)
        try:
            with translate_errors(SchemaName()):
                self.run(self.admin_url, lambda admin: admin.execute(statement))
        except PermissionDeniedError as error:
            error.add_note("Tests make a database each; allow it with: ALTER ROLE … CREATEDB")
            raise
        return name

    def create_template(self, schema: SchemaName | None = None, prepare: Prepare | None = None) -> str:
        """Makes a database with the schema installed, and what `prepare` adds to it, to be copied."""
        name = self.create_database()
        url = self.url(name)
        self.run(url, lambda connection: migrate(connection, schema or SchemaName()))
        if prepare is not None:
            _in_thread(lambda: prepare(url))
            # A database that is in use cannot be copied, and pools are easily forgotten.
            end = load("testing/end_sessions")
            self.run(self.admin_url, lambda admin: admin.fetch(end, name))
        return name

    def drop_database(self, name: str) -> None:
        """Removes the database and throws out whoever is still connected to it."""
        self.run(self.admin_url, lambda admin: self._drop(admin, name))
        self._databases.discard(name)

    def drop_all(self) -> None:
        """Removes every database made through this object that is still there."""
        for name in list(self._databases):
            self.drop_database(name)

    async def _drop(self, admin: Any, name: str) -> None:
        if self.major >= 13:
            await admin.execute(_statement("drop_database_by_force", DATABASE=name))
            return
        await admin.fetch(load("testing/end_sessions"), name)
        await admin.execute(_statement("drop_database", DATABASE=name))

    @staticmethod
    def run(url: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Calls `work` with a connection to `url` and waits for its result."""

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
    """The result of a function or coroutine function; it has a thread and an event loop to itself."""

    async def awaited(result: Awaitable[Any]) -> Any:
        return await result

    def call() -> Any:
        result = work()
        return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()


def _statement(name: str, **identifiers: str) -> str:
    """A statement that takes no parameters, with names written in as identifiers."""
    text = load(f"testing/{name}")
    for placeholder, identifier in identifiers.items():
        text = text.replace(f":{placeholder}", SchemaName(identifier).quoted)
    return text

"""The PostgreSQL server that the tests use, and the databases made on it.

All work happens on an event loop of its own in a short-lived thread, so that it can be asked for from
sync fixtures and from async tests alike without touching their loops.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

Result = TypeVar("Result")


class DatabaseServer:
    """A running server by the URL of one of its databases; the role there may create databases."""

    def __init__(self, url: str) -> None:
        self.admin_url = url
        self.version: str = self.run(url, lambda admin: admin.fetchval("SHOW server_version"))
        self._names = (f"{self.prefix}{number}" for number in itertools.count(1))
        self._databases: set[str] = set()

    # Unique among all test runs that may use this server at the same time.
    prefix = f"gw_test_{os.getpid()}_{os.urandom(3).hex()}_"

    @property
    def major(self) -> int:
        """12, 15, 18, ..."""
        return int(self.version.split(".")[0].split(" ")[0])

    def url(self, database: str) -> str:
        """The URL of this database on the server."""
        return urlunsplit(urlsplit(self.admin_url)._replace(path="/" + quote(database, safe="")))

    def create_database(self, *, template: str | None = None) -> str:
        """Makes a database and returns its name; from `template` when given, else empty."""
        name = next(self._names)
        statement = f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"'
        self._databases.add(name)
        self.run(self.admin_url, lambda admin: admin.execute(statement))
        return name

    def drop_database(self, name: str) -> None:
        """Removes the database and throws out whoever is still connected to it."""
        self.run(self.admin_url, lambda admin: _drop(admin, name))
        self._databases.discard(name)

    def drop_all(self) -> None:
        """Removes every database made through this object that is still there."""
        for name in list(self._databases):
            self.drop_database(name)

    @staticmethod
    def run(url: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Calls `work` with a connection to `url` and waits for its result."""

        async def connected() -> Result:
            connection = await asyncpg.connect(url)
            try:
                return await work(connection)
            finally:
                await connection.close()

        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(asyncio.run, connected()).result()


async def _drop(admin: Any, name: str) -> None:
    if int(await admin.fetchval("SHOW server_version_num")) >= 130000:
        await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        return
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
    await admin.execute(f'DROP DATABASE IF EXISTS "{name}"')

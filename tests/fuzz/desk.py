"""One database and one connection for thousands of cases: each case is undone when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import asyncpg

from support.server import DatabaseServer

PATIENCE = 60.0
T = TypeVar("T")


class Desk:
    """An event loop that lives as long as the module's tests, and a connection on it."""

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self._runner = runner
        self.url = url
        self.connection: Any = self.run(asyncpg.connect(url))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; a TimeoutError fails the test."""

        async def in_time() -> T:
            async with asyncio.timeout(PATIENCE):
                return await work

        return self._runner.run(in_time())

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[Any]:
        """The connection inside a transaction that leaves nothing behind."""
        transaction = self.connection.transaction()
        await transaction.start()
        try:
            yield self.connection
        finally:
            await transaction.rollback()

    async def attempt(self, work: Awaitable[T]) -> tuple[T | None, str | None]:
        """The result of a statement, or the SQLSTATE with which the server refused it."""
        try:
            return await work, None
        except asyncpg.PostgresError as error:
            return None, error.sqlstate

    def close(self) -> None:
        self.run(self.connection.close())


@contextmanager
def opened_desk(server: DatabaseServer, template: str) -> Iterator[Desk]:
    """A desk on a new database with the schema."""
    name = server.create_database(template=template)
    try:
        with asyncio.Runner() as runner:
            desk = Desk(runner, server.url(name))
            try:
                yield desk
            finally:
                desk.close()
    finally:
        server.drop_database(name)

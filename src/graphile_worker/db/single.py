"""SingleConnection: a pool made of one connection of the caller's, for a run inside of its transaction.

Everybody who borrows gets the same connection, and one statement runs at a time. Inside of a transaction each
statement has a savepoint, so that one that fails leaves the transaction usable. A transaction of a borrower
keeps the others out until it ends, except what its own code does with other borrowed connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

import asyncpg

from .connection import Borrowing, Connection, Row, Transaction

ENOUGH = 100  # connections, as far as anybody counts them

T = TypeVar("T")
_held: ContextVar[object] = ContextVar("graphile_worker_single_connection", default=None)
"""Whose transaction the current code is in."""


def is_connection(given: object) -> bool:
    """Whether it is a connection of the driver, its own or borrowed from a pool."""
    return isinstance(given, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)


class SingleConnection:
    """A Pool. It neither closes nor resets the connection."""

    may_be_in_transaction = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._free = asyncio.Lock()  # held by a transaction of a borrower
        self._idle = asyncio.Lock()  # held by a statement
        self._holder: object = None

    @property
    def is_held_here(self) -> bool:
        return self._holder is not None and _held.get() is self._holder

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Any]:
        """The connection for one statement."""
        if self.is_held_here:
            async with self._idle:
                yield self._connection
        else:
            async with self._free, self._idle:
                yield self._connection

    async def hold(self) -> Token[object]:
        """Keep the connection for the code that calls, until `let_go`."""
        await self._free.acquire()
        self._holder = object()
        return _held.set(self._holder)

    def let_go(self, token: Token[object]) -> None:
        self._holder = None
        with suppress(ValueError):  # ended in another context than begun
            _held.reset(token)
        self._free.release()

    def acquire(self, *, timeout: float | None = None) -> Borrowing:
        return _Borrowing(_Share(self, self._connection))

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        """It stays the caller's."""

    def get_max_size(self) -> int:
        return ENOUGH

    def get_size(self) -> int:
        return 1

    def get_idle_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return bool(self._connection.is_closed())

    async def close(self) -> None:
        """It stays open."""

    def terminate(self) -> None:
        """It stays open."""


class _Borrowing:
    def __init__(self, share: _Share) -> None:
        self._share = share

    async def __aenter__(self) -> Connection:
        return self._share

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        return None

    def __await__(self) -> Generator[Any, Any, Connection]:
        return self.__aenter__().__await__()


class _Share:
    """The connection, as one borrower sees it."""

    def __init__(self, pool: SingleConnection, connection: Any) -> None:
        self._pool = pool
        self._connection = connection

    async def _run(self, statement: Callable[[Any], Any]) -> Any:
        async with self._pool.turn() as connection:
            if not connection.is_in_transaction():
                return await statement(connection)
            async with connection.transaction():
                return await statement(connection)

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Row]:
        rows: Sequence[Row] = await self._run(lambda it: it.fetch(query, *args, timeout=timeout))
        return rows

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None:
        row: Row | None = await self._run(lambda it: it.fetchrow(query, *args, timeout=timeout))
        return row

    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any:
        return await self._run(lambda it: it.fetchval(query, *args, column=column, timeout=timeout))

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        status: str = await self._run(lambda it: it.execute(query, *args, timeout=timeout))
        return status

    async def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> Any:
        return await self._run(lambda it: it.executemany(command, args, timeout=timeout))

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> Transaction:
        inner = self._connection.transaction(isolation=isolation, readonly=readonly, deferrable=deferrable)
        return _SharedTransaction(self._pool, inner)

    def is_in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None:
        async with self._pool.turn() as connection:
            await connection.add_listener(channel, callback)

    async def remove_listener(self, channel: str, callback: Callable[..., Any]) -> None:
        async with self._pool.turn() as connection:
            await connection.remove_listener(channel, callback)

    def add_termination_listener(self, callback: Callable[..., Any]) -> None:
        self._connection.add_termination_listener(callback)

    def remove_termination_listener(self, callback: Callable[..., Any]) -> None:
        self._connection.remove_termination_listener(callback)

    def get_server_pid(self) -> int:
        return int(self._connection.get_server_pid())

    def get_server_version(self) -> Any:
        return self._connection.get_server_version()

    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def reset(self, *, timeout: float | None = None) -> None:
        """The driver would roll the caller's transaction back."""

    async def close(self, *, timeout: float | None = None) -> None:
        """It is the caller's to close."""

    def terminate(self) -> None:
        """It is the caller's to close."""

    def __getattr__(self, name: str) -> Any:
        """What else the driver's connection has."""
        return getattr(self._connection, name)


class _SharedTransaction:
    def __init__(self, pool: SingleConnection, inner: Any) -> None:
        self._pool = pool
        self._inner = inner
        self._token: Token[object] | None = None

    async def start(self) -> None:
        if not self._pool.is_held_here:
            self._token = await self._pool.hold()
        try:
            async with self._pool.turn():
                await self._inner.start()
        except BaseException:
            self._let_go()
            raise

    async def commit(self) -> None:
        await self._end(self._inner.commit)

    async def rollback(self) -> None:
        await self._end(self._inner.rollback)

    async def _end(self, end: Callable[[], Any]) -> None:
        try:
            async with self._pool.turn():
                await end()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._token is not None:
            self._pool.let_go(self._token)
            self._token = None

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self.commit()
        else:
            await self.rollback()

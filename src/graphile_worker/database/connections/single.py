"""SingleConnection: a pool of one connection of the caller's, for a run inside the caller's transaction.

Every `acquire` returns the same connection, and one statement runs at a time. Inside a transaction each
statement has a savepoint, so that a failure leaves the transaction usable. A transaction of one borrower
blocks the others until it ends, except for code inside that transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, cast

import asyncpg

from .bound import Acquired, CallersPool
from .connection import AcquireContext, Connection, Transaction

STATEMENTS = frozenset({"fetch", "fetchrow", "fetchval", "execute", "executemany"})
LISTENING = frozenset({"add_listener", "remove_listener"})
NOMINAL_SIZE = 100  # connections: more than any caller asks for

_reserved: ContextVar[object] = ContextVar("graphile_worker_single_connection", default=None)
"""The transaction that the current code runs in."""

DRIVER_CONNECTIONS = (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)
"""The driver's classes: standalone, and from a pool."""


def is_connection(given: object) -> bool:
    """Whether it is a connection of the driver, standalone or from a pool."""
    return isinstance(given, DRIVER_CONNECTIONS)


class SingleConnection(CallersPool):
    """A Pool. It neither closes nor resets the connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._free = asyncio.Lock()  # held during a borrower's transaction
        self._idle = asyncio.Lock()  # held during a statement
        self._reservation: object = None

    @property
    def is_reserved_here(self) -> bool:
        return self._reservation is not None and _reserved.get() is self._reservation

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Any]:
        """The connection for one statement, in turn."""
        if self.is_reserved_here:
            async with self._idle:
                yield self._connection
        else:
            async with self._free, self._idle:
                yield self._connection

    async def reserve(self) -> Token[object]:
        """Reserve the connection for the calling code until `end_reservation`."""
        await self._free.acquire()
        self._reservation = object()
        return _reserved.set(self._reservation)

    def end_reservation(self, token: Token[object]) -> None:
        self._reservation = None
        with suppress(ValueError):  # ended in another context than started
            _reserved.reset(token)
        self._free.release()

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        return Acquired(cast(Connection, _Share(self, self._connection)))

    def get_max_size(self) -> int:
        return NOMINAL_SIZE

    def is_closing(self) -> bool:
        return bool(self._connection.is_closed())


class _Share:
    """The connection as handed to one borrower."""

    def __init__(self, pool: SingleConnection, connection: Any) -> None:
        self._pool = pool
        self._connection = connection

    async def _run(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async with self._pool.turn() as connection:
            if not connection.is_in_transaction():
                return await method(*args, **options)
            async with connection.transaction():
                return await method(*args, **options)

    async def _in_turn(self, method: Callable[..., Any], *args: Any) -> None:
        async with self._pool.turn():
            await method(*args)

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> Transaction:
        inner = self._connection.transaction(isolation=isolation, readonly=readonly, deferrable=deferrable)
        return _SharedTransaction(self._pool, inner)

    async def reset(self, *, timeout: float | None = None) -> None:
        """No-op: the driver would roll back the caller's transaction."""

    async def close(self, *, timeout: float | None = None) -> None:
        """No-op: the caller closes it."""

    def terminate(self) -> None:
        """No-op: the caller closes it."""

    def __getattr__(self, name: str) -> Any:
        """The methods of the driver's connection; those that send something wait for their turn."""
        method = getattr(self._connection, name)
        if name in STATEMENTS:
            return partial(self._run, method)
        return partial(self._in_turn, method) if name in LISTENING else method


class _SharedTransaction(Transaction):
    def __init__(self, pool: SingleConnection, inner: Any) -> None:
        self._pool = pool
        self._inner = inner
        self._token: Token[object] | None = None

    async def start(self) -> None:
        if not self._pool.is_reserved_here:
            self._token = await self._pool.reserve()
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
            self._pool.end_reservation(self._token)
            self._token = None

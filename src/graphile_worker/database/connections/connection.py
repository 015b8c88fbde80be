"""Protocols for a database connection and a connection pool.

They are the part of asyncpg that we use, so that only this package imports the driver. asyncpg's connections
and pools match them as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol, TypeAlias


class Row(Protocol):
    """One row of a result; columns by name or by position."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def get(self, key: str, default: Any = None, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...

    def values(self) -> Iterable[Any]: ...

    def items(self) -> Iterable[tuple[str, Any]]: ...


class Transaction(Protocol):
    """A transaction, or a savepoint inside one; rolled back when the block raises."""

    async def __aenter__(self) -> Any:
        await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> Any:
        await (self.commit() if exc_type is None else self.rollback())

    async def start(self) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class Connection(Protocol):
    """One session of the server."""

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Row]: ...

    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Row | None: ...

    async def fetchval(
        self, query: str, *args: Any, column: int = 0, timeout: float | None = None
    ) -> Any: ...

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str: ...

    async def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> Any: ...

    def transaction(
        self, *, isolation: Any = None, readonly: bool = False, deferrable: bool = False
    ) -> Transaction: ...

    def is_in_transaction(self) -> bool: ...

    async def add_listener(self, channel: str, callback: Callable[..., Any]) -> None: ...

    async def remove_listener(self, channel: str, callback: Callable[..., Any]) -> None: ...

    def add_termination_listener(self, callback: Callable[..., Any]) -> None: ...

    def remove_termination_listener(self, callback: Callable[..., Any]) -> None: ...

    def get_server_pid(self) -> int: ...

    def get_settings(self) -> Any: ...

    def is_closed(self) -> bool: ...

    async def reset(self, *, timeout: float | None = None) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


class AcquireContext(Protocol):
    """`async with pool.acquire() as connection`, or `await pool.acquire()`."""

    async def __aenter__(self) -> Connection: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any: ...

    def __await__(self) -> Any:
        return self.__aenter__().__await__()


class AnyConnection(Protocol):
    """A connection that a caller passes in; a pool has none of these methods."""

    def is_in_transaction(self) -> bool: ...

    def transaction(self) -> Any: ...


class SqlAlchemyLike(Protocol):
    """An AsyncConnection or AsyncSession of SQLAlchemy, or a session of SQLModel."""

    def run_sync(self, fn: Any, /, *args: Any) -> Coroutine[Any, Any, Any]: ...


class ScopedSessionLike(Protocol):
    """An async_scoped_session of SQLAlchemy."""

    @property
    def registry(self) -> Any: ...

    def flush(self, objects: Any = None) -> Coroutine[Any, Any, None]: ...


class PsycopgLike(Protocol):
    """An AsyncConnection of psycopg 3."""

    def set_autocommit(self, value: bool, /) -> Coroutine[Any, Any, None]: ...


UserConnection: TypeAlias = Connection | SqlAlchemyLike | ScopedSessionLike | PsycopgLike
"""What a caller can pass as `connection`; see `foreign`."""


class BlockingConnection(Protocol):
    """What a caller of the blocking client can pass as `connection`: see `foreign`."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


def savepoint(connection: Connection) -> AbstractAsyncContextManager[Any]:
    """A savepoint inside a transaction, whose errors do not end it; nothing outside of one."""
    return connection.transaction() if connection.is_in_transaction() else nullcontext()


async def pause(connection: Connection, seconds: float) -> None:
    """Wait between two attempts; adapters of blocking libraries wait without an event loop."""
    own = getattr(connection, "pause", None)
    await (asyncio.sleep(seconds) if own is None else own(seconds))


class AnyPool(Protocol):
    """A pool that a caller passes in. The driver does not type what `acquire` returns."""

    def acquire(self, *, timeout: float | None = None) -> Any: ...

    async def release(self, connection: Any, *, timeout: float | None = None) -> Any: ...

    def get_max_size(self) -> int: ...

    def get_size(self) -> int: ...

    def get_idle_size(self) -> int: ...

    def is_closing(self) -> bool: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


class Pool(AnyPool, Protocol):
    """A connection pool."""

    def acquire(self, *, timeout: float | None = None) -> AcquireContext: ...

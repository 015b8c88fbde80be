"""Connections that belong to someone else: the caller's, and those of a pool.

- `BoundConnection` is the caller's connection in the place of a pool, for a client that opens nothing.
- `is_gone`, `give_back` and `throw_away` are for connections that are borrowed from a pool for a long time
  and may be lost in between. When the server closes such a connection, the driver returns it to the pool at
  once. From then on even `is_closed` raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from ...errors import GraphileWorkerError
from ...values.clock import SystemClock
from .connection import AcquireContext, Connection, Pool


class CallersPool:
    """What pools of one connection of the caller's have in common: nothing is opened, reset or closed."""

    may_be_in_transaction = True

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        """No-op: it stays with the caller."""

    def get_size(self) -> int:
        return 1

    def get_idle_size(self) -> int:
        return 0

    async def close(self) -> None:
        """No-op: the caller closes it."""

    def terminate(self) -> None:
        """No-op: the caller closes it."""


class BoundConnection(CallersPool):
    """A Pool whose every `acquire` returns the same connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        return Acquired(self.connection)

    def get_max_size(self) -> int:
        return 1

    def is_closing(self) -> bool:
        return False


def no_connection_to_lend() -> GraphileWorkerError:
    """The error of a bound client that is asked for a connection."""
    return GraphileWorkerError(
        "this client is bound to your connection and has no other; run your statements on yours"
    )


class Acquired(AcquireContext):
    """The connection itself: it is not waited for, and not returned."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Connection:
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        return None


RELEASE_WITHIN = 5.0  # seconds; a connection that cannot be reset in time is closed


def is_gone(connection: Connection) -> bool:
    """Whether the connection can no longer be used."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def give_back(pool: Pool, connection: Connection) -> None:
    """Return it to the pool; errors are ignored, as they only end the connection."""
    with suppress(Exception):
        await pool.release(connection, timeout=RELEASE_WITHIN)


async def throw_away(pool: Pool, connection: Connection) -> None:
    """Close it without waiting for the server; the pool opens another one."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
    await give_back(pool, connection)


T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, because all it awaits is of that kind, too.

    No event loop is touched, so this works in threads, in greenlets and while a loop is running.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waited for an event loop, which a blocking connection does not have")


class BlockingClock(SystemClock):
    """The machine's clock for such coroutines."""

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 — there is no event loop

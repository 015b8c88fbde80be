"""BoundConnection: the caller's connection in the place of a pool, for a client that opens nothing."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any

from ..errors import GraphileWorkerError
from .connection import AcquireContext, Connection


class BoundConnection:
    """A Pool whose every `acquire` returns the same connection. Nothing is opened, reset or closed."""

    may_be_in_transaction = True

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def acquire(self, *, timeout: float | None = None) -> AcquireContext:
        return _Acquired(self.connection)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:
        """No-op: it stays with the caller."""

    def get_max_size(self) -> int:
        return 1

    def get_size(self) -> int:
        return 1

    def get_idle_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    async def close(self) -> None:
        """No-op: the caller closes it."""

    def terminate(self) -> None:
        """No-op: the caller closes it."""


def no_connection_to_lend() -> GraphileWorkerError:
    """The error of a bound client that is asked for a connection."""
    return GraphileWorkerError(
        "this client is bound to your connection and has no other; run your statements on yours"
    )


class _Acquired:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Connection:
        return self._connection

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        return None

    def __await__(self) -> Generator[Any, Any, Connection]:
        return self.__aenter__().__await__()

"""Connections of other libraries, adapted to the `Connection` protocol.

`as_connection` is for `WorkerUtils`, `as_blocking_connection` for a client without an event loop. Libraries
are recognised by the names of their classes, so nothing is imported that the user has not imported. Adapters
run statements as the user's code would; they never begin, commit or roll back the user's transaction.
"""

from __future__ import annotations

from typing import Any

from ..connection import Connection
from ..single import is_connection


def as_connection(given: object) -> Connection:
    """The connection to run statements on: asyncpg's as it is, others adapted.

    Raises InvalidArgumentError for anything else, and says what to give.
    """
    if is_connection(given):
        return given  # type: ignore[return-value]
    from .recognition import adapted

    return adapted(given, blocking=False)


def as_blocking_connection(given: object) -> Connection:
    """The same for blocking libraries. Its methods never wait: `run_blocking` calls them without a loop."""
    from .recognition import adapted

    return adapted(given, blocking=True)


def is_blocking(given: object) -> bool:
    """Whether it is a connection or session of a blocking library."""
    from .recognition import kind_of

    cls: Any = type(given)
    kind = kind_of(cls)
    return kind is not None and kind.is_blocking

"""Reading tables that may be missing, or that the role may not read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from . import sqlstates
from .connection import Connection
from .errors import sqlstate_of

T = TypeVar("T")

UNAVAILABLE = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_FUNCTION,
)


async def if_readable(connection: Connection, read: Callable[[], Awaitable[T]]) -> T | None:
    """What a statement finds; None where its table is missing or may not be read."""
    try:
        if not connection.is_in_transaction():
            return await read()
        async with connection.transaction():  # an error would end the caller's transaction
            return await read()
    except Exception as error:
        if sqlstate_of(error) not in UNAVAILABLE:
            raise
        return None

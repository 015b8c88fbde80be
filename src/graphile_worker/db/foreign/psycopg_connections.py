"""Connections of psycopg 3 and psycopg2.

Rows are requested as tuples: with the connection's own row factory, such as `dict_row`, a result with two
columns of one name would lose one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sql_text import named, pyformat
from .adapter import ForeignConnection
from .driver_state import is_in_transaction
from .rows import Result

if TYPE_CHECKING:
    import psycopg
    import psycopg2.extensions


class AsyncPsycopgConnection(ForeignConnection):
    """A `psycopg.AsyncConnection`. Its raw cursor takes `$1` parameters."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        from psycopg import AsyncRawCursor
        from psycopg.rows import tuple_row

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql, arguments or None)
            if cursor.description is None:
                return Result()
            return Result([column.name for column in cursor.description], await cursor.fetchall())

    async def _run_script(self, sql: str) -> None:
        await self._run(sql, ())

    async def _is_outside_transaction(self) -> bool:
        return self._connection.autocommit and not is_in_transaction(self._connection)


class PsycopgConnection(ForeignConnection):
    """A `psycopg.Connection`."""

    is_blocking = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql, arguments or None)
            if cursor.description is None:
                return Result()
            return Result([column.name for column in cursor.description], cursor.fetchall())

    async def _run_script(self, sql: str) -> None:
        await self._run(sql, ())

    async def _is_outside_transaction(self) -> bool:
        return self._connection.autocommit and not is_in_transaction(self._connection)


class Psycopg2Connection(ForeignConnection):
    """A connection of psycopg2, which substitutes `%(name)s` in the client."""

    is_blocking = True

    def __init__(self, connection: psycopg2.extensions.connection) -> None:
        self._connection = connection

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        from psycopg2.extensions import cursor as plain_cursor

        with self._connection.cursor(cursor_factory=plain_cursor) as cursor:
            if arguments:
                cursor.execute(pyformat(sql), named(arguments))
            else:
                cursor.execute(sql)
            if cursor.description is None:
                return Result()
            return Result([column.name for column in cursor.description], cursor.fetchall())

    async def _run_script(self, sql: str) -> None:
        await self._run(sql, ())

    async def _is_outside_transaction(self) -> bool:
        return bool(self._connection.autocommit) and not is_in_transaction(self._connection)

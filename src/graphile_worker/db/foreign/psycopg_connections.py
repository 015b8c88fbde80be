"""Connections of psycopg 3 and psycopg2.

Rows are requested as tuples: with the connection's own row factory, such as `dict_row`, a result with two
columns of one name would lose one. In pipeline mode `execute` does not wait for the answer; fetching does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import InvalidArgumentError
from ..sql_text import named, pyformat
from .adapter import ForeignConnection
from .driver_state import is_in_transaction
from .rows import Result

if TYPE_CHECKING:
    import psycopg
    import psycopg2.extensions

    AnyCursor: TypeAlias = psycopg.AsyncCursor[Any] | psycopg.Cursor[Any]


class AsyncPsycopgConnection(ForeignConnection):
    """A `psycopg.AsyncConnection`. Its raw cursor takes `$1` parameters."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        from psycopg import AsyncRawCursor, ProgrammingError
        from psycopg.rows import tuple_row

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql, arguments or None)
            if _has_no_rows(cursor):
                return Result()
            try:
                rows = await cursor.fetchall()
            except ProgrammingError as error:
                if error.sqlstate is None and _has_no_rows(cursor):  # known only now, in a pipeline
                    return Result()
                raise
            return Result(_columns(cursor), rows)

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
        from psycopg import ProgrammingError, RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql, arguments or None)
            if _has_no_rows(cursor):
                return Result()
            try:
                rows = cursor.fetchall()
            except ProgrammingError as error:
                if error.sqlstate is None and _has_no_rows(cursor):
                    return Result()
                raise
            return Result(_columns(cursor), rows)

    async def _run_script(self, sql: str) -> None:
        await self._run(sql, ())

    async def _is_outside_transaction(self) -> bool:
        return self._connection.autocommit and not is_in_transaction(self._connection)


def _has_no_rows(cursor: AnyCursor) -> bool:
    """Whether the answer has arrived, and is of a command that returns no rows."""
    return cursor.pgresult is not None and not cursor.pgresult.nfields


def _columns(cursor: AnyCursor) -> list[str]:
    """Their names, without the descriptions that the library would make of all columns."""
    result = cursor.pgresult
    if result is None:
        return []
    return [(result.fname(number) or b"").decode() for number in range(result.nfields)]


class Psycopg2Connection(ForeignConnection):
    """A connection of psycopg2, which substitutes `%(name)s` in the client."""

    is_blocking = True

    def __init__(self, connection: psycopg2.extensions.connection) -> None:
        if connection.async_:
            raise InvalidArgumentError(
                "connection", "is in the asynchronous mode of psycopg2; open it without async_"
            )
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

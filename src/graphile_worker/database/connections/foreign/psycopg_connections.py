"""Connections of psycopg 3 and psycopg2.

Rows are requested as tuples: with the connection's own row factory, such as `dict_row`, a result with two
columns of one name would lose one. In pipeline mode `execute` does not wait for the answer; fetching does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ....errors import InvalidArgumentError
from ..encoding import named, pyformat
from .adapter import ForeignConnection, Result, is_in_transaction

if TYPE_CHECKING:
    import psycopg
    import psycopg2.extensions
    from psycopg.pq.abc import PGresult

    AnyCursor: TypeAlias = psycopg.AsyncCursor[Any] | psycopg.Cursor[Any]


class PsycopgConnection(ForeignConnection):
    """A `psycopg.Connection`. Its raw cursors take `$1` parameters."""

    is_blocking = True

    def __init__(self, connection: Any) -> None:
        from psycopg.rows import tuple_row

        self._connection = connection
        self._new_cursor: Callable[[], Any] = lambda: self._cursor_class()(connection, row_factory=tuple_row)
        self._free: list[Any] = []
        """Cursors to use again; concurrent calls and threads each take one."""

    @staticmethod
    def _cursor_class() -> type[Any]:
        from psycopg import RawCursor

        return RawCursor

    async def _done(self, answer: Any) -> Any:
        """What a method of a cursor has returned."""
        return answer

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        try:
            cursor = self._free.pop()
        except IndexError:
            cursor = self._new_cursor()
        await self._done(cursor.execute(sql, arguments or None))
        result = Result()
        if not _has_no_rows(cursor):
            try:
                result = Result(await self._done(cursor.fetchall()), _names_of(cursor.pgresult))
            except Exception as error:
                if not _is_about_no_rows(error, cursor):
                    raise
        self._free.append(cursor)
        return result

    async def _is_outside_transaction(self) -> bool:
        return bool(self._connection.autocommit) and not is_in_transaction(self._connection)


class AsyncPsycopgConnection(PsycopgConnection):
    """A `psycopg.AsyncConnection`."""

    is_blocking = False

    @staticmethod
    def _cursor_class() -> type[Any]:
        from psycopg import AsyncRawCursor

        return AsyncRawCursor

    async def _done(self, answer: Any) -> Any:
        return await answer


def _has_no_rows(cursor: AnyCursor) -> bool:
    """Whether the answer has arrived, and is of a command that returns no rows."""
    return cursor.pgresult is not None and not cursor.pgresult.nfields


def _is_about_no_rows(error: Exception, cursor: AnyCursor) -> bool:
    """Whether it only says that a command returns no rows, which in a pipeline is known when fetching."""
    from psycopg import ProgrammingError

    return isinstance(error, ProgrammingError) and error.sqlstate is None and _has_no_rows(cursor)


def _names_of(result: PGresult | None) -> Callable[[], list[str]]:
    """The names of columns, without the descriptions that the library would make of all columns."""

    def names() -> list[str]:
        if result is None:
            return []
        return [(result.fname(number) or b"").decode() for number in range(result.nfields)]

    return names


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
            description = cursor.description
            return Result(cursor.fetchall(), lambda: [column.name for column in description])

    async def _is_outside_transaction(self) -> bool:
        return bool(self._connection.autocommit) and not is_in_transaction(self._connection)

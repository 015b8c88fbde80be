"""Connections and sessions of SQLAlchemy, on asyncpg, psycopg or psycopg2.

Statements go through SQLAlchemy, never past it to the driver's connection: with asyncpg, SQLAlchemy begins
the transaction with its own first statement, so one that went past it would be committed by itself. The
functions here are synchronous, as SQLAlchemy's core is; the asynchronous adapter calls them by `run_sync`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ....errors import InvalidArgumentError
from ..encoding import named, pyformat
from ..errors import mark_as_users
from .adapter import ForeignConnection, Result, is_in_transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

T = TypeVar("T")

# Options of the user's connection must not turn our statements into server-side cursors.
_OPTIONS = {"stream_results": False, "yield_per": None}
_WITHOUT_PARAMETERS = {**_OPTIONS, "no_parameters": True}  # so that the driver does not look for %
_TAKES_NUMBERS = {"asyncpg": True, "psycopg": False, "psycopg_async": False, "psycopg2": False}
"""Drivers, and whether they take `$1` in place of `%(name)s`."""


class SqlAlchemyConnection(ForeignConnection):
    """A Connection or Session, or a scoped session: called, it returns that of the current scope."""

    is_blocking = True

    def __init__(self, given: Any) -> None:
        self._current: Callable[[], Any] = given if callable(given) else lambda: given

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self._current(), *arguments)

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        return await self._call(_run, sql, arguments)

    async def _run_script(self, sql: str) -> None:
        await self._call(_run_script, sql)

    async def _is_outside_transaction(self) -> bool:
        return await self._call(_is_outside_transaction)


class AsyncSqlAlchemyConnection(SqlAlchemyConnection):
    """An AsyncConnection or AsyncSession, or a scoped session."""

    is_blocking = False

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        result: T = await self._current().run_sync(function, *arguments)
        return result


def _run(given: Connection | Session, sql: str, arguments: tuple[Any, ...]) -> Result:
    connection = _connection_of(given)
    takes_numbers = _takes_numbers(connection)
    if not arguments:
        result = connection.exec_driver_sql(sql, execution_options=_WITHOUT_PARAMETERS)
    elif takes_numbers:
        result = connection.exec_driver_sql(sql, arguments, _OPTIONS)
    else:
        result = connection.exec_driver_sql(pyformat(sql), named(arguments), _OPTIONS)
    if not result.returns_rows:
        return Result()
    return Result([tuple(row) for row in result], lambda: tuple(result.keys()))


def _run_script(given: Connection | Session, sql: str) -> None:
    connection = _connection_of(given)
    if not _takes_numbers(connection):
        connection.exec_driver_sql(sql, execution_options=_WITHOUT_PARAMETERS)
        return
    # SQLAlchemy prepares every statement on asyncpg, which works for single ones only.
    if not _is_outside_transaction(given) and not is_in_transaction(connection.connection.driver_connection):
        # Before it, SQLAlchemy begins the transaction.
        connection.exec_driver_sql("select 1", execution_options=_OPTIONS)
    adapted: Any = connection.connection.dbapi_connection
    adapted.run_async(lambda driver: driver.execute(sql))


def _is_outside_transaction(given: Connection | Session) -> bool:
    connection = _connection_of(given)
    _takes_numbers(connection)
    raw: Any = connection.connection
    return bool(raw.dbapi_connection.autocommit) and not is_in_transaction(raw.driver_connection)


def _connection_of(given: Connection | Session) -> Connection:
    """The connection, after the flush that a session does before any statement."""
    if _is_connection(given):
        return given  # type: ignore[return-value]
    session: Any = given
    if session.autoflush and not getattr(session, "_flushing", False):
        try:
            session.flush()
        except Exception as error:
            mark_as_users(error)
            raise
    connection: Connection = session.connection()
    return connection


def _is_connection(given: Connection | Session) -> bool:
    return hasattr(given, "exec_driver_sql")


def _takes_numbers(connection: Connection) -> bool:
    driver = connection.dialect.driver
    try:
        return _TAKES_NUMBERS[driver]
    except KeyError:
        raise InvalidArgumentError(
            "connection",
            f"its engine uses the driver {driver}; give a connection to PostgreSQL through asyncpg, psycopg "
            "or psycopg2",
        ) from None

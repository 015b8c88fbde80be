"""Django's database connections: `django.db.connection` and `connections[alias]`."""

from __future__ import annotations

from typing import Any

from ....errors import InvalidArgumentError
from ..encoding import named, pyformat
from .adapter import ForeignConnection, Result, is_in_transaction


class DjangoConnection(ForeignConnection):
    """A connection of Django, on psycopg or psycopg2."""

    is_blocking = True

    def __init__(self, connection: Any) -> None:
        if connection.vendor != "postgresql":
            raise InvalidArgumentError(
                "connection", f"the database {connection.alias!r} of Django is not PostgreSQL"
            )
        self._connection = connection

    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        with self._connection.cursor() as cursor:
            if arguments:
                cursor.execute(pyformat(sql), named(arguments))
            else:
                cursor.execute(sql)
            if cursor.description is None:
                return Result(status=cursor.statusmessage or "")
            description = cursor.description
            return Result(cursor.fetchall(), lambda: [column[0] for column in description])

    async def _is_outside_transaction(self) -> bool:
        self._connection.ensure_connection()
        is_autocommit = bool(self._connection.get_autocommit())
        return is_autocommit and not is_in_transaction(self._connection.connection)

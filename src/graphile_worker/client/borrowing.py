"""The connection for one call of the client: the caller's, an idle one, or one from the pool."""

from __future__ import annotations

from types import TracebackType

from ..db.array_types import teach_arrays
from ..db.connection import Connection, Pool
from ..db.errors import translate_errors, translated_error
from ..db.idle_connections import IdleConnections
from ..schema_name import SchemaName


class BorrowedConnection:
    """`async with` a connection; database errors that we can explain come out as ours.

    A class, because an async generator would cost every added job more.
    """

    __slots__ = ("_connection", "_given", "_idle", "_pool", "_schema")

    def __init__(
        self, pool: Pool, idle: IdleConnections | None, schema: SchemaName, given: Connection | None
    ) -> None:
        self._pool = pool
        self._idle = idle
        self._schema = schema
        self._given = given
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        if self._given is not None:
            teach_arrays(self._given)
            return self._given
        connection = self._idle.take() if self._idle is not None else None
        if connection is None:
            with translate_errors(self._schema):
                if self._idle is not None:
                    connection = await self._idle.borrow()
                else:
                    connection = await self._pool.acquire()
                    teach_arrays(connection)  # the caller's pool has not done that
        self._connection = connection
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection = self._connection
        # After an error the pool decides whether the connection is still usable.
        if connection is not None and not (
            error is None and self._idle is not None and self._idle.keep(connection)
        ):
            with translate_errors(self._schema):
                await self._pool.release(connection)
        if error is not None:
            translated = translated_error(error, schema=self._schema)
            if translated is not None:
                raise translated from error

"""The connection that a call of the client uses: the caller's own, one that was kept, or one of the pool."""

from __future__ import annotations

from types import TracebackType

from ..db.connection import Connection, Pool
from ..db.errors import translate_errors, translated_error
from ..db.idle_connections import IdleConnections
from ..schema_name import SchemaName


class Borrowing:
    """`async with` a connection; errors of the database that have advice come out as ours.

    A class and not a generator, because every job that is added passes through here.
    """

    __slots__ = ("_connection", "_given", "_kept", "_pool", "_schema")

    def __init__(
        self, pool: Pool, kept: IdleConnections | None, schema: SchemaName, given: Connection | None
    ) -> None:
        self._pool = pool
        self._kept = kept
        self._schema = schema
        self._given = given
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        if self._given is not None:
            return self._given
        connection = self._kept.take() if self._kept is not None else None
        if connection is None:
            with translate_errors(self._schema):
                connection = await (self._kept.borrow() if self._kept is not None else self._pool.acquire())
        self._connection = connection
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        connection = self._connection
        # After an error it is for the pool to see whether the connection can still be used.
        if connection is not None and not (
            error is None and self._kept is not None and self._kept.keep(connection)
        ):
            with translate_errors(self._schema):
                await self._pool.release(connection)
        if error is not None:
            told = translated_error(error, schema=self._schema)
            if told is not None:
                raise told from error

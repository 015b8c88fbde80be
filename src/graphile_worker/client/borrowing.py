"""The connection that a call of the client uses.

The connection for one call of the client: the caller's, an idle one, or one from the pool.

The options of a client that is bound to a connection.

Such a client is often made for each request, and reading the configuration takes milliseconds. So what was
read is kept for as long as the folder and the variables are the same.
"""

from __future__ import annotations

import os
from functools import lru_cache
from types import TracebackType

from ..database.connections.connection import Connection, Pool
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import translate_errors, translated_error
from ..database.connections.idle_connections import IdleConnections
from ..values.options import WorkerOptions
from ..values.schema_name import SchemaName


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


_VARIABLES = ("GRAPHILE_WORKER_SCHEMA", "GRAPHILE_WORKER_USE_LOCAL_TIME")


def bound_options(
    schema: str | None, use_local_time: bool | None, options: WorkerOptions | None
) -> WorkerOptions:
    """These values over `options`, or else over the environment and the configuration file."""
    if options is not None:
        return _combined(options, schema, use_local_time)
    variables = tuple(map(os.environ.get, _VARIABLES))
    return _configured(schema, use_local_time, os.getcwd(), variables)


@lru_cache(maxsize=16)
def _configured(
    schema: str | None, use_local_time: bool | None, _folder: str, _variables: tuple[str | None, ...]
) -> WorkerOptions:
    return _combined(None, schema, use_local_time)


def _combined(
    options: WorkerOptions | None, schema: str | None, use_local_time: bool | None
) -> WorkerOptions:
    from ..config.resolve import combine

    return combine(options, {"schema": schema, "use_local_time": use_local_time})

"""How long changes wait for rows that other transactions have locked.

`bounded_waits` is for jobs that are named: a worker may hold them in its own transaction while they run, and
one whose event loop is blocked cannot end it. `yielding_locks` is for changes of several queues at once,
beside workers that lock the same rows in an order of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..errors import JobBusyError
from ..schema_name import SchemaName
from ..sql import load

BRIEFLY = "250ms"
"""Less than PostgreSQL's `deadlock_timeout`, after which it would end one of the transactions."""
PAUSE = 0.05  # seconds
ATTEMPTS = 20

MOST = "5s"
"""How long to wait for a named job. A worker that is not blocked holds its jobs for a fraction of that."""
BUSY = (
    "busy: another transaction, usually that of a worker running jobs, has locked one of these rows; nothing "
    "was changed, try again (if it lasts, `graphile-worker workers` says which worker is blocked)"
)

T = TypeVar("T")


async def bounded_waits(connection: Connection, schema: SchemaName, change: Callable[[], Awaitable[T]]) -> T:
    """The result of `change` in a transaction, or a savepoint. Raises JobBusyError after a long wait.

    A shorter `lock_timeout` of the session applies instead.
    """
    is_inside = connection.is_in_transaction()
    try:
        async with connection.transaction():
            earlier = await connection.fetchval(load("session/bound_lock_waits", schema), MOST)
            result = await change()
            if is_inside:  # the rest of the transaction is the caller's
                await _limit_waits(connection, schema, earlier)
            return result
    except Exception as error:
        if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:
            raise
        raise JobBusyError(BUSY, sqlstate=sqlstates.LOCK_NOT_AVAILABLE) from error


async def yielding_locks(connection: Connection, schema: SchemaName, change: Callable[[], Awaitable[T]]) -> T:
    """The result of `change` in a transaction, or a savepoint, that releases its locks if it has to wait.

    A worker that waits for one of them can then go on: otherwise one of the two would fail with a deadlock.
    The last attempt waits as long as the session allows. `change` must not release savepoints of its own:
    sessions that wait for a lock taken there would then wait for the end of the whole transaction.
    """
    for _ in range(ATTEMPTS):
        try:
            async with connection.transaction():
                earlier = await _limit_waits(connection, schema, BRIEFLY)
                result = await change()
                await _limit_waits(connection, schema, earlier)
                return result
        except Exception as error:
            if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:
                raise
        await connection.fetchval(load("control/wait", schema), PAUSE)  # those who wait for us go first
    async with connection.transaction():
        return await change()


async def _limit_waits(connection: Connection, schema: SchemaName, lock_timeout: str) -> str:
    earlier: str = await connection.fetchval(load("control/limit_lock_waits", schema), lock_timeout)
    return earlier

"""What all calls of a client share: its connections, the one of each call, and how the client ends.

- `ClientConnections` is made once for each client. Its methods and its members, such as `utils.jobs`, use it.
- `ConnectionT` is what callers pass as `connection`: another type for the blocking client, see `blocking`.
- `BorrowedConnection` is the connection for one call: the caller's, an idle one, or one from the pool.
- `bound_options` are those of a client that is bound to a connection. Such a client is often made for each
  request, and reading the configuration takes milliseconds. So what was read is kept for as long as the
  folder and the variables are the same.
- `beginning` and `rereadable` are for arguments that several methods take.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from ..database.connections.bound import BoundConnection, no_connection_to_lend
from ..database.connections.connection import Connection, Pool, UserConnection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import translate_errors, translated_error
from ..database.connections.foreign import as_connection
from ..database.connections.idle_connections import IdleConnections
from ..database.connections.open import lend
from ..database.connections.retry import is_conflict, past_conflicts
from ..database.connections.single import DRIVER_CONNECTIONS
from ..errors import GraphileWorkerError, InvalidArgumentError
from ..hooks import Hooks
from ..values.clock import Clock, SystemClock
from ..values.options import WorkerOptions
from ..values.schema_name import SchemaName

if TYPE_CHECKING:
    import typing_extensions

    from ..history.records import CurrentState
    from .job_waiter import JobWaiter

    ConnectionT = typing_extensions.TypeVar("ConnectionT", default=UserConnection)
else:
    ConnectionT = TypeVar("ConnectionT")

T = TypeVar("T")
Arguments = ParamSpec("Arguments")

DEFAULT_RETENTION = 7 * 86_400.0  # seconds, as the option `history_retention`


class ClientConnections:
    """Borrows connections, from the pool or from the caller."""

    def __init__(
        self,
        pool: Pool,
        *,
        schema: SchemaName | None = None,
        owns_pool: bool = False,
        use_local_time: bool = False,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        history_retention: float = DEFAULT_RETENTION,
        taken_connections: int = 0,
    ) -> None:
        """`history_retention`: how long to keep jobs that this client removes.

        `taken_connections`: how many connections of the pool are not for this client, but for its worker.
        """
        self.pool = pool
        self.schema = schema if schema is not None else SchemaName()
        self.hooks = hooks if hooks is not None else Hooks()
        self.clock = clock if clock is not None else SystemClock()
        self.history_retention = history_retention
        self.is_released = False
        self._why_released = "this client has been released; open a new one"
        self._owns_pool = owns_pool
        self._idle = IdleConnections(pool) if owns_pool else None
        self._use_local_time = use_local_time
        self._taken_connections = taken_connections
        self._home: Any = pool.connection if isinstance(pool, BoundConnection) else None
        self.is_bound = self._home is not None
        serves_any_loop = self.is_bound or getattr(pool, "serves_any_loop", False)
        self._current_loop = _no_loop if serves_any_loop else asyncio._get_running_loop
        self._loop = self._current_loop()

    def borrow(self, given: object = None) -> BorrowedConnection:
        """The caller's connection, or one from the pool."""
        if self.is_released:
            self.check_open()
        if given is None:
            if self._current_loop() is not self._loop:
                self.check_loop()
            given = self._home
        elif type(given) not in DRIVER_CONNECTIONS:
            given = as_connection(given)
        return BorrowedConnection(self.pool, self._idle, self.schema, given)  # type: ignore[arg-type]

    def lend(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool for the caller's own use."""
        self.check_open()
        self.check_loop()
        if self.is_bound:
            raise no_connection_to_lend()
        return self._lend(self._idle) if self._idle is not None else self.pool.acquire()

    @asynccontextmanager
    async def _lend(self, idle: IdleConnections) -> AsyncIterator[Connection]:
        await idle.spare()
        async with lend(self.pool) as connection:
            yield connection

    async def call(
        self,
        given: object,
        statement: Callable[Concatenate[Connection, SchemaName, Arguments], Awaitable[T]],
        *args: Arguments.args,
        **keywords: Arguments.kwargs,
    ) -> T:
        """What a statement returns that gets the connection, the schema and these arguments."""
        async with self.borrow(given) as session:
            return await statement(session, self.schema, *args, **keywords)

    async def change(
        self,
        given: object,
        statement: Callable[Concatenate[Connection, SchemaName, Arguments], Awaitable[T]],
        *args: Arguments.args,
        **keywords: Arguments.kwargs,
    ) -> T:
        """The same in a transaction; see `manage`."""
        return await self.manage(given, lambda session: statement(session, self.schema, *args, **keywords))

    async def manage(self, given: object, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run one transaction; on a connection of ours, retry it after a conflict with another one."""
        try:
            async with self.borrow(given) as session:
                return await work(session)
        except Exception as error:
            if not self.may_retry(given, error):
                raise
        return await self.retry(work)

    def may_retry(self, given: object, error: Exception) -> bool:
        """Whether the server rolled back all there was: after a conflict, in a transaction of our own."""
        return given is None and not self.is_bound and is_conflict(error)

    async def retry(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Repeat what the server rolled back because of a conflict."""

        async def once() -> T:
            async with self.borrow() as session:
                return await work(session)

        return await past_conflicts(once, clock=self.clock, failures=1)

    async def close(self) -> None:
        """Refuse further calls, and close the connections, and the pool unless it is the caller's."""
        self.is_released = True
        if "job_waiter" in vars(self):
            await self.job_waiter.close()
        if self._idle is not None:
            await self._idle.close()
        if self._owns_pool:
            await self.pool.close()

    def refuse(self, why: str) -> None:
        """Refuse further calls for this reason, without closing anything."""
        self.is_released = True
        self._why_released = why

    def check_open(self) -> None:
        """Refuse a call of a client that was released."""
        if self.is_released:
            raise GraphileWorkerError(self._why_released)

    def check_loop(self) -> None:
        """Refuse another event loop: it would break the connections for the first one."""
        if self._loop is None:
            self._loop = self._current_loop()
        if self._current_loop() is not self._loop:
            raise GraphileWorkerError(
                "this client belongs to another event loop, and its connections work only there; make one "
                "client for each event loop, inside the function that you pass to asyncio.run()"
            )

    def local_now(self) -> datetime | None:
        """The client's time, if it replaces the server's clock."""
        return self.clock.now() if self._use_local_time else None

    @cached_property
    def job_waiter(self) -> JobWaiter:
        """Waits for the ends of jobs."""
        from .job_status import read_current_states
        from .job_waiter import JobWaiter

        self.check_open()

        async def look(job_ids: Sequence[int]) -> list[CurrentState]:
            async with self.borrow() as session:
                return await read_current_states(session, self.schema, list(job_ids))

        # One connection to listen, and one for lookups.
        may_listen = self.pool.get_max_size() - self._taken_connections >= 2
        return JobWaiter(
            self.pool, self.schema, look, self.borrow, self.hooks._background_context, may_listen=may_listen
        )


class Member(Generic[ConnectionT]):
    """A member of a client, such as `utils.queues`, whose methods take connections of this type."""

    def __init__(self, connections: ClientConnections) -> None:
        self._connections = connections


def _no_loop() -> None:
    """What a client belongs to whose connections need no event loop, or open on the current one."""


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
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
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


def beginning(since: datetime | timedelta, until: datetime | None, now: datetime) -> datetime:
    """The beginning of a period that may be given by its length."""
    end = now if until is None else until
    begin = end - since if isinstance(since, timedelta) else since
    for name, value in (("since", begin), ("until", end)):
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidArgumentError(name, f"expected a time with a time zone, got {value!r}")
    if begin >= end:
        raise InvalidArgumentError("since", f"must be before {end}, got {begin}")
    return begin


def rereadable(values: Iterable[T]) -> Iterable[T]:
    """An iterable that can be read again for a retry."""
    return list(values) if isinstance(values, Iterator) else values

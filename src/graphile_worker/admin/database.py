"""Database: one database and schema that the dashboard shows, opened at the first request."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from ..client import WorkerUtils
from ..client.connections import ClientConnections
from ..database.connections.connection import AnyPool, Connection, Pool
from ..database.connections.dsn import Dsn
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import is_dead_session, sqlstate_of
from ..database.connections.open import close_pool, open_pool, resolve_connection
from ..database.sql import load
from ..database.statements.pauses import list_pauses
from ..errors import ConnectionFailedError, SchemaMissingError
from ..values.clock import Clock, SystemClock
from ..values.job import Pause
from ..values.schema_name import SchemaName
from .answers import Problem

MAX_CONNECTIONS = 4
CONNECT_WITHIN = 5.0  # seconds, unless the connection string has connect_timeout
CONNECTION_WITHIN = 5.0  # seconds to wait for a free connection
CLOSE_WITHIN = 2.0  # seconds
READ_WITHIN = 3000  # milliseconds that one statement of a page may take
STEP_WITHIN = 15_000  # milliseconds for a step of an operation
LOCK_WITHIN = 500  # milliseconds to wait for a lock
AGAIN_AFTER = 1.0  # seconds after which a server that did not answer is asked again
TABLES_FOR = 60.0  # seconds until it is looked again which tables there are
PAUSES_FOR = 10.0  # seconds until pauses that others made are seen
READY_FOR = 2.0  # seconds for which an answer of `check` holds
AT_ONCE = 2  # pages of one person that are read at a time
TURN_WITHIN = 10.0  # seconds to wait for that

T = TypeVar("T")


class OperationsRunner(Protocol):
    """Carries out the operations of a database; `operations.py` has it."""

    name: str
    on_change: Callable[[int], Any]

    def start(self, operation_id: int) -> None: ...

    def wake(self, operation_id: int) -> None: ...

    async def adopt(self) -> None: ...

    def adopt_later(self) -> None: ...

    def has(self, operation_id: int) -> bool: ...

    async def aclose(self) -> None: ...


class Database:
    """Statements of the dashboard go through `read` and `write`, which bound their time.

    Functions of the client take the connection:
    `await database.utils.jobs.list(filter, connection=connection)`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        connection_string: str | None = None,
        pg_pool: AnyPool | None = None,
        schema: str | None = None,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`name` is shown in the switch between several databases."""
        self.name = name
        self.schema = SchemaName(schema) if schema is not None else SchemaName()
        self.is_read_only = read_only
        self.clock = clock if clock is not None else SystemClock()
        self.meter = Meter()
        self._source = resolve_connection(connection_string, pg_pool)
        self._opening = asyncio.Lock()
        self._checking = asyncio.Lock()
        self._checked_at = -1e9
        self._refusal: Exception | None = None
        self._utils: WorkerUtils | None = None
        self._failure: tuple[float, ConnectionFailedError] | None = None
        self._remembered: dict[str, tuple[float, Any]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self.tables: frozenset[str] | None = None
        """The Python-only tables that this role may read, as far as they have been looked for."""
        self._writes = 0
        self.runner: OperationsRunner | None = None
        """Carries out changes to many jobs; the application that shows the database sets it."""

    @property
    def operations(self) -> OperationsRunner:
        """What carries out changes to many jobs, also those that an earlier process began."""
        if self.runner is None:
            raise RuntimeError("no application shows the database")
        return self.runner

    @property
    def utils(self) -> WorkerUtils:
        """The client; only inside of `read` and `write`, or after `open`."""
        if self._utils is None:
            raise RuntimeError("the database has not been opened")
        return self._utils

    @property
    def title(self) -> str:
        """The name of the database on the server, for people."""
        return (self._source.database if isinstance(self._source, Dsn) else None) or self.name

    async def open(self) -> None:
        """Connect, if that has not been done; raises what the driver says if the server does not answer."""
        async with self._opening:
            if self._utils is not None:
                return
            if self._failure is not None and time.monotonic() - self._failure[0] < AGAIN_AFTER:
                # Requests that waited meanwhile do not each wait for another timeout.
                raise ConnectionFailedError(str(self._failure[1]), sqlstate=self._failure[1].sqlstate)
            try:
                pool = await self._open_pool()
            except ConnectionFailedError as error:
                self._failure = (time.monotonic(), error)
                raise
            self._utils = WorkerUtils(
                ClientConnections(pool, schema=self.schema, clock=self.clock), checks_names=False
            )

    async def _open_pool(self) -> Pool:
        source = self._source
        if not isinstance(source, Dsn):
            return source
        if source.connect_timeout is None:
            source = replace(source, connect_timeout=CONNECT_WITHIN)
        return await open_pool(
            source,
            max_pool_size=MAX_CONNECTIONS,
            application_name="graphile_worker admin",
            read_only=self.is_read_only,
        )

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Connection]:
        """One read-only transaction for a whole page, so that its parts agree."""
        options = {"isolation": "repeatable_read", "readonly": True}
        async with self._transaction(READ_WITHIN, options) as connection:
            yield connection

    @asynccontextmanager
    async def write(self, *, within: int = READ_WITHIN) -> AsyncIterator[Connection]:
        """One transaction that may change something. PostgreSQL refuses if the dashboard is read-only."""
        try:
            async with self._transaction(within, {"readonly": self.is_read_only}) as connection:
                yield connection
        finally:
            self.forget()

    # -- what changes rarely -----------------------------------------------------------------------------

    async def remembered(self, name: str, read: Callable[[], Awaitable[T]], seconds: float) -> T:
        """What `read` found in the last seconds, or finds now; `write` forgets it."""
        at, value = self._remembered.get(name, (-1e9, None))
        if self.clock.monotonic() - at < seconds:
            return cast(T, value)
        writes = self._writes
        found = await read()
        if writes == self._writes:  # what was read may be older than a change meanwhile
            self._remembered[name] = self.clock.monotonic(), found
        return found

    def forget(self) -> None:
        """Read everything anew: this process has changed something."""
        self._writes += 1
        self._remembered.clear()

    async def own_tables(self, connection: Connection) -> frozenset[str]:
        """The Python-only tables that this role may read."""
        found = await self.remembered("tables", lambda: own_tables(connection, self.schema), TABLES_FOR)
        self.tables = found
        return found

    async def missing(self, needed: frozenset[str]) -> frozenset[str]:
        """Which of these tables there are not, or this role may not read."""
        if self.tables is None or not self.tables >= needed:
            self._remembered.pop("tables", None)
            async with self.read() as connection:
                await self.own_tables(connection)
        return needed - (self.tables or frozenset())

    async def pauses(self, connection: Connection) -> list[Pause]:
        """What is paused; empty where that is not recorded."""
        tables = await self.own_tables(connection)
        if not tables >= PAUSES:
            return []
        return await self.remembered(
            "pauses",
            lambda: list_pauses(connection, self.schema, has_schedules=SCHEDULE_PAUSES in tables),
            PAUSES_FOR,
        )

    @asynccontextmanager
    async def listening(self, channel: str, heard: Callable[..., None]) -> AsyncIterator[asyncio.Event]:
        """Listen on a connection of its own; the event is set when that is lost.

        A pool with few connections is left alone: the event is never set, and nothing is heard.
        """
        await self.open()
        lost = asyncio.Event()
        if self.utils.pool.get_max_size() < MAX_CONNECTIONS:
            yield lost
            return

        def end(*_: object) -> None:
            lost.set()

        async with self.utils.pool.acquire(timeout=CONNECTION_WITHIN) as connection:
            connection.add_termination_listener(end)
            await connection.add_listener(channel, heard)
            try:
                yield lost
            finally:
                connection.remove_termination_listener(end)
                if not connection.is_closed():
                    await connection.remove_listener(channel, heard)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait until fewer than `AT_ONCE` pages of the same person are read: others need connections too."""
        turns = self._turns.setdefault(name, asyncio.Semaphore(AT_ONCE))
        try:
            await asyncio.wait_for(turns.acquire(), TURN_WITHIN)
        except TimeoutError:
            raise Problem(
                429, "You have asked for too many pages at once", "Wait for the others.", retry_after=1
            ) from None
        try:
            yield
        finally:
            turns.release()

    async def check(self) -> None:
        """Raise if the server does not answer, or lacks the schema. Those who ask often share the answer."""
        async with self._checking:
            if time.monotonic() - self._checked_at < READY_FOR:
                if self._refusal is not None:
                    raise self._refusal
                return
            self._refusal = None
            try:
                async with self.read() as connection:
                    table = f"{self.schema.quoted}._private_jobs"
                    if not await connection.fetchval(load("admin/ready"), table):
                        raise SchemaMissingError(f"the schema {self.schema.quoted} is not installed")
            except Exception as error:
                self._refusal = error
                raise
            finally:
                self._checked_at = time.monotonic()

    @asynccontextmanager
    async def _transaction(self, within: int, options: dict[str, Any]) -> AsyncIterator[Connection]:
        await self.open()
        async with AsyncExitStack() as stack:
            connection = await self._begin(stack, within, options)
            yield connection

    async def _begin(self, stack: AsyncExitStack, within: int, options: dict[str, Any]) -> Connection:
        """A connection in a transaction. Connections that the server closed meanwhile are passed over."""
        for left in range(MAX_CONNECTIONS, -1, -1):
            async with AsyncExitStack() as attempt:
                try:
                    connection = await attempt.enter_async_context(
                        self.utils.pool.acquire(timeout=CONNECTION_WITHIN)
                    )
                    teach_arrays(connection)  # the caller's pool has not done that
                    attempt.enter_context(self.meter.counting(connection))
                    await attempt.enter_async_context(connection.transaction(**options))
                    bounds = load("session/bounds", self.schema)
                    await connection.fetchrow(bounds, str(within), str(LOCK_WITHIN))
                except Exception as error:
                    if left and is_dead_session(error):
                        continue
                    raise
                await stack.enter_async_context(attempt.pop_all())
                return connection
        raise AssertionError("the last round returns or raises")

    async def aclose(self) -> None:
        """Close the pool, if it was made here."""
        if self.runner is not None:
            await self.runner.aclose()
        if self._utils is not None and isinstance(self._source, Dsn):
            await close_pool(self._utils.pool, within=CLOSE_WITHIN)
        self._utils = None


# -- cost ---------------------------------------------------------------------------------------------------

PERIOD = 60.0  # seconds


class Cost(msgspec.Struct, frozen=True):
    """Statements of the dashboard in the last minute, and the time until their results were here.

    The server itself took less: the network and this process are part of it.
    """

    statements: int
    milliseconds: float

    def __str__(self) -> str:
        noun = "statement" if self.statements == 1 else "statements"
        sent = f"{self.statements:,} {noun} in the last minute"
        return f"{sent}, at most {self.milliseconds:,.0f} ms of database time"


class Meter:
    """Counts the statements of the last minute, by second."""

    def __init__(self, uptime: Callable[[], float] = time.monotonic) -> None:
        self._uptime = uptime
        self._seconds: deque[tuple[int, int, float]] = deque()
        self.total = 0
        """Statements since the start."""

    def add(self, seconds: float) -> None:
        """Count one statement that took so long."""
        self.total += 1
        now = int(self._uptime())
        if self._seconds and self._seconds[-1][0] == now:
            _, count, before = self._seconds.pop()
            self._seconds.append((now, count + 1, before + seconds))
        else:
            self._seconds.append((now, 1, seconds))
            self._forget()

    @property
    def cost(self) -> Cost:
        """The statements of the last minute."""
        self._forget()
        return Cost(
            sum(count for _, count, _ in self._seconds), sum(spent for *_, spent in self._seconds) * 1000
        )

    @contextmanager
    def counting(self, connection: Connection) -> Iterator[None]:
        """Count what is sent on this connection, if its driver can tell."""
        add_logger: Callable[[Any], None] | None = getattr(connection, "add_query_logger", None)
        if add_logger is None:
            yield
            return
        add_logger(self._note)
        try:
            yield
        finally:
            with suppress(Exception):  # a connection that was lost refuses, and needs no removing
                connection.remove_query_logger(self._note)  # type: ignore[attr-defined]

    def _note(self, query: Any) -> None:
        self.add(query.elapsed)

    def _forget(self) -> None:
        oldest = self._uptime() - PERIOD
        while self._seconds and self._seconds[0][0] < oldest:
            self._seconds.popleft()


# -- tables -------------------------------------------------------------------------------------------------

WORKERS = "_private_py_workers"
STATISTICS = frozenset({"_private_py_minutes", "_private_py_hours", "_private_py_samples"})
DAYS = "_private_py_days"
ERRORS = frozenset({"_private_py_errors", "_private_py_error_groups", "_private_py_task_names"})
HISTORY = frozenset({"_private_py_history", "_private_py_task_names"})
PAUSES = frozenset({"_private_py_pauses", "_private_py_queue_holds"})
SCHEDULE_PAUSES = "_private_py_schedule_pauses"
TRACKS = frozenset({"_private_py_tracks"})
REQUESTS = frozenset({"_private_py_requests"})
OPERATIONS = frozenset({"_private_py_operations", "_private_py_audit"})


async def own_tables(connection: Connection, schema: SchemaName) -> frozenset[str]:
    """The names of those that this role may read."""
    rows = await connection.fetch(load("admin/own_tables", schema), schema.name)
    return frozenset(row["name"] for row in rows)


# -- outages ------------------------------------------------------------------------------------------------

_CLASSES = ("08", "57P", "53300")
"""SQLSTATEs: lost connections, a server that stops or starts, too many connections."""


def is_outage(error: BaseException) -> bool:
    """True for lost and refused connections and for timeouts of the network."""
    if isinstance(error, OSError | ConnectionFailedError) or is_dead_session(error):
        return True  # TimeoutError is an OSError
    return (sqlstate_of(error) or "").startswith(_CLASSES)

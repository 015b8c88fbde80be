"""The part of the `Connection` protocol that clients use, on top of one method that runs a statement.

Rows of other libraries have access by position and by name as in asyncpg. `is_in_transaction` and
`is_aborted` are what a driver's connection says about its transaction, without asking the server.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple

from ..connection import Transaction

BEGIN = "begin isolation level read committed"
SAVEPOINT = "savepoint graphile_worker"
RELEASE = "release savepoint graphile_worker"
ROLL_BACK_TO = "rollback to savepoint graphile_worker"


class ForeignConnection(ABC):
    """A connection of another library."""

    is_blocking = False

    @abstractmethod
    async def _run(self, sql: str, arguments: tuple[Any, ...]) -> Result:
        """Run one statement with `$1` parameters."""

    async def _run_script(self, sql: str) -> None:
        """Run one or several statements without parameters."""
        await self._run(sql, ())

    @abstractmethod
    async def _is_outside_transaction(self) -> bool:
        """Whether the next statement would be a transaction of its own."""

    async def fetch(self, query: str, *args: Any) -> list[ForeignRow]:
        return rows_of(await self._run(query, args))

    async def fetchrow(self, query: str, *args: Any) -> ForeignRow | None:
        rows = rows_of(await self._run(query, args))
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any, column: int = 0) -> Any:
        rows = (await self._run(query, args)).rows
        return rows[0][column] if rows else None

    async def execute(self, query: str, *args: Any) -> str:
        if args:
            return (await self._run(query, args)).status
        await self._run_script(query)
        return ""

    def transaction(self, *, isolation: str | None = None) -> ForeignTransaction:
        """A savepoint in the user's transaction; outside one, a READ COMMITTED transaction of our own."""
        return ForeignTransaction(self)

    def is_in_transaction(self) -> bool:
        """Always true, so that no statement is sent that takes locks or commits by itself."""
        return True

    def get_settings(self) -> Any:
        """None: the server's settings are not known."""
        return None

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts, in the way of the library."""
        if self.is_blocking:
            time.sleep(seconds)  # noqa: ASYNC251 — there is no event loop
        else:
            await asyncio.sleep(seconds)


class ForeignTransaction(Transaction):
    """`async with connection.transaction()`, in plain SQL for all libraries."""

    def __init__(self, connection: ForeignConnection) -> None:
        self._connection = connection
        self._is_own = False

    async def start(self) -> None:
        self._is_own = await self._connection._is_outside_transaction()
        await self._connection._run(BEGIN if self._is_own else SAVEPOINT, ())

    async def commit(self) -> None:
        await self._connection._run("commit" if self._is_own else RELEASE, ())

    async def rollback(self) -> None:
        if self._is_own:
            await self._connection._run("rollback", ())
        else:
            await self._connection._run(ROLL_BACK_TO, ())
            await self._connection._run(RELEASE, ())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except Exception as failure:  # the first error says why
            error.add_note(f"After it, {'rollback' if self._is_own else ROLL_BACK_TO} failed: {failure}")


def _no_names() -> Sequence[str]:
    return ()


class Result(NamedTuple):
    """What a statement returned."""

    rows: Sequence[Sequence[Any]] = ()
    names: Callable[[], Sequence[str]] = _no_names
    """Returns the names of the columns. Most statements are read by position and never need them."""
    status: str = ""
    """Such as `DELETE 2`, from libraries with which a worker writes outcomes."""


class Places:
    """Where the columns of a result are, by name."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Of two columns with one name, the first, as in asyncpg."""
        places: dict[str, int] = {}
        for place, name in enumerate(self._names()):
            places.setdefault(name, place)
        return places


class ForeignRow:
    """One row of a result."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: Sequence[Any], places: Places) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, key: Any, /) -> Any:
        return self._values[self._places.by_name[key] if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def get(self, key: str, default: Any = None, /) -> Any:
        place = self._places.by_name.get(key)
        return default if place is None else self._values[place]

    def keys(self) -> Iterable[str]:
        return self._places.by_name.keys()

    def values(self) -> Iterable[Any]:
        return iter(self._values)

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((name, self._values[place]) for name, place in self._places.by_name.items())

    def __repr__(self) -> str:
        return f"ForeignRow({dict(self.items())!r})"


def rows_of(result: Result) -> list[ForeignRow]:
    """The rows of a result."""
    places = Places(result.names)
    return [ForeignRow(values, places) for values in result.rows]


_IDLE = 0  # libpq's PQTRANS_IDLE
_ABORTED = 3  # libpq's PQTRANS_INERROR


def is_in_transaction(connection: Any) -> bool:
    """Whether a transaction is open on this connection of asyncpg, psycopg or psycopg2."""
    if hasattr(connection, "is_in_transaction"):
        return bool(connection.is_in_transaction())
    return int(connection.info.transaction_status) != _IDLE


def is_aborted(connection: Any) -> bool:
    """Whether a statement has failed in the transaction of this connection of psycopg or psycopg2."""
    return int(connection.info.transaction_status) == _ABORTED

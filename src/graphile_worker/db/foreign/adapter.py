"""The part of the `Connection` protocol that clients use, on top of one method that runs a statement."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

from .rows import ForeignRow, Result, rows_of

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

    @abstractmethod
    async def _run_script(self, sql: str) -> None:
        """Run one or several statements without parameters."""

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


class ForeignTransaction:
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

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except Exception as failure:  # the first error says why
            error.add_note(f"After it, {'rollback' if self._is_own else ROLL_BACK_TO} failed: {failure}")

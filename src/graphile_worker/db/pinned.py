"""PinnedConnection: for servers behind a pooler in transaction mode, as PgBouncer is often run.

Without prepared statements the driver still sends a statement with parameters in two round trips, and such a
pooler may hand each of them to another server connection. Inside a transaction it must not, so every
statement that has none gets one. A plain `execute` without parameters takes one round trip and is left alone.
"""

from __future__ import annotations

from typing import Any

import asyncpg


class PinnedConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection whose every statement stays on one server connection."""

    __slots__ = ()

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if not args or self.is_in_transaction():
            return await super().execute(query, *args, timeout=timeout)  # type: ignore[no-any-return]
        async with self.transaction():
            return await super().execute(query, *args, timeout=timeout)  # type: ignore[no-any-return]

    async def executemany(self, *args: Any, **options: Any) -> Any:
        return await self._pinned(super().executemany, args, options)

    async def fetch(self, *args: Any, **options: Any) -> Any:
        return await self._pinned(super().fetch, args, options)

    async def fetchrow(self, *args: Any, **options: Any) -> Any:
        return await self._pinned(super().fetchrow, args, options)

    async def fetchval(self, *args: Any, **options: Any) -> Any:
        return await self._pinned(super().fetchval, args, options)

    async def fetchmany(self, *args: Any, **options: Any) -> Any:
        return await self._pinned(super().fetchmany, args, options)

    async def _pinned(self, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.is_in_transaction():
            return await method(*args, **options)
        async with self.transaction():
            return await method(*args, **options)

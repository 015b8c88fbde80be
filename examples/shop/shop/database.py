"""The database of the shop: one engine for each process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from .models import Base


class Database:
    """Opens sessions. It connects when the first one needs it."""

    def __init__(self, url: str) -> None:
        self._engine = create_async_engine(url)
        self._sessions = async_sessionmaker(self._engine, expire_on_commit=False)

    def transaction(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A session with one transaction: committed at the end of `async with`, rolled back if it raises."""
        return self._sessions.begin()

    async def create_tables(self) -> None:
        """Create missing tables. A real shop would use migrations."""
        async with self._engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)

    async def close(self) -> None:
        await self._engine.dispose()

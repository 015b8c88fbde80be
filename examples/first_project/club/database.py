"""The table of members. `python -m club.database` creates it, and the schema of the queue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from graphile_worker import run_migrations


class Base(DeclarativeBase):
    pass


class Member(Base):
    __tablename__ = "members"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)


class Database:
    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.transaction = async_sessionmaker(engine, expire_on_commit=False).begin


@asynccontextmanager
async def open_database() -> AsyncIterator[Database]:
    address = os.environ["DATABASE_URL"].partition("://")[2]
    engine = create_async_engine(f"postgresql+asyncpg://{address}")
    try:
        yield Database(engine)
    finally:
        await engine.dispose()


async def create_tables() -> None:
    """Create what is missing. A larger project would use Alembic."""
    await run_migrations()
    async with open_database() as database, database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)


if __name__ == "__main__":
    asyncio.run(create_tables())
    print("The tables are there.")

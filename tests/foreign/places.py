"""Connections and sessions of every library that the client accepts, each with the user's side of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg
import psycopg
import psycopg2
import sqlalchemy
import sqlmodel
import sqlmodel.ext.asyncio.session
from psycopg.rows import dict_row
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from graphile_worker import SyncWorkerUtils, WorkerUtils

T = TypeVar("T")
Run = Callable[[str], Awaitable[Any]]
Savepoint = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Place:
    """One connection or session, on which no statement has been run."""

    given: Any
    execute: Run
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]
    savepoint: Savepoint
    is_blocking: bool = False

    def utils(self, schema: str = "graphile_worker") -> Any:
        """A client for it alone."""
        kind: Any = SyncWorkerUtils if self.is_blocking else WorkerUtils
        return kind.bound(self.given, schema=schema)

    async def do(self, call: Any) -> Any:
        """The result of a method of `utils`, which the blocking client has returned already."""
        return call if self.is_blocking else await call


def url_of(url: str, driver: str) -> sqlalchemy.URL:
    """The URL as SQLAlchemy takes it; a socket's folder is a parameter in both."""
    return make_url(url.replace("postgres://", "postgresql://")).set(drivername=f"postgresql+{driver}")


# -- asynchronous ------------------------------------------------------------------------------------------


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Place]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield Place(
            connection, connection.execute, transaction.commit, transaction.rollback, connection.transaction
        )
    finally:
        await connection.close(timeout=60)


@asynccontextmanager
async def async_psycopg(url: str) -> AsyncIterator[Place]:
    connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)
    async with connection:
        yield Place(
            connection, connection.execute, connection.commit, connection.rollback, connection.transaction
        )


@asynccontextmanager
async def async_connection(url: str, driver: str, **options: Any) -> AsyncIterator[Place]:
    engine = create_async_engine(url_of(url, driver), poolclass=NullPool, **options)
    async with engine.connect() as connection:
        yield Place(
            connection,
            connection.exec_driver_sql,
            connection.commit,
            connection.rollback,
            connection.begin_nested,
        )
    await engine.dispose()


@asynccontextmanager
async def async_session(
    url: str, driver: str, kind: type[Any] = AsyncSession, **options: Any
) -> AsyncIterator[Place]:
    engine = create_async_engine(url_of(url, driver), poolclass=NullPool, **options)
    async with kind(engine) as session:
        yield _async_session(session)
    await engine.dispose()


@asynccontextmanager
async def async_scoped(url: str, driver: str) -> AsyncIterator[Place]:
    engine = create_async_engine(url_of(url, driver), poolclass=NullPool)
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    yield _async_session(session)
    await session.remove()
    await engine.dispose()


def _async_session(session: Any) -> Place:
    async def execute(sql: str) -> Any:
        return await (await session.connection()).exec_driver_sql(sql)

    return Place(session, execute, session.commit, session.rollback, session.begin_nested)


# -- blocking ----------------------------------------------------------------------------------------------


def _awaitable(function: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    async def call(*arguments: Any) -> T:
        return function(*arguments)

    return call


def _blocking(given: Any, execute: Callable[..., Any], savepoint: Callable[[], Any]) -> Place:
    @asynccontextmanager
    async def nested() -> AsyncIterator[None]:
        with savepoint():
            yield

    return Place(
        given, _awaitable(execute), _awaitable(given.commit), _awaitable(given.rollback), nested, True
    )


@asynccontextmanager
async def blocking_psycopg(url: str) -> AsyncIterator[Place]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield _blocking(connection, connection.execute, connection.transaction)


@asynccontextmanager
async def blocking_psycopg2(url: str) -> AsyncIterator[Place]:
    connection = psycopg2.connect(url)

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def savepoint() -> Iterator[None]:
        execute("savepoint mine")
        try:
            yield
        except BaseException:
            execute("rollback to savepoint mine")
            raise
        execute("release savepoint mine")

    yield _blocking(connection, execute, savepoint)
    connection.close()


@asynccontextmanager
async def blocking_connection(url: str, driver: str, **options: Any) -> AsyncIterator[Place]:
    engine = sqlalchemy.create_engine(url_of(url, driver), poolclass=NullPool, **options)
    with engine.connect() as connection:
        yield _blocking(connection, connection.exec_driver_sql, connection.begin_nested)
    engine.dispose()


@asynccontextmanager
async def blocking_session(url: str, driver: str, kind: type[Any] = Session) -> AsyncIterator[Place]:
    engine = sqlalchemy.create_engine(url_of(url, driver), poolclass=NullPool)
    with kind(engine) as session:
        yield _blocking(session, lambda sql: session.connection().exec_driver_sql(sql), session.begin_nested)
    engine.dispose()


@asynccontextmanager
async def blocking_scoped(url: str, driver: str) -> AsyncIterator[Place]:
    engine = sqlalchemy.create_engine(url_of(url, driver), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    yield _blocking(session, lambda sql: session.connection().exec_driver_sql(sql), session.begin_nested)
    session.remove()
    engine.dispose()


# -- all of them -------------------------------------------------------------------------------------------

MODEL_SESSION = sqlmodel.ext.asyncio.session.AsyncSession
Open = Callable[[str], AbstractAsyncContextManager[Place]]


def _with(opener: Callable[..., Any], driver: str, *more: Any) -> Open:
    return lambda url: opener(url, driver, *more)


ASYNC_PLACES: dict[str, Open] = {
    "asyncpg": asyncpg_connection,
    "psycopg": async_psycopg,
    **{
        f"{name} on {driver}": _with(opener, driver, *more)
        for driver in ("asyncpg", "psycopg")
        for name, opener, *more in (
            ("AsyncConnection", async_connection),
            ("AsyncSession", async_session),
            ("AsyncSession of SQLModel", async_session, MODEL_SESSION),
            ("async_scoped_session", async_scoped),
        )
    },
}
BLOCKING_PLACES: dict[str, Open] = {
    "blocking psycopg": blocking_psycopg,
    "psycopg2": blocking_psycopg2,
    **{
        f"{name} on {driver}": _with(opener, driver, *more)
        for driver in ("psycopg", "psycopg2")
        for name, opener, *more in (
            ("Connection", blocking_connection),
            ("Session", blocking_session),
            ("Session of SQLModel", blocking_session, sqlmodel.Session),
            ("scoped_session", blocking_scoped),
        )
    },
}
PLACES = ASYNC_PLACES | BLOCKING_PLACES
EACH_ADAPTER = (
    "asyncpg",
    "psycopg",
    "AsyncConnection on asyncpg",
    "AsyncSession on psycopg",
    "async_scoped_session on asyncpg",
    "blocking psycopg",
    "psycopg2",
    "Connection on psycopg2",
    "scoped_session on psycopg",
)
"""Every adapter with every driver; the other combinations differ only in how their transactions are begun."""

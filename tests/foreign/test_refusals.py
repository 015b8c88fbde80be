"""Everything that is no connection is refused with one sentence that says what to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from foreign.places import ASYNC_PLACES, url_of
from graphile_worker import SyncWorkerUtils, WorkerUtils, make_worker_utils
from graphile_worker.database.connections.bound import run_blocking
from graphile_worker.database.connections.foreign import as_blocking_connection
from graphile_worker.errors import InvalidArgumentError

SYNC = "use SyncWorkerUtils.bound(connection), or give"
ASYNC = "use WorkerUtils.bound(connection) and await its methods"
SESSION = "in which your transaction is open"

Make = Callable[[str, ExitStack], Any]


def _engine(url: str, stack: ExitStack) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(url_of(url, "psycopg"), poolclass=NullPool)


def _async_engine(url: str, stack: ExitStack) -> Any:
    return create_async_engine(url_of(url, "asyncpg"), poolclass=NullPool)


def _raw(url: str, stack: ExitStack) -> Any:
    return stack.enter_context(_engine(url, stack).connect()).connection


def _psycopg2(url: str, stack: ExitStack) -> Any:
    connection = psycopg2.connect(url)
    stack.callback(connection.close)
    return connection


def _closed(coroutine: Any, stack: ExitStack) -> Any:
    stack.callback(coroutine.close)
    return coroutine


def _pool_of_psycopg2(url: str, stack: ExitStack) -> Any:
    pool = psycopg2.pool.SimpleConnectionPool(0, 1, url)
    stack.callback(pool.closeall)
    return pool


async def _nothing() -> None: ...


REFUSED: dict[str, tuple[Make, str]] = {
    "Engine": (_engine, f"is an Engine; give an AsyncSession or AsyncConnection {SESSION}"),
    "AsyncEngine": (_async_engine, f"is an AsyncEngine; give an AsyncSession or AsyncConnection {SESSION}"),
    "sessionmaker": (lambda url, stack: sessionmaker(), "is a session maker; call it"),
    "async_sessionmaker": (lambda url, stack: async_sessionmaker(), "is a session maker; call it"),
    "engine.begin()": (
        lambda url, stack: _async_engine(url, stack).begin(),
        "is a context manager; enter it",
    ),
    "session.begin()": (
        lambda url, stack: AsyncSession(_async_engine(url, stack)).begin(),
        "is a transaction; give the session or connection",
    ),
    "raw": (_raw, "is a raw connection taken out of SQLAlchemy"),
    "asyncpg.Pool": (lambda url, stack: asyncpg.create_pool(url), "is a pool; give a connection from it"),
    "psycopg2.pool": (_pool_of_psycopg2, "is a pool; give a connection from it"),
    "cursor": (lambda url, stack: _psycopg2(url, stack).cursor(), "is a cursor; give its connection"),
    "coroutine": (lambda url, stack: _closed(_nothing(), stack), "was not awaited"),
    "text": (lambda url, stack: "postgres://u:s3cret@h/d", "is text; a connection string goes to"),
    "number": (lambda url, stack: 0, "expected a connection of asyncpg or psycopg, or an AsyncSession or "),
    "a class": (lambda url, stack: AsyncSession, "is the class AsyncSession; give an object of it"),
    "psycopg.Connection": (
        lambda url, stack: stack.enter_context(psycopg.connect(url)),
        f"is a blocking connection of psycopg; {SYNC} a psycopg.AsyncConnection here",
    ),
    "psycopg2": (
        _psycopg2,
        f"is a blocking connection of psycopg2; {SYNC} a connection of asyncpg or psycopg here",
    ),
    "Session": (
        lambda url, stack: Session(_engine(url, stack)),
        f"is a blocking Session of SQLAlchemy; {SYNC} an AsyncSession here",
    ),
    "scoped_session": (
        lambda url, stack: scoped_session(sessionmaker()),
        f"is a blocking scoped_session of SQLAlchemy; {SYNC} an async_scoped_session here",
    ),
    "Connection": (
        lambda url, stack: stack.enter_context(_engine(url, stack).connect()),
        f"is a blocking Connection of SQLAlchemy; {SYNC} an AsyncConnection here",
    ),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_connection_is_refused(name: str, shared_url: str, stack: ExitStack) -> None:
    make, sentence = REFUSED[name]
    given = make(shared_url, stack)
    async with make_worker_utils(connection_string=shared_url) as utils:
        with pytest.raises(InvalidArgumentError) as caught:
            await utils.add_job("never", connection=given)
        assert str(caught.value).startswith(f"connection: {sentence}")
        assert "s3cret" not in str(caught.value)
        with pytest.raises(InvalidArgumentError):
            await utils.statistics.jobs(connection=given)
    with pytest.raises(InvalidArgumentError):
        WorkerUtils.bound(given)


async def test_none_cannot_be_bound() -> None:
    with pytest.raises(InvalidArgumentError, match="connection: is None; give a connection of asyncpg or"):
        WorkerUtils.bound(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ASYNC_PLACES)
async def test_blocking_code_gets_no_asynchronous_connection(name: str, shared_url: str) -> None:
    async with ASYNC_PLACES[name](shared_url) as place:
        with pytest.raises(InvalidArgumentError) as caught:
            SyncWorkerUtils.bound(place.given)
    assert str(caught.value).endswith(ASYNC)


def test_blocking_code_is_told_what_to_give(shared_url: str, stack: ExitStack) -> None:
    for given, sentence in (
        (_engine(shared_url, stack), "is an Engine; give a Session or Connection in which"),
        (None, "is None; give a connection of psycopg, psycopg2 or Django"),
        (object(), "expected a connection of psycopg, psycopg2 or Django, or a Session or Connection of"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            as_blocking_connection(given)
        assert sentence in str(caught.value)


def test_the_asynchronous_mode_of_psycopg2_is_refused(shared_url: str) -> None:
    connection = psycopg2.connect(shared_url, async_=1)
    with pytest.raises(InvalidArgumentError, match="asynchronous mode of psycopg2; open it without async_"):
        as_blocking_connection(connection)
    connection.close()


def test_other_databases_are_refused() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(InvalidArgumentError, match="the driver pysqlite; give"),
    ):
        run_blocking(as_blocking_connection(connection).fetchval("select 1"))
    engine.dispose()

"""Which library an object comes from, by the names of its classes; and what to say about everything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ....errors import InvalidArgumentError
from ..connection import Connection
from ..single import is_connection


class _Kind(NamedTuple):
    """A kind of connection that can be adapted."""

    name: str
    is_blocking: bool
    adapt: Callable[[Any], object]
    instead: str = ""
    """What asynchronous code would use in place of a blocking one."""


def adapted(given: object, *, blocking: bool) -> Connection:
    """The adapter for this object, or InvalidArgumentError."""
    cls: Any = type(given)
    kind = kind_of(cls)
    if kind is not None and kind.is_blocking is blocking:
        return cast(Connection, kind.adapt(given))
    if kind is None and not blocking and _is_protocol(given):
        return cast(Connection, given)
    problem = _problem(given, blocking) if kind is None else _wrong_client(kind)
    raise InvalidArgumentError("connection", problem)


# -- adapters: imported when one is needed -------------------------------------------------------------------


def _async_psycopg(given: Any) -> object:
    from .psycopg_connections import AsyncPsycopgConnection

    return AsyncPsycopgConnection(given)


def _psycopg(given: Any) -> object:
    from .psycopg_connections import PsycopgConnection

    return PsycopgConnection(given)


def _psycopg2(given: Any) -> object:
    from .psycopg_connections import Psycopg2Connection

    return Psycopg2Connection(given)


def _async_sqlalchemy(given: Any) -> object:
    from .sqlalchemy_connections import AsyncSqlAlchemyConnection

    return AsyncSqlAlchemyConnection(lambda: given)


def _async_scoped(given: Any) -> object:
    from .sqlalchemy_connections import AsyncSqlAlchemyConnection

    return AsyncSqlAlchemyConnection(given)  # called, it returns the session of the current scope


def _sqlalchemy(given: Any) -> object:
    from .sqlalchemy_connections import SqlAlchemyConnection

    return SqlAlchemyConnection(lambda: given)


def _scoped(given: Any) -> object:
    from .sqlalchemy_connections import SqlAlchemyConnection

    return SqlAlchemyConnection(given)


def _django(given: Any) -> object:
    from .django_connections import DjangoConnection

    return DjangoConnection(given)


_KINDS = {
    ("psycopg", "AsyncConnection"): _Kind("an AsyncConnection of psycopg", False, _async_psycopg),
    ("psycopg", "Connection"): _Kind(
        "a blocking connection of psycopg", True, _psycopg, "a psycopg.AsyncConnection"
    ),
    ("psycopg2", "connection"): _Kind(
        "a blocking connection of psycopg2", True, _psycopg2, "a connection of asyncpg or psycopg"
    ),
    ("sqlalchemy", "AsyncConnection"): _Kind("an AsyncConnection of SQLAlchemy", False, _async_sqlalchemy),
    ("sqlalchemy", "AsyncSession"): _Kind("an AsyncSession of SQLAlchemy", False, _async_sqlalchemy),
    ("sqlalchemy", "async_scoped_session"): _Kind(
        "an async_scoped_session of SQLAlchemy", False, _async_scoped
    ),
    ("sqlalchemy", "Connection"): _Kind(
        "a blocking Connection of SQLAlchemy", True, _sqlalchemy, "an AsyncConnection"
    ),
    ("sqlalchemy", "Session"): _Kind(
        "a blocking Session of SQLAlchemy", True, _sqlalchemy, "an AsyncSession"
    ),
    ("sqlalchemy", "scoped_session"): _Kind(
        "a blocking scoped_session of SQLAlchemy", True, _scoped, "an async_scoped_session"
    ),
    ("django", "BaseDatabaseWrapper"): _Kind(
        "a blocking connection of Django", True, _django, "a connection of asyncpg or psycopg"
    ),
    ("django", "ConnectionProxy"): _Kind(
        "a blocking connection of Django", True, _django, "a connection of asyncpg or psycopg"
    ),
}
"""By top-level package and class."""


# -- what to say about the rest ------------------------------------------------------------------------------

_USE_ASYNC = "use WorkerUtils.bound(connection) and await its methods"
_POOL = "is a pool; give a connection from it"
_CURSOR = "is a cursor; give its connection"
_TRANSACTION = "is a transaction; give the session or connection that it belongs to"
_MAKER = "is a session maker; call it and give the session"
_RAW = (
    "is a raw connection taken out of SQLAlchemy, which may not have begun your transaction yet; give the "
    "session or connection of SQLAlchemy itself"
)
_NOT_CONNECTIONS = {
    ("asyncpg", "Pool"): _POOL,
    ("psycopg", "BaseCursor"): _CURSOR,
    ("psycopg_pool", "BasePool"): _POOL,
    ("psycopg2", "AbstractConnectionPool"): _POOL,
    ("psycopg2", "cursor"): _CURSOR,
    ("sqlalchemy", "AsyncAdapt_dbapi_connection"): _RAW,
    ("sqlalchemy", "AsyncSessionTransaction"): _TRANSACTION,
    ("sqlalchemy", "AsyncTransaction"): _TRANSACTION,
    ("sqlalchemy", "PoolProxiedConnection"): _RAW,
    ("sqlalchemy", "SessionTransaction"): _TRANSACTION,
    ("sqlalchemy", "Transaction"): _TRANSACTION,
    ("sqlalchemy", "async_sessionmaker"): _MAKER,
    ("sqlalchemy", "sessionmaker"): _MAKER,
}
_ENGINES = (("sqlalchemy", "AsyncEngine"), ("sqlalchemy", "Engine"))


def _names(cls: type) -> list[tuple[str, str]]:
    return [(base.__module__.partition(".")[0], base.__name__) for base in cls.__mro__]


@lru_cache(maxsize=64)
def kind_of(cls: Any) -> _Kind | None:
    """What kind of connection objects of this class are; None for anything else."""
    return next((_KINDS[name] for name in _names(cls) if name in _KINDS), None)


def _is_protocol(given: object) -> bool:
    """Whether it has asyncpg's methods, as wrappers of its connections have; pools have no transaction."""
    return all(callable(getattr(given, name, None)) for name in ("fetchrow", "is_in_transaction"))


def _wrong_client(kind: _Kind) -> str:
    if kind.is_blocking:
        return f"is {kind.name}; use SyncWorkerUtils.bound(connection), or give {kind.instead} here"
    return f"is {kind.name}; {_USE_ASYNC}"


def _problem(given: object, blocking: bool) -> str:
    """One sentence: what it is, and what to give instead."""
    if given is None:
        return f"is None; give {_wanted(blocking)}"
    if isinstance(given, str | bytes):  # not quoted: it may hold a password
        return "is text; a connection string goes to the option connection_string of make_worker_utils"
    if isinstance(given, type):
        return f"is the class {given.__name__}; give an object of it"
    if blocking and is_connection(given):
        return f"is a connection of asyncpg; {_USE_ASYNC}"
    names = _names(type(given))
    for name in names:
        if name in _ENGINES:
            session = "a Session or Connection" if blocking else "an AsyncSession or AsyncConnection"
            return f"is an {name[1]}; give {session} in which your transaction is open"
        if name in _NOT_CONNECTIONS:
            return _NOT_CONNECTIONS[name]
    if inspect.isawaitable(given):
        return "was not awaited; give the result of the await"
    if hasattr(given, "__aenter__") or hasattr(given, "__enter__"):
        return "is a context manager; enter it with a with statement and give what that returns"
    kind = type(given)
    return f"expected {_wanted(blocking)}; got {kind.__module__}.{kind.__qualname__}"


def _wanted(blocking: bool) -> str:
    if blocking:
        return "a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy"
    return "a connection of asyncpg or psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy"

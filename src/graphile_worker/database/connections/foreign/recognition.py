"""Which library an object comes from, by the names of its classes; and what to say about everything else."""

from __future__ import annotations

import inspect
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from ....errors import InvalidArgumentError
from ..connection import Connection
from ..single import is_connection


class _Kind(NamedTuple):
    """A kind of connection that can be adapted."""

    name: str
    is_blocking: bool
    adapter: str
    """Its class; the module is imported when one is needed."""
    instead: str = "a connection of asyncpg or psycopg"
    """What asynchronous code would use in place of a blocking one."""


def adapted(given: object, *, blocking: bool) -> Connection:
    """The adapter for this object, or InvalidArgumentError."""
    cls: Any = type(given)
    kind = kind_of(cls)
    if kind is not None and kind.is_blocking is blocking:
        library, _, adapter = kind.adapter.partition(".")
        module = import_module(f".{library}_connections", __package__)
        return cast(Connection, getattr(module, adapter)(given))
    if kind is None and not blocking and _is_protocol(given):
        return cast(Connection, given)
    problem = _problem(given, blocking) if kind is None else _wrong_client(kind)
    raise InvalidArgumentError("connection", problem)


_DJANGO = _Kind("a blocking connection of Django", True, "django.DjangoConnection")
_KINDS = {
    ("psycopg", "AsyncConnection"): _Kind(
        "an AsyncConnection of psycopg", False, "psycopg.AsyncPsycopgConnection"
    ),
    ("psycopg", "Connection"): _Kind(
        "a blocking connection of psycopg", True, "psycopg.PsycopgConnection", "a psycopg.AsyncConnection"
    ),
    ("psycopg2", "connection"): _Kind(
        "a blocking connection of psycopg2", True, "psycopg.Psycopg2Connection"
    ),
    ("sqlalchemy", "AsyncConnection"): _Kind(
        "an AsyncConnection of SQLAlchemy", False, "sqlalchemy.AsyncSqlAlchemyConnection"
    ),
    ("sqlalchemy", "AsyncSession"): _Kind(
        "an AsyncSession of SQLAlchemy", False, "sqlalchemy.AsyncSqlAlchemyConnection"
    ),
    ("sqlalchemy", "async_scoped_session"): _Kind(
        "an async_scoped_session of SQLAlchemy", False, "sqlalchemy.AsyncSqlAlchemyConnection"
    ),
    ("sqlalchemy", "Connection"): _Kind(
        "a blocking Connection of SQLAlchemy", True, "sqlalchemy.SqlAlchemyConnection", "an AsyncConnection"
    ),
    ("sqlalchemy", "Session"): _Kind(
        "a blocking Session of SQLAlchemy", True, "sqlalchemy.SqlAlchemyConnection", "an AsyncSession"
    ),
    ("sqlalchemy", "scoped_session"): _Kind(
        "a blocking scoped_session of SQLAlchemy",
        True,
        "sqlalchemy.SqlAlchemyConnection",
        "an async_scoped_session",
    ),
    ("django", "BaseDatabaseWrapper"): _DJANGO,
    ("django", "ConnectionProxy"): _DJANGO,
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

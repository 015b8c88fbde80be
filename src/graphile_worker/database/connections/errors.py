"""Translates errors of the driver into ours where the user can act on them; others pass unchanged.

`if_readable` reads tables that may be missing, or that the role may not read; `refusals` explains why they
cannot be changed.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import asyncpg

from ...errors import (
    ConnectionConfigError,
    ConnectionFailedError,
    DatabaseError,
    GraphileWorkerError,
    JobNotAddedError,
    PermissionDeniedError,
    SchemaMissingError,
)
from ...values.schema_name import DEFAULT_SCHEMA, SchemaName
from . import sqlstates
from .connection import Connection, savepoint
from .dsn import UNREADABLE_URL, Dsn

_LOST_SESSION = (
    sqlstates.CONNECTION_EXCEPTION,
    sqlstates.CONNECTION_DOES_NOT_EXIST,
    sqlstates.CONNECTION_FAILURE,
    sqlstates.ADMIN_SHUTDOWN,
    sqlstates.CRASH_SHUTDOWN,
)
_LOST = (
    "the connection to {where} was lost: {error}; what was sent last may or may not have happened, "
    "so check before doing it again, or give jobs a job_key, with which adding twice does no harm"
)
_REFUSED = "{where} refused the login: {error}; check the user and the password"
_CONNECTING = dict.fromkeys(_LOST_SESSION, (_LOST, True)) | {
    sqlstates.INVALID_PASSWORD: (_REFUSED, False),
    sqlstates.INVALID_AUTHORIZATION_SPECIFICATION: (_REFUSED, False),
    sqlstates.INVALID_CATALOG_NAME: (
        "{where} has no such database: {error}; create it first, for example with createdb",
        False,
    ),
    sqlstates.TOO_MANY_CONNECTIONS: (
        "{where} has no connection left: {error}; lower max_pool_size or raise the server's max_connections",
        False,
    ),
    sqlstates.CANNOT_CONNECT_NOW: ("{where} is not ready for connections: {error}", True),
}
"""What to say about errors of connecting, and whether the server is away."""
_MISSING = (
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_FUNCTION,
    sqlstates.UNDEFINED_OBJECT,
)

_OF_THE_USER = "_graphile_worker_is_of_the_user"
"""The attribute that `mark_as_users` sets."""

_TLS_REFUSED = "rejected SSL upgrade"
"""What the driver says if the server answers that it has no TLS."""

SESSION_ATTRIBUTES = "any, primary, standby, prefer-standby, read-write, read-only"


@contextmanager
def translate_errors(schema: SchemaName | None = None) -> Iterator[None]:
    """For statements: raise our error, with advice, in place of the driver's, if there is one."""
    try:
        yield
    except GraphileWorkerError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        translated = translated_error(error, schema=schema)
        if translated is None:
            raise
        raise translated from error


@contextmanager
def translate_connect_errors(dsn: Dsn) -> Iterator[None]:
    """For opening a connection: the same, with the server's address in the message."""
    try:
        yield
    except GraphileWorkerError:
        raise
    except asyncpg.ClientConfigurationError as error:
        # No cause: a traceback would show its text, which may quote secrets.
        raise ConnectionConfigError(f"connection_string: {dsn.scrub(_legible(str(error)))}") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
        translated = translated_error(error, target=dsn.target)
        message = str(translated or error)
        scrubbed = dsn.scrub(message)
        if scrubbed != message:
            is_away = isinstance(translated, ConnectionFailedError) and translated.is_away
            raise ConnectionFailedError(scrubbed, sqlstate=sqlstate_of(error), is_away=is_away) from None
        if translated is None:
            raise
        raise translated from error
    except (ValueError, OverflowError):  # after OSError: an untrusted certificate is both
        # Its text may quote a part of the string, and so a password.
        raise ConnectionConfigError(UNREADABLE_URL) from None


def _legible(message: str) -> str:
    """List the allowed values, where the driver shows the repr of a Python object."""
    return re.sub(r"is expected to be one of <.*>, got", f"must be one of {SESSION_ATTRIBUTES}; got", message)


def translated_error(
    error: BaseException, *, schema: SchemaName | None = None, target: str | None = None
) -> DatabaseError | None:
    """Our error for a driver error; None if we have no better message."""
    where = "the database server" if target is None else f"the database server at {target}"
    if isinstance(error, asyncpg.PostgresError):
        return _from_connecting(error, where) or _from_statement(error, schema)
    if is_dead_session(error):
        return ConnectionFailedError(
            f"the connection to {where} was closed from the other side before; nothing was sent, try again"
        )
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return ConnectionFailedError(
            f"{where} is not what target_session_attrs asks for; is a standby still to be promoted?"
        )
    if isinstance(error, TimeoutError):
        return ConnectionFailedError(
            f"{where} did not answer in time; is the address right and the server up?", is_away=True
        )
    if isinstance(error, socket.gaierror):
        return ConnectionFailedError(
            f"{where} cannot be found: {error.strerror}; is the host name right?", is_away=True
        )
    if isinstance(error, ssl.SSLError):
        return ConnectionFailedError(
            f"TLS with {where} failed: {error.strerror or error}; for a certificate of your own authority "
            "give sslmode=verify-full and sslrootcert=FILE"
        )
    if isinstance(error, ConnectionError) and _TLS_REFUSED in str(error):
        return ConnectionFailedError(
            f"{where} does not accept TLS, which the connection asks for; turn on `ssl` in the server, or "
            "take sslmode or ssl out of the connection string (and PGSSLMODE out of the environment): "
            "sslmode=prefer uses TLS only where the server has it"
        )
    if isinstance(error, OSError):
        return ConnectionFailedError(
            f"{where} cannot be reached: {error.strerror or error}; "
            "is it running, and are host and port right?",
            is_away=True,
        )
    # Another library's: what it says about its connection is its own matter.
    return None if isinstance(error, GraphileWorkerError) else _from_statement(error, schema)


def explained(error: BaseException, schema: SchemaName | None = None) -> str:
    """What a worker says about an error in its log: with advice where we have some, and never nothing."""
    if is_dead_session(error):
        return "the connection to the database server was closed from the other side"
    if sqlstate_of(error) in _LOST_SESSION:  # what to check before doing it again is for clients
        return f"the connection to the database server was lost: {error.__cause__ or error}"
    if isinstance(error, ConnectionError) and error.errno is None and str(error):  # our own words
        return str(error)
    return str(translated_error(error, schema=schema) or error) or type(error).__name__


def is_schema_missing(error: BaseException) -> bool:
    """Whether the schema or one of its tables is missing."""
    return sqlstate_of(error) in (sqlstates.INVALID_SCHEMA_NAME, sqlstates.UNDEFINED_TABLE)


def is_dead_session(error: BaseException) -> bool:
    """Whether the driver did not send a statement because the server had closed the session."""
    if isinstance(error, asyncpg.InternalClientError):  # the server's error arrived, EOF not yet
        return "cannot switch to state" in str(error)
    return isinstance(error, asyncpg.InterfaceError) and "connection is closed" in str(error)


def is_surely_undone(error: BaseException) -> bool:
    """Whether a statement that failed with this error has certainly not taken effect.

    Errors about the session, and a lost connection, may come after the commit.
    """
    state = sqlstate_of(error)
    return is_dead_session(error) or (state is not None and not state.startswith(("08", "57")))


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error, ours or that of any library, if it has one."""
    if getattr(error, _OF_THE_USER, False):
        return None
    for name in ("sqlstate", "pgcode"):  # asyncpg, psycopg and ours; psycopg2
        code = getattr(error, name, None)
        if isinstance(code, str):
            return code
    inner = _wrapped_error(error)
    return None if inner is None else sqlstate_of(inner)


def server_message(error: BaseException) -> str:
    """What the server said, without the statement and its values, which some libraries append."""
    inner = _wrapped_error(error)
    if inner is not None:
        return server_message(inner)
    diag = getattr(error, "diag", None)  # psycopg and psycopg2
    primary = getattr(diag, "message_primary", None)
    if primary is None:
        return str(error)
    detail = getattr(diag, "message_detail", None)
    return f"{primary}\nDETAIL:  {detail}" if detail else str(primary)


def mark_as_users(error: BaseException) -> None:
    """Say that a statement of the user's failed, not one of ours; it is never translated."""
    setattr(error, _OF_THE_USER, True)


def _wrapped_error(error: BaseException) -> BaseException | None:
    """The driver's error inside one of SQLAlchemy or Django."""
    inner = getattr(error, "orig", None)
    if isinstance(inner, BaseException):
        # SQLAlchemy wraps an error of asyncpg twice; the outer one is its own imitation of a DBAPI error.
        return inner.__cause__ if isinstance(inner.__cause__, asyncpg.PostgresError) else inner
    if any(cls.__module__ == "django.db.utils" for cls in type(error).__mro__):
        return error.__cause__
    return None


def _from_connecting(error: asyncpg.PostgresError, where: str) -> DatabaseError | None:
    """For errors about the connection."""
    found = _CONNECTING.get(error.sqlstate)
    if found is None:
        return None
    advice, is_away = found
    return ConnectionFailedError(
        advice.format(where=where, error=error), sqlstate=error.sqlstate, is_away=is_away
    )


def _from_statement(error: BaseException, schema: SchemaName | None) -> DatabaseError | None:
    """For errors about what a statement asked for, of any library."""
    code = sqlstate_of(error)
    if code == sqlstates.ADD_WITHOUT_ROW:
        return JobNotAddedError(
            "a worker took the job with the same key at this moment, so nothing was added; "
            "run the transaction again",
            sqlstate=code,
        )
    if code in _MISSING and schema is not None:
        return SchemaMissingError(_missing_schema_message(schema, error), sqlstate=code)
    if code == sqlstates.INSUFFICIENT_PRIVILEGE:
        return PermissionDeniedError(_denied_message(schema, error), sqlstate=code)
    return None


def _missing_schema_message(schema: SchemaName, error: BaseException) -> str:
    option = "" if schema.name == DEFAULT_SCHEMA else f" --schema {schema.quoted}"
    return (
        f"the schema {schema.quoted} of Graphile Worker is not installed in this database, or not completely "
        f"({server_message(error)}); install it with `graphile-worker migrate{option}` (or "
        f"`graphile-worker{option} --schema-only`), or in Python with `utils.migrate()`"
    )


def _denied_message(schema: SchemaName | None, error: BaseException) -> str:
    of_schema = "" if schema is None else f" of the schema {schema.quoted}"
    return (
        f"the connected role may not do this: {server_message(error)}; use the role that owns the "
        f"tables{of_schema}, or call a SECURITY DEFINER function made by that role"
    )


T = TypeVar("T")

UNREADABLE = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.UNDEFINED_FUNCTION,
)


async def if_readable(connection: Connection, read: Callable[[], Awaitable[T]]) -> T | None:
    """What a statement finds; None where its table is missing or may not be read."""
    try:
        async with savepoint(connection):
            return await read()
    except Exception as error:
        if sqlstate_of(error) not in UNREADABLE:
            raise
        return None


@contextmanager
def refusals(missing: str, denied: str) -> Iterator[None]:
    """Say what to do if tables or functions are `missing`, or what this role is `denied`."""
    try:
        yield
    except GraphileWorkerError:
        raise
    except Exception as error:
        state = sqlstate_of(error)
        if state not in UNREADABLE:
            raise
        if state == sqlstates.INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(
                f"this role may not {denied} ({error}); connect as the owner of the schema", sqlstate=state
            ) from error
        raise SchemaMissingError(
            f"{missing}, run as the owner of the schema: graphile-worker migrate", sqlstate=state
        ) from error

"""Opens a pool or a connection, from a connection string, an existing pool or the environment.

Pools opened here skip the driver's reset when a connection is released, because our own statements leave no
state in the session; `lend` resets it after user code. No statement is run here.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import asyncpg

from ...errors import ConnectionConfigError, NoDatabaseError
from ...hooks.hooks import DatabaseTarget
from .bound import is_gone
from .connection import AnyConnection, AnyPool, Connection, Pool
from .dsn import Dsn, connect_to_first
from .encoding import teach_arrays
from .errors import translate_connect_errors
from .single import is_connection

APPLICATION_NAME = "graphile_worker"
CONNECT_WITHIN = 15.0  # seconds per server of the connection string; connect_timeout overrides it
RESET_WITHIN = 5.0  # seconds to reset a session after user code
_KEEPALIVES = {
    "keepalives_idle": ("TCP_KEEPIDLE", 30),
    "keepalives_interval": ("TCP_KEEPINTVL", 10),
    "keepalives_count": ("TCP_KEEPCNT", 3),
    "tcp_user_timeout": ("TCP_USER_TIMEOUT", 60_000),  # ms until unacknowledged data fails the connection
}
"""libpq's parameters, the options of the socket and their defaults."""


def resolve_connection(
    connection_string: str | None = None,
    pg_pool: AnyPool | AnyConnection | None = None,
    environ: Mapping[str, str] | None = None,
) -> Pool | Dsn:
    """The database to use: the given pool or string, else DATABASE_URL, else the PG* variables."""
    environ = os.environ if environ is None else environ
    if pg_pool is not None and connection_string is not None:
        raise ConnectionConfigError("both pg_pool and connection_string are set; give only one of them")
    if pg_pool is not None:
        _check_pool(pg_pool)
        return cast(Pool, pg_pool)
    if connection_string is not None:
        return Dsn.parse(connection_string)
    if environ.get("DATABASE_URL"):
        return Dsn.parse(environ["DATABASE_URL"])
    if environ.get("PGDATABASE"):
        return Dsn.parse("postgresql://")
    raise NoDatabaseError(
        "no database was given; set the option pg_pool, the option connection_string "
        "(on the command line -c/--connection), the environment variable DATABASE_URL, "
        "or the PG* environment variables with at least PGDATABASE"
    )


def _check_pool(given: object) -> None:
    if all(callable(getattr(given, name, None)) for name in ("acquire", "release", "get_max_size")):
        return
    kind = type(given)
    message = f"pg_pool: expected a pool of asyncpg, got {kind.__module__}.{kind.__qualname__}"
    if is_connection(given):
        message += (
            ", a single connection; only run_once can use one. Give a pool here, made with "
            "asyncpg.create_pool; methods that add jobs take a connection as connection="
        )
    raise ConnectionConfigError(message)


async def open_pool(
    dsn: str | Dsn,
    *,
    max_pool_size: int = 10,
    prepared_statements: bool = True,
    application_name: str = APPLICATION_NAME,
    read_only: bool = False,
) -> Pool:
    """A new pool with one open connection, so that a wrong address or password fails early.

    With `read_only`, the server refuses every change in these sessions.
    """
    dsn = Dsn.parse(dsn) if isinstance(dsn, str) else dsn
    arguments = _driver_arguments(dsn, prepared_statements, application_name)
    if read_only:
        arguments["server_settings"]["default_transaction_read_only"] = "on"
    with translate_connect_errors(dsn):
        pool = asyncpg.create_pool(
            min_size=0,
            max_size=max_pool_size,
            connect=functools.partial(connect_to_first, dsn.addresses),
            init=lambda connection: _prepare(connection, dsn.keepalives),
            reset=_no_reset,
            **arguments,
        )
        await pool
        try:
            async with pool.acquire():
                pass
        except BaseException:
            pool.terminate()
            raise
    return cast(Pool, pool)


async def close_pool(pool: Pool, *, within: float) -> None:
    """Close the pool; connections that are not released in time are terminated."""
    try:
        async with asyncio.timeout(within):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def connect(
    dsn: str | Dsn, *, prepared_statements: bool = True, application_name: str = APPLICATION_NAME
) -> Connection:
    """A standalone connection."""
    dsn = Dsn.parse(dsn) if isinstance(dsn, str) else dsn
    with translate_connect_errors(dsn):
        connection = await connect_to_first(
            dsn.addresses, **_driver_arguments(dsn, prepared_statements, application_name)
        )
    await _prepare(connection, dsn.keepalives)
    return cast(Connection, connection)


@asynccontextmanager
async def lend(pool: Pool, *, timeout: float | None = None) -> AsyncIterator[Connection]:
    """A connection whose session is reset before it returns to the pool, as after user code."""
    async with pool.acquire(timeout=timeout) as connection:
        try:
            yield connection
        finally:
            if not is_gone(connection):
                # An error of the reset must not hide the caller's own.
                try:
                    await connection.reset(timeout=RESET_WITHIN)
                except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()


def _driver_arguments(dsn: Dsn, prepared_statements: bool, application_name: str) -> dict[str, Any]:
    name = dsn.application_name or os.environ.get("PGAPPNAME") or application_name
    arguments: dict[str, Any] = {
        "dsn": dsn.url,
        "server_settings": {"application_name": name},
        "timeout": dsn.connect_timeout or CONNECT_WITHIN,
    }
    if dsn.verifies_server:
        arguments["ssl"] = ssl.create_default_context()
    if not prepared_statements:
        # The driver parses and runs a statement in one go (Flush, then Sync), which works behind a pooler in
        # transaction mode as long as no prepared statement is reused.
        arguments["statement_cache_size"] = 0
    return arguments


async def _no_reset(_connection: Any) -> None:
    """Replaces the driver's reset, which would cost a round trip for every added job."""


async def _prepare(connection: Any, keepalives: Mapping[str, int]) -> None:
    """Set up a new connection; sends nothing."""
    teach_arrays(connection)
    await _keep_alive(connection, keepalives)


async def _keep_alive(connection: Any, wanted: Mapping[str, int]) -> None:
    """Enable TCP keepalives, so that a vanished server is noticed; best effort."""
    transport = getattr(connection, "_transport", None)
    endpoint = transport.get_extra_info("socket") if transport is not None else None
    if endpoint is None or endpoint.family not in (socket.AF_INET, socket.AF_INET6):
        return
    if wanted.get("keepalives", 1) == 0:
        return
    with suppress(OSError):
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, (option_name, default) in _KEEPALIVES.items():
        option, value = getattr(socket, option_name, None), wanted.get(name, default)
        if option is not None and value > 0:
            with suppress(OSError):
                endpoint.setsockopt(socket.IPPROTO_TCP, option, value)


def target_of(schema: str, found: object) -> DatabaseTarget:
    """The database as plugins see it; `found` is what `resolve_connection` returns.

    The server behind a pool of the caller is unknown.
    """
    addresses = found.addresses if isinstance(found, Dsn) else []
    if len(addresses) != 1:
        return DatabaseTarget(schema=schema)
    host, port = addresses[0]
    if host.startswith("/"):
        return DatabaseTarget(schema=schema, address=f"{host}/.s.PGSQL.{port}")
    return DatabaseTarget(schema=schema, address=host, port=port)

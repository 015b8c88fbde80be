"""Dsn: a connection string prepared for the driver, and connecting to the first suitable server of several.

Everything the driver understands is passed on (several hosts, sslmode, service files, server settings).
Parameters that only libpq, SQLAlchemy or another driver knows are removed, because the server would refuse
them as settings. `ssl=`, of Node and of asyncpg, is translated to libpq's sslmode.

The driver has one timeout for all hosts of a connection string. A machine that vanished would use it up, and
the server that took over would never be tried. So `connect_to_first` has a timeout for each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg
import msgspec

from ...errors import ConnectionConfigError
from .connection_text import (
    BAD_PORT,
    DRIVER_ONLY,
    HIDDEN,
    LIBPQ_ONLY,
    UNREADABLE_URL,
    is_port,
    masked,
    read_connection_text,
    split_port,
)

__all__ = ["UNREADABLE_URL", "Dsn", "masked"]

_OURS = ("application_name", "connect_timeout", "fallback_application_name", "ssl")
_SSL = {"true": True, "1": True, "false": False, "0": False}
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")

logger = logging.getLogger("graphile_worker.db")


class Dsn(msgspec.Struct, frozen=True):
    """A connection string prepared for the driver; missing parts come from the PG* variables."""

    url: str
    application_name: str | None = None
    connect_timeout: float | None = None
    keepalives: dict[str, int] = {}
    """The libpq parameters keepalives… and tcp_user_timeout, if given."""

    verifies_server: bool = False
    """`ssl=true`: TLS, with the certificate verified against the system's authorities."""
    secrets: frozenset[str] = frozenset()
    """Texts to remove from messages, even if the server or the driver quotes them."""

    def __repr__(self) -> str:
        return f"Dsn({masked(self.url)!r})"

    @classmethod
    def parse(cls, text: str) -> Dsn:
        """Parse a URL, a key=value string or a database name; errors quote nothing of it."""
        parts = read_connection_text(text)
        removed = LIBPQ_ONLY | DRIVER_ONLY
        own = {name: value for name, value in parts.parameters if name in removed or name in _OURS}
        if ignored := sorted(own.keys() & DRIVER_ONLY):
            logger.debug("connection_string: ignored parameters of another driver: %s", ", ".join(ignored))
        passed = [(name, value) for name, value in parts.parameters if name not in own]
        names = {name for name, _ in passed}
        verifies_server = False
        if own.get("ssl") in _SSL_MODES and "sslmode" not in names:  # sslmode takes precedence, as in Node
            passed.append(("sslmode", own["ssl"]))
        elif own.get("ssl") and "sslmode" not in names:
            is_on = _is_ssl_on(own["ssl"])
            has_authority = "sslrootcert" in names or bool(os.environ.get("PGSSLROOTCERT"))
            verifies_server = is_on and not has_authority
            if not verifies_server:
                passed.append(("sslmode", "verify-full" if is_on else "disable"))
        # Node's name for TLS without verification, which is `require` in libpq
        passed = [
            (name, "require") if (name, value) == ("sslmode", "no-verify") else (name, value)
            for name, value in passed
        ]
        port = os.environ.get("PGPORT")
        if port and not all(is_port(each) for each in port.split(",")):
            raise ConnectionConfigError(f"environment variable PGPORT: {BAD_PORT}")
        return cls(
            url=msgspec.structs.replace(parts, parameters=tuple(passed)).url,
            application_name=own.get("application_name") or own.get("fallback_application_name"),
            connect_timeout=_connect_timeout(own.get("connect_timeout")),
            keepalives=_numbers(own),
            verifies_server=verifies_server,
            secrets=parts.secrets,
        )

    def scrub(self, text: str) -> str:
        """Remove the string's secrets from a message of the server or the driver."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        return text

    @property
    def target(self) -> str:
        """The server's address for messages: host and port of each server, or the socket."""
        addresses = self.addresses
        if not addresses:
            return f"the local server's socket or localhost, port {self._ports[0]}"
        return ", ".join(
            f"socket {host}/.s.PGSQL.{port}" if host.startswith("/") else _host_and_port(host, port)
            for host, port in addresses
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host or socket directory, and port, of each server; empty if none is named."""
        parts, query = urlsplit(self.url), self._query
        named = parts.netloc.rpartition("@")[2] or query.get("host") or os.environ.get("PGHOST", "")
        ports = self._ports
        found: list[tuple[str, int]] = []
        for index, text in enumerate(named.split(",") if named else []):
            port = ports[index] if len(ports) > 1 and index < len(ports) else ports[0]
            host, own_port = split_port(unquote(text))
            found.append((host, int(own_port or port)))
        return found

    @property
    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query))

    @property
    def _ports(self) -> list[str]:
        return (self._query.get("port") or os.environ.get("PGPORT") or "5432").split(",")

    @property
    def name(self) -> str:
        """The database and its address, for messages."""
        return f"{self.database or 'the default database'} at {self.target}"

    @property
    def database(self) -> str | None:
        """The database's name, if the string or PGDATABASE gives one."""
        query = self._query
        return (
            unquote(urlsplit(self.url).path.lstrip("/"))
            or query.get("dbname")
            or query.get("database")
            or os.environ.get("PGDATABASE")
        )


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ssl_on(text: str) -> bool:
    try:
        return _SSL[text.lower()]
    except KeyError:
        raise ConnectionConfigError(
            f"connection_string: ssl must be true or false, or one of {', '.join(_SSL_MODES)}"
        ) from None


def _connect_timeout(text: str | None) -> float | None:
    """As in libpq, 0 or less means no limit; here it means the driver's own limit."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise ConnectionConfigError("connection_string: connect_timeout is not a number") from None
    return seconds if seconds > 0 else None


def _numbers(parameters: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in parameters.items():
        if name.startswith("keepalives") or name == "tcp_user_timeout":
            try:
                found[name] = int(text)
            except ValueError:
                message = f"connection_string: {name} is not a whole number"
                raise ConnectionConfigError(message) from None
    return found


Address = tuple[str, int]

_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)

CANCEL_TIMEOUT = 1.0  # seconds for a cancelled attempt to finish


async def connect_to_first(addresses: Sequence[Address], dsn: str, **arguments: Any) -> Any:
    """A connection to the first address that answers and satisfies `target_session_attrs`."""
    if len(addresses) < 2 or "prefer-standby" in dsn:  # prefer-standby has to try all of them
        return await _connect(dsn, **arguments)
    last: Exception | None = None
    for host, port in addresses:
        try:
            return await _connect(dsn, host=host, port=port, **arguments)
        except _NEXT as error:
            # The error of a standby is more informative than that of a silent server.
            if last is None or not isinstance(last, asyncpg.TargetServerAttributeNotMatched):
                last = error
    assert last is not None  # noqa: S101 - there were addresses
    raise last


async def _connect(dsn: str, **arguments: Any) -> Any:
    """Connect; when cancelled, let the attempt finish first and close its connection.

    If an attempt is interrupted while it negotiates TLS, the driver leaves a future whose exception is never
    retrieved, and asyncio logs that.
    """
    attempt = asyncio.ensure_future(asyncpg.connect(dsn, **arguments))
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(_close_connection)
        try:
            await asyncio.wait((attempt,), timeout=CANCEL_TIMEOUT)
        finally:
            attempt.cancel()
        raise


def _close_connection(attempt: asyncio.Future[Any]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()

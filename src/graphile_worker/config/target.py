"""The database of a worker or client, as plugins see it."""

from __future__ import annotations

from ..db.dsn import Dsn
from ..hooks.target import DatabaseTarget


def target_of(schema: str, found: object) -> DatabaseTarget:
    """`found` is what `resolve_connection` returns. The server behind a pool of the caller is unknown."""
    addresses = found.addresses if isinstance(found, Dsn) else []
    if len(addresses) != 1:
        return DatabaseTarget(schema=schema)
    host, port = addresses[0]
    if host.startswith("/"):
        return DatabaseTarget(schema=schema, address=f"{host}/.s.PGSQL.{port}")
    return DatabaseTarget(schema=schema, address=host, port=port)

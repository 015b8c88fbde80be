"""The database that a worker or client uses, for plugins that name it."""

from __future__ import annotations

import msgspec


class DatabaseTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are added and run."""

    schema: str
    address: str | None = None
    """The server's host, or its socket; None if it is unknown or there are several servers."""
    port: int | None = None
    """None for a socket."""

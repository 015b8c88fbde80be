"""What a driver's connection says about its transaction, without asking the server."""

from __future__ import annotations

from typing import Any

_IDLE = 0  # libpq's PQTRANS_IDLE
_ABORTED = 3  # libpq's PQTRANS_INERROR


def is_in_transaction(connection: Any) -> bool:
    """Whether a transaction is open on this connection of asyncpg, psycopg or psycopg2."""
    if hasattr(connection, "is_in_transaction"):
        return bool(connection.is_in_transaction())
    return int(connection.info.transaction_status) != _IDLE


def is_aborted(connection: Any) -> bool:
    """Whether a statement has failed in the transaction of this connection of psycopg or psycopg2."""
    return int(connection.info.transaction_status) == _ABORTED

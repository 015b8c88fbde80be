"""Connects to the first suitable server of several, with a timeout for each.

The driver has one timeout for all hosts of a connection string. A machine that vanished would use it up, and
the server that took over would never be tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

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

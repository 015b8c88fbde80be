"""Connecting to the first of several servers that will do, and giving each of them its own time.

The driver has one time limit for all hosts of a connection string. A server whose machine vanished without a
word would use it up, and the one that took over would never be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

Address = tuple[str, int]

_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)

SETTLED_WITHIN = 1.0  # seconds that an attempt may take to end after its connection is no longer wanted


async def connect_to_first(addresses: Sequence[Address], dsn: str, **arguments: Any) -> Any:
    """A connection to the first address that answers and is what `target_session_attrs` asks for."""
    if len(addresses) < 2 or "prefer-standby" in dsn:  # which needs to see all of them
        return await _connect(dsn, **arguments)
    last: Exception | None = None
    for host, port in addresses:
        try:
            return await _connect(dsn, host=host, port=port, **arguments)
        except _NEXT as error:
            # A server that answers but is a standby says more than one that does not answer.
            if last is None or not isinstance(last, asyncpg.TargetServerAttributeNotMatched):
                last = error
    assert last is not None  # noqa: S101 - there were addresses
    raise last


async def _connect(dsn: str, **arguments: Any) -> Any:
    """Connect; if that is cancelled, let the attempt come to its end first and throw the connection away.

    An attempt that is cut off while it asks the server for encryption leaves a future of the driver behind
    whose error is never retrieved, and asyncio prints that.
    """
    attempt = asyncio.ensure_future(asyncpg.connect(dsn, **arguments))
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(_throw_away)
        try:
            await asyncio.wait((attempt,), timeout=SETTLED_WITHIN)
        finally:
            attempt.cancel()
        raise


def _throw_away(attempt: asyncio.Future[Any]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()

"""Connecting to the first of several servers that will do, and giving each of them its own time.

The driver has one time limit for all hosts of a connection string. A server whose machine vanished without a
word would use it up, and the one that took over would never be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

Address = tuple[str, int]

_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


async def connect_to_first(addresses: Sequence[Address], dsn: str, **arguments: Any) -> Any:
    """A connection to the first address that answers and is what `target_session_attrs` asks for."""
    if len(addresses) < 2 or "prefer-standby" in dsn:  # which needs to see all of them
        return await asyncpg.connect(dsn, **arguments)
    last: Exception | None = None
    for host, port in addresses:
        try:
            return await asyncpg.connect(dsn, host=host, port=port, **arguments)
        except _NEXT as error:
            # A server that answers but is a standby says more than one that does not answer.
            if last is None or not isinstance(last, asyncpg.TargetServerAttributeNotMatched):
                last = error
    assert last is not None  # noqa: S101 - there were addresses
    raise last

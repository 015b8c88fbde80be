"""Waiting for a session of the server to be blocked, so that a test can go on from exactly there."""

from __future__ import annotations

import asyncio
from typing import Any


async def is_blocked(observer: Any, connection: Any) -> None:
    """Return once `connection` waits for a lock that another session holds; `observer` does the looking."""
    async with asyncio.timeout(60):
        while True:
            waiting = await observer.fetchval(
                "select cardinality(pg_blocking_pids($1)) > 0", connection.get_server_pid()
            )
            if waiting:
                return
            await asyncio.sleep(0.01)

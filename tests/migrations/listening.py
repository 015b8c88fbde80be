"""Hearing what a piece of code notifies, without waiting for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

END = "the block has ended"


@asynccontextmanager
async def heard_by(database_url: str, channel: str) -> AsyncIterator[list[str]]:
    """The payloads sent on `channel` while the block runs; complete when the block has been left."""
    listener = await asyncpg.connect(database_url)
    heard: list[str] = []
    ended = asyncio.Event()

    def hear(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        if payload == END:
            ended.set()
        else:
            heard.append(payload)

    try:
        await listener.add_listener(channel, hear)
        yield heard
        # Notifications arrive in the order of their commits, so all before this one are in.
        await listener.execute("select pg_notify($1, $2)", channel, END)
        await asyncio.wait_for(ended.wait(), timeout=60)
    finally:
        await listener.close(timeout=60)

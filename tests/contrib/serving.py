"""An ASGI application with its lifespan, in the test's own process, and an HTTP client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from support.working import PATIENCE


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Enter the lifespan as a server does; requests get its state."""
    state: dict[str, Any] = {}
    to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}
    lifespan = asyncio.ensure_future(app(scope, to_app.get, from_app.put))

    async def say(message: str) -> None:
        await to_app.put({"type": f"lifespan.{message}"})
        answer = await asyncio.wait_for(from_app.get(), PATIENCE)
        assert answer["type"] == f"lifespan.{message}.complete", answer

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": dict(state)}, receive, send)

    await say("startup")
    try:
        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client
    finally:
        await say("shutdown")
        await asyncio.wait_for(lifespan, PATIENCE)

"""The dashboard on a real port: uvicorn inside this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

ENDS_WITHIN = 5  # seconds for open streams when the server stops


@asynccontextmanager
async def serving(app: Any, *, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve an ASGI application on a free port; its address."""
    config = uvicorn.Config(
        app, log_level="warning", ws="none", lifespan="on", timeout_graceful_shutdown=ENDS_WITHIN
    )
    server = uvicorn.Server(config)
    with socket.create_server((host, 0)) as listening:
        port = listening.getsockname()[1]
        running = asyncio.create_task(server._serve(sockets=[listening]))
        try:
            while not server.started:
                if running.done():
                    running.result()
                    raise RuntimeError("the server ended while it started")
                await asyncio.sleep(0.01)
            yield f"http://{host}:{port}"
        finally:
            server.should_exit = True
            await running

"""Serves the dashboard with uvicorn, in this process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from ..errors import ConfigError
from .app import AdminApp

END_WITHIN = 1
"""Seconds for requests to end when the server stops; streams end at once."""
BACKLOG = 256


def listen(host: str, port: int) -> socket.socket:
    """A socket on the address. Raises ConfigError if it is in use or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"admin.listen: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; choose another "
            "address with --listen; port 0 takes any that is free"
        ) from error


class DashboardServer(uvicorn.Server):
    """A server that leaves signals to the command, and ends streams before it waits for connections."""

    def __init__(self, app: ASGIApp, admin: AdminApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                log_level="warning",
                lifespan="off",
                proxy_headers=False,  # trusted proxies are our own matter
                server_header=False,
                timeout_graceful_shutdown=END_WITHIN,
                ws="none",
            )
        )
        self._admin = admin

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Stop serving; `run` returns soon after."""
        self._admin.stop()
        self.should_exit = True

    async def run_on(self, endpoint: socket.socket) -> None:
        """Serve until `stop` is called or the task is cancelled."""
        serving = asyncio.ensure_future(self.serve(sockets=[endpoint]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.stop()
            await serving
            raise
        finally:
            await self._admin.aclose()

"""The observer of several worker processes: it serves HTTP for all of them, and notifies systemd.

Their parent has no event loop, so it forks this process beside them. It holds no connection to the database.
It asks the workers how they are; a dead one is noticed at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING

from ..hooks.faults import Supervised
from .reports import ReportSocket, WorkerProcesses
from .signals import collect_garbage

if TYPE_CHECKING:
    import socket

    from .systemd import Relay

logger = logging.getLogger("graphile_worker.http")


class Observer:
    """Made by the parent, which opens the sockets; a port that is in use is an error at the start."""

    def __init__(
        self, processes: int, *, http: tuple[str, int] | None = None, relay: Relay | None = None
    ) -> None:
        """`http`: the address and port to serve on. `relay`: takes what systemd is told."""
        self._processes = processes
        self._relay = relay
        self._listening: socket.socket | None = None
        if http is not None:
            from .http.server import bind, url_of

            self._listening = bind(*http)
            logger.info("serving health checks and metrics at %s", url_of(self._listening))
        self._reports = ReportSocket()

    @property
    def path(self) -> str:
        """Where worker processes report to."""
        return self._reports.path

    def run(self) -> int:
        """In the process itself: run until SIGTERM; returns the exit status."""
        collect_garbage()
        parent = os.getppid()
        asyncio.run(self._observe())
        if os.getppid() != parent:  # it was killed, and nothing else cleans up
            self._reports.remove()
        return 0

    def leave(self) -> None:
        """In a worker process, which must not keep the port open."""
        if self._listening is not None:
            self._listening.close()
        self._reports.close()

    def discard(self) -> None:
        """In the parent, when all others have ended."""
        self.leave()
        self._reports.remove()

    async def _observe(self) -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        workers = WorkerProcesses(self._processes)
        # Not closed at the end, because that removes its path, and another process may follow this one.
        await self._reports.serve(workers.connected)
        if (relay := self._relay) is not None:
            from .systemd import notify

            Supervised(lambda: notify(relay.systemd, relay.send, workers), "systemd").start()
        if self._listening is None:
            await stopped.wait()
            return
        from .http.plugin import answer
        from .http.server import HttpServer

        server = HttpServer(lambda request: answer(request, workers))
        await server.open(self._listening)
        await stopped.wait()
        await server.close()

"""HealthServerProcess: the process that serves HTTP for several worker processes.

Their parent has no event loop, so it forks this process beside them. It holds no connection to the database.
Workers connect to its socket in a directory that only this user can open; a dead one is noticed at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

from ..garbage import collect_garbage
from .pages import answer
from .server import BACKLOG, HttpServer, Request, Response, bind, url_of
from .worker_processes import WorkerProcesses

FRAME_BUFFER = 1 << 20

logger = logging.getLogger("graphile_worker.http")


class HealthServerProcess:
    """Made by the parent, which opens the sockets; a port that is in use is an error at the start."""

    def __init__(self, address: str, port: int, processes: int) -> None:
        self._processes = processes
        self._listening = bind(address, port)
        self._directory = tempfile.mkdtemp(prefix="graphile-worker-http-")
        self.path = str(Path(self._directory) / "reports")
        """The socket to which worker processes connect."""
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reports.bind(self.path)
        self._reports.listen(BACKLOG)
        logger.info("serving health checks and metrics at %s", url_of(self._listening))

    def run(self) -> int:
        """Serve until SIGTERM; returns the exit status."""
        collect_garbage()
        parent = os.getppid()
        asyncio.run(self._serve())
        if os.getppid() != parent:  # it was killed, and nothing else cleans up
            self._remove_directory()
        return 0

    def leave(self) -> None:
        """In a worker process, which must not keep the port open."""
        self._listening.close()
        self._reports.close()

    def discard(self) -> None:
        """In the parent, when all others have ended."""
        self.leave()
        self._remove_directory()

    def _remove_directory(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _serve(self) -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        workers = WorkerProcesses(self._processes)

        async def handle(request: Request) -> Response:
            return await answer(request, workers)

        # Not closed at the end, because that removes its path, and another process may follow this one.
        await asyncio.start_unix_server(workers.connected, sock=self._reports, limit=FRAME_BUFFER)
        server = HttpServer(handle)
        await server.open(self._listening)
        await stopped.wait()
        await server.close()

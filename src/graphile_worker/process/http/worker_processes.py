"""HTTP for several worker processes.

WorkerProcesses: asks all worker processes for their health and metrics, and answers for them together.

HealthServerProcess: the process that serves HTTP for several worker processes.

Their parent has no event loop, so it forks this process beside them. It holds no connection to the database.
Workers connect to its socket in a directory that only this user can open; a dead one is noticed at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...metrics.families import Family, add_up, counted
from ..signals import collect_garbage
from .health import ProcessHealth
from .plugin import answer
from .reports import Question, WorkerReport, receive, send
from .server import BACKLOG, HttpServer, Request, Response, bind, url_of

HEALTH_WITHIN = 0.8  # seconds; a probe of Kubernetes waits for one second unless it is told to wait longer
METRICS_WITHIN = 5.0  # seconds
BLOCKED = "it does not answer; its event loop may be blocked"


class WorkerProcess:
    """A worker process that is connected."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: WorkerReport
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[WorkerReport]] = {}
        self.pid = first.health.pid
        self.families: list[Family] = []
        """As it reported them last."""

    async def follow(self) -> None:
        """Receive reports until the process ends."""
        try:
            while True:
                report = msgspec.msgpack.decode(await receive(self._reader), type=WorkerReport)
                if report.families is not None:
                    self.families = report.families
                asked = self._asked.pop(report.number, None)
                if asked is not None and not asked.done():
                    asked.set_result(report)
        finally:
            for asked in self._asked.values():
                asked.cancel()
            self._writer.transport.abort()

    async def ask(self, within: float, *, with_metrics: bool = False) -> WorkerReport | None:
        """Its report; None if it does not answer in time, or has ended."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within):
                await send(self._writer, Question(number, with_metrics))
                await asyncio.wait((asked,))
        except (OSError, TimeoutError):
            pass
        finally:
            self._asked.pop(number, None)
        return asked.result() if asked.done() and not asked.cancelled() else None


class WorkerProcesses:
    """All worker processes that are connected now, and what those that ended have counted."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self._connected: set[WorkerProcess] = set()
        self._ended: list[Family] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the connection of a worker process until it ends."""
        try:
            first = msgspec.msgpack.decode(await receive(reader), type=WorkerReport)
        except OSError:
            writer.transport.abort()
            return
        process = WorkerProcess(reader, writer, first)
        self._connected.add(process)
        try:
            await process.follow()
        except OSError:  # it has ended
            pass
        finally:
            self._connected.discard(process)
            self._ended = add_up({process.pid: counted(process.families)}, self._ended)

    async def health(self) -> Sequence[ProcessHealth]:
        """The health of each; one that does not answer must be restarted."""
        processes = sorted(self._connected, key=lambda process: process.pid)
        reports = await asyncio.gather(*(process.ask(HEALTH_WITHIN) for process in processes))
        return [
            report.health
            if report is not None
            else ProcessHealth(pid=process.pid, pools=[], not_live=BLOCKED)
            for process, report in zip(processes, reports, strict=True)
            if report is not None or process in self._connected
        ]

    async def metrics(self) -> bytes | None:
        """The metrics of all of them in one text; None without the client library."""
        try:
            from ...metrics.prometheus import text_of
        except ImportError:
            return None
        processes = list(self._connected)
        reports = await asyncio.gather(
            *(process.ask(METRICS_WITHIN, with_metrics=True) for process in processes)
        )
        parts: dict[int, Sequence[Family]] = {}
        for process, report in zip(processes, reports, strict=True):
            if report is not None:
                parts[process.pid] = report.families or []
            elif process in self._connected:  # it is busy: what it has counted stays, its gauges are unknown
                parts[process.pid] = counted(process.families)
        return text_of(add_up(parts, self._ended))


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

"""What processes that run a worker report to the one that started them, or to one that it names.

One way for all: whoever wants reports listens on a Unix socket and says where; the worker connects and sends
messages, one JSON line each. `dev` receives what the worker does. The observer of several worker processes
asks each for its health and metrics; the event loop answers, so there is no answer while it is blocked.
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
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...hooks.faults import Supervised, call_guarded
from ...values.lines import Lines, line
from .health import ANSWER_WITHIN, OwnHealth, ProcessHealth
from .signals import collect_garbage

if TYPE_CHECKING:
    from ...metrics.families import Family
    from .systemd import Relay

CHUNK = 1 << 16
LONGEST_PATH = 100  # bytes; the system's limit for the name of a socket is little more
RECONNECT_AFTER = 1.0  # seconds
LAST_REPORT_WITHIN = 1.0  # seconds
METRICS_WITHIN = 5.0  # seconds
BLOCKED = "it does not answer; its event loop may be blocked"

logger = logging.getLogger("graphile_worker.reports")
HTTP_LOGGER = logging.getLogger("graphile_worker.http")


class ReportSocket:
    """A socket in a directory that only this user can open."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="graphile-worker-")
        if len(self._directory) > LONGEST_PATH - len("/reports"):
            shutil.rmtree(self._directory)
            self._directory = tempfile.mkdtemp(prefix="graphile-worker-", dir="/tmp")
        self.path = str(Path(self._directory) / "reports")
        """Where to connect to."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen(128)

    async def serve(
        self, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> asyncio.Server:
        return await asyncio.start_unix_server(connected, sock=self._socket)

    def close(self) -> None:
        """In a process that does not listen."""
        self._socket.close()

    def remove(self) -> None:
        """Nobody listens any more."""
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)


async def send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    writer.write(line(message))
    await writer.drain()


async def received(reader: asyncio.StreamReader, kind: Any) -> AsyncGenerator[Any]:
    """The messages of this type, until the other side is gone."""
    lines = Lines(kind)
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            for message in lines.feed(data):
                yield message


@asynccontextmanager
async def receiving(kind: Any, on_message: Callable[[Any], None]) -> AsyncIterator[str]:
    """Receive the messages of child processes; gives the path to connect to."""
    place = ReportSocket()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for message in received(reader, kind):
            on_message(message)
        writer.transport.abort()

    server = await place.serve(connected)
    try:
        yield place.path
    finally:
        server.close()
        place.remove()


class Question(msgspec.Struct):
    """Asks a worker process for its health, or for that and its metrics."""

    number: int
    with_metrics: bool = False


class WorkerReport(msgspec.Struct):
    """The answer. A process also reports when it has connected, and before it ends."""

    health: ProcessHealth
    metrics: bytes | None = None
    """Families of metrics, encoded; JSON has no NaN."""
    number: int = 0
    """Of the question; 0 if there was none."""


class ReportingPlugin(OwnHealth):
    """In each of several worker processes: connects to the observer and answers until it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._loop = Supervised(self._run, "reports")
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._loop.start()

    async def close(self) -> None:
        """Report for the last time, so that nothing that was counted is lost."""
        await self._loop.stop()
        if self._writer is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_REPORT_WITHIN):
                    await self._report(self._writer, with_metrics=True)
                    self._writer.close()
                    await self._writer.wait_closed()
            self._writer = None

    async def _run(self) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                await self._report(self._writer)
                async for question in received(reader, Question):
                    await self._report(self._writer, question.number, with_metrics=question.with_metrics)
            except OSError as error:
                logger.debug("the process that asks for reports is gone: %s", error)
            self._writer = None
            await asyncio.sleep(RECONNECT_AFTER)

    async def _report(
        self, writer: asyncio.StreamWriter, number: int = 0, *, with_metrics: bool = False
    ) -> None:
        metrics = await _encoded_metrics() if with_metrics else None
        await send(writer, WorkerReport(self.own_health(), metrics, number))


async def _encoded_metrics() -> bytes | None:
    """The metrics of this process; None without the client library."""
    try:
        from ...metrics.prometheus import REGISTRY, families_of
    except ImportError:
        return None
    return msgspec.msgpack.encode(await asyncio.to_thread(call_guarded, families_of, REGISTRY))


class WorkerProcess:
    def __init__(self, writer: asyncio.StreamWriter, pid: int) -> None:
        self._writer = writer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[WorkerReport]] = {}
        self.pid = pid
        self.metrics: bytes | None = None
        """As it reported them last."""

    def take(self, report: WorkerReport) -> None:
        if report.metrics is not None:
            self.metrics = report.metrics
        asked = self._asked.pop(report.number, None)
        if asked is not None and not asked.done():
            asked.set_result(report)

    def ended(self) -> None:
        """It will report no more."""
        for asked in self._asked.values():
            asked.cancel()

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
        process: WorkerProcess | None = None
        async for report in received(reader, WorkerReport):
            if process is None:
                process = WorkerProcess(writer, report.health.pid)
                self._connected.add(process)
            process.take(report)
        writer.transport.abort()
        if process is not None:
            self._connected.discard(process)
            process.ended()
            if process.metrics is not None:
                from ...metrics.families import add_up, counted

                self._ended = add_up({process.pid: counted(_families(process.metrics))}, self._ended)

    async def health(self, within: float = ANSWER_WITHIN) -> Sequence[ProcessHealth]:
        """The health of each; one that does not answer must be restarted."""
        processes = sorted(self._connected, key=lambda process: process.pid)
        reports = await asyncio.gather(*(process.ask(within) for process in processes))
        return [
            ProcessHealth(pid=process.pid, pools=[], not_live=BLOCKED) if report is None else report.health
            for process, report in zip(processes, reports, strict=True)
            if report is not None or process in self._connected
        ]

    async def metrics(self) -> bytes | None:
        """The metrics of all of them in one text; None without the client library."""
        try:
            from ...metrics.families import add_up, counted
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
                parts[process.pid] = _families(report.metrics)
            elif process in self._connected:  # it is busy: what it has counted stays, its gauges are unknown
                parts[process.pid] = counted(_families(process.metrics))
        return text_of(add_up(parts, self._ended))


def _families(encoded: bytes | None) -> list[Family]:
    from ...metrics.families import Family

    return [] if encoded is None else msgspec.msgpack.decode(encoded, type=list[Family])


class Observer:
    """Serves HTTP for several worker processes, and notifies systemd.

    Their parent has no event loop, so it forks this process beside them. It holds no connection to the
    database. It asks the workers how they are; a dead one is noticed at once. The parent makes this object
    and opens the sockets; a port that is in use is an error at the start.
    """

    def __init__(
        self, processes: int, *, http: tuple[str, int] | None = None, relay: Relay | None = None
    ) -> None:
        """`http`: the address and port to serve on. `relay`: takes what systemd is told."""
        self._processes = processes
        self._relay = relay
        self._listening: socket.socket | None = None
        if http is not None:
            from .http_server import bind, url_of

            self._listening = bind(*http)
            HTTP_LOGGER.info("serving health checks and metrics at %s", url_of(self._listening))
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
        from .http_server import HttpServer
        from .probes import answer

        server = HttpServer(lambda request: answer(request, workers))
        await server.open(self._listening)
        await stopped.wait()
        await server.close()

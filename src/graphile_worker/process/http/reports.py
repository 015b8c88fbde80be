"""Worker processes report to the process that serves HTTP for all of them.

What worker processes and the process that serves HTTP for all of them say to each other.

ReportingPlugin: in each of several worker processes, reports to the process that serves HTTP for all.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import suppress

import msgspec

from ...hooks import Hooks, WorkerContext
from ...hooks.faults import Supervised
from ...metrics.families import Family
from .health import ProcessHealth
from .process_state import ProcessState, own_families

LENGTH = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024


class Question(msgspec.Struct):
    """Asks a worker process for its health, or for that and its metrics."""

    number: int
    with_metrics: bool = False


class WorkerReport(msgspec.Struct):
    """The answer. A process also reports when it has connected, and before it ends."""

    health: ProcessHealth
    families: list[Family] | None = None
    number: int = 0
    """Of the question; 0 if there was none."""


async def send(writer: asyncio.StreamWriter, message: Question | WorkerReport) -> None:
    """Send a message."""
    data = msgspec.msgpack.encode(message)
    writer.write(LENGTH.pack(len(data)) + data)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> bytes:
    """The next message, encoded; raises an OSError if the other side is gone."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > MAX_FRAME:
            raise ConnectionError(f"a message of {length} bytes is too long")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the other process has ended") from error


RECONNECT_AFTER = 1.0  # seconds
LAST_REPORT_WITHIN = 1.0  # seconds

logger = logging.getLogger("graphile_worker.http")


class ReportingPlugin:
    """Connects to a socket and answers what comes from there, until it is closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = ProcessState()
        self._loop = Supervised(self._run, "reports")
        self._writer: asyncio.StreamWriter | None = None

    def install(self, hooks: Hooks) -> None:
        """Nothing to observe before the start."""

    async def start(self, worker: WorkerContext) -> None:
        """Report this worker, too."""
        self._state.add(worker)

    async def open(self) -> None:
        """Answer from now on."""
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
                await self._answer()
            except OSError as error:
                logger.debug("the process that serves HTTP does not answer: %s", error)
            self._writer = None
            await asyncio.sleep(RECONNECT_AFTER)

    async def _answer(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        self._writer = writer
        await self._report(writer)
        while True:
            question = msgspec.msgpack.decode(await receive(reader), type=Question)
            await self._report(writer, number=question.number, with_metrics=question.with_metrics)

    async def _report(
        self, writer: asyncio.StreamWriter, *, number: int = 0, with_metrics: bool = False
    ) -> None:
        families = await own_families() if with_metrics else None
        await send(writer, WorkerReport(self._state.health(), families, number))

"""ReportingPlugin: in each of several worker processes, reports to the process that serves HTTP for all."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec

from ...hooks import Hooks, WorkerContext
from ...supervised import Supervised
from .own_metrics import own_families
from .process_state import ProcessState
from .reports import Question, WorkerReport, receive, send

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

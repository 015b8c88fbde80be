"""WorkerProcess: a program that runs a worker, as a child process that stops when its parent dies."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..signals import FEED_PIPE, PARENT_PIPE

COMMAND = (sys.executable, "-P", "-m", "graphile_worker")
"""The command `graphile-worker`."""
LONGEST_LINE = 1024 * 1024

Reader = Callable[[str], object]


class WatchedChild:
    """A running worker. Its output goes to that of the parent, or to a reader."""

    def __init__(self, process: Process, parent_end: int, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._parent_end = parent_end
        self._readers = readers

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        on_line: Reader | None = None,
        on_feed: Reader | None = None,
    ) -> WatchedChild:
        """Run a program; `on_line` gets its output, `on_feed` the reports on its jobs."""
        child_end, parent_end = os.pipe()
        environ = {**environment, PARENT_PIPE: str(child_end)}
        passed, readers = [child_end], []
        feed: int | None = None
        if on_feed is not None:
            feed, feed_end = os.pipe()
            environ[FEED_PIPE] = str(feed_end)
            passed.append(feed_end)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environ,
                pass_fds=passed,
                stdin=DEVNULL,
                stdout=PIPE if on_line else None,
                stderr=PIPE if on_line else None,
                limit=LONGEST_LINE,
                process_group=0,  # Ctrl-C reaches the parent only, which forwards it exactly once
            )
        except BaseException:
            for descriptor in (parent_end, *([feed] if feed is not None else [])):
                os.close(descriptor)
            raise
        finally:
            for descriptor in passed:
                os.close(descriptor)
        if on_line is not None:
            streams = (stream for stream in (process.stdout, process.stderr) if stream is not None)
            readers += [asyncio.create_task(_read(stream, on_line)) for stream in streams]
        if feed is not None and on_feed is not None:
            readers.append(asyncio.create_task(_read_pipe(feed, on_feed)))
        return cls(process, parent_end, readers)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Wait until it ends and its output is read; returns the exit status, negative for a signal."""
        status = await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if self._parent_end >= 0:
            os.close(self._parent_end)
            self._parent_end = -1
        return status

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _read(stream: asyncio.StreamReader, reader: Reader) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # too long; the rest of it follows as another line
            continue
        if not line:
            return
        reader(line.decode(errors="replace").rstrip("\n"))


async def _read_pipe(descriptor: int, reader: Reader) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=LONGEST_LINE)
    with open(descriptor, "rb", buffering=0) as pipe:  # noqa: ASYNC230 — it is a pipe
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        try:
            await _read(stream, reader)
        finally:
            transport.close()

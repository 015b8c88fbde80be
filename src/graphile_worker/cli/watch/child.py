"""WorkerProcess: the command in a process of its own, which ends when its parent does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from .lifeline import PARENT_PIPE

FEED_PIPE = "_GRAPHILE_WORKER_FEED_PIPE"
"""Environment variable with the number of a descriptor to which the worker tells what it does."""
COMMAND = (sys.executable, "-P", "-m", "graphile_worker")
LONGEST_LINE = 1024 * 1024

Reader = Callable[[str], object]


class WorkerProcess:
    """A worker that was started; its output is the parent's unless somebody reads it."""

    def __init__(self, process: Process, lifeline: int, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._lifeline = lifeline
        self._readers = readers

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        on_line: Reader | None = None,
        on_feed: Reader | None = None,
    ) -> WorkerProcess:
        """Run the command; `on_line` gets what it prints, `on_feed` what it tells of its jobs."""
        held, lifeline = os.pipe()
        environ = {**environment, PARENT_PIPE: str(held)}
        passed, readers = [held], []
        feed: int | None = None
        if on_feed is not None:
            feed, told = os.pipe()
            environ[FEED_PIPE] = str(told)
            passed.append(told)
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *arguments,
                env=environ,
                pass_fds=passed,
                stdin=DEVNULL,
                stdout=PIPE if on_line else None,
                stderr=PIPE if on_line else None,
                limit=LONGEST_LINE,
                process_group=0,  # Ctrl-C is for the parent, which passes it on exactly once
            )
        except BaseException:
            for descriptor in (lifeline, *([feed] if feed is not None else [])):
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
        return cls(process, lifeline, readers)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Its exit status, negative for a signal, after all it said was read."""
        status = await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        return status

    def send(self, number: int) -> None:
        """Send a signal; one that has ended gets none."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, patience: float) -> int:
        """Ask it to end gracefully; after so many seconds it is killed."""
        self.send(signal.SIGTERM)
        ending = asyncio.ensure_future(self.wait())
        done, _ = await asyncio.wait((ending,), timeout=patience)
        if not done:
            self.send(signal.SIGKILL)
        return await ending


async def _read(stream: asyncio.StreamReader, reader: Reader) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than anybody would read; the rest of it follows as another line
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

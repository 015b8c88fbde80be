"""ChildProcess: the process of an executable task, with its standard streams.

The end of the process is not the end of its output: a background process that it leaves behind may keep the
pipes open. `OutputLines` splits the output into lines for a logger.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from .process_group import ProcessGroup

KILL_TIMEOUT = 10.0
"""Seconds to wait after SIGKILL; the system may be unable to end a process, as on a failed disk."""


class ChildProcess:
    """Start it, wait for `exited`, then `finish_output` and `close`."""

    def __init__(self, stdout: OutputLines, stderr: OutputLines) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit status; a negative one is the number of the signal that ended the process."""
        self._output = (stdout, stderr)
        self._open_outputs = len(self._output)
        self._outputs: list[asyncio.ReadTransport] = []
        self._stdin: asyncio.WriteTransport | None = None
        self._output_ended = asyncio.Event()
        self._group: ProcessGroup | None = None

    async def start(self, path: Path, environment: Mapping[str, str], stdin: bytes) -> None:
        """Start the file without arguments and write `stdin` to it; OSError if it cannot be started."""
        try:
            group = ProcessGroup((str(path),), environment=environment, pipes=True, ends_together=False)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            command = ("/bin/sh", str(path))  # no #! line: do as a shell does
            group = ProcessGroup(command, environment=environment, pipes=True, ends_together=False)
        self._group, self.exited = group, group.exited
        connecting = asyncio.ensure_future(self._connect(group, stdin))
        try:
            await _wait_uninterrupted(connecting)  # a half-finished start cannot be undone cleanly
        finally:
            connecting.result()

    async def end(self, kill_after: float) -> None:
        """Send SIGTERM to the process group, then SIGKILL to those that do not exit; wait for the exit."""
        if self._group is None:
            return
        self._group.signal_all(signal.SIGTERM)
        try:
            await self._group.wait_for_all(kill_after)
        finally:  # also when cancelled again
            self._group.signal_all(signal.SIGKILL)
            await _wait_uninterrupted(self.exited, timeout=KILL_TIMEOUT)

    async def finish_output(self, timeout: float) -> None:
        """Wait for the end of the output; a background process may keep the pipes open beyond the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._output_ended.wait()
        for lines in self._output:
            lines.finish()

    def close(self) -> None:
        """Release all resources; a child that is still running is killed."""
        if self._group is None:
            return
        if not self.exited.done():
            self._group.signal_all(signal.SIGKILL)
        self._group.release()
        if self._stdin is not None and self._stdin.get_write_buffer_size() > 0:
            self._stdin.abort()  # closing would first try to write the rest
        for pipe in (*self._outputs, *([] if self._stdin is None else [self._stdin])):
            pipe.close()

    async def _connect(self, group: ProcessGroup, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        stdin, *outputs = group.streams
        for lines, stream in zip(self._output, outputs, strict=True):
            make_reader = partial(_Reader, lines, self._on_end_of_output)
            self._outputs.append((await loop.connect_read_pipe(make_reader, stream))[0])
        self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, stdin)
        with suppress(OSError, RuntimeError):  # the child may have exited without reading it
            self._stdin.write(data)
            self._stdin.write_eof()

    def _on_end_of_output(self) -> None:
        self._open_outputs -= 1
        if not self._open_outputs:
            self._output_ended.set()


class _Reader(asyncio.Protocol):
    """Reads one of the outputs."""

    def __init__(self, lines: OutputLines, on_end: Callable[[], None]) -> None:
        self._lines = lines
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._lines.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


async def _wait_uninterrupted(future: asyncio.Future[Any], *, timeout: float | None = None) -> None:
    """Wait for something that takes only a moment; a cancellation is raised after it."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    cancelled: asyncio.CancelledError | None = None
    while not future.done() and (until is None or loop.time() < until):
        try:
            await asyncio.wait((future,), timeout=None if until is None else until - loop.time())
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


MAX_LINE = 64 * 1024  # bounds memory when a child writes no newline


class OutputLines:
    """Passes each complete line to `log`; replaces bytes that are not UTF-8, skips empty lines."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self._log = log
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._partial = ""
        self.last = ""
        """The last line passed to `log`."""

    def feed(self, data: bytes) -> None:
        """Process the next bytes."""
        *lines, self._partial = (self._partial + self._decode(data)).split("\n")
        for line in lines:
            self._emit(line)
        while len(self._partial) >= MAX_LINE:
            self._emit(self._partial[:MAX_LINE])
            self._partial = self._partial[MAX_LINE:]

    def finish(self) -> None:
        """Pass on the last line, which has no newline."""
        self._emit(self._partial + self._decode(b"", True))
        self._partial = ""

    def _emit(self, line: str) -> None:
        line = line.rstrip("\r")
        if line:
            self.last = line
            self._log(line)

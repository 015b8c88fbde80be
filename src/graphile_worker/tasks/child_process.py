"""ChildProcess: the process of an executable task, with its standard streams.

Built on asyncio's protocols rather than its `Process`, whose `wait` also waits for the pipes: a child that
leaves a background process behind would never seem to exit.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from .output_lines import OutputLines

KILL_TIMEOUT = 10.0
"""Seconds to wait after SIGKILL; the system may be unable to end a process, as on a failed disk."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class ChildProcess(asyncio.SubprocessProtocol):
    """Start it, wait for `exited`, then `finish_output` and `close`."""

    def __init__(self, stdout: OutputLines, stderr: OutputLines) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        """The exit status; a negative one is the number of the signal that ended the process."""
        self._output = {_STDOUT: stdout, _STDERR: stderr}
        self._open_outputs = {_STDOUT, _STDERR}
        self._output_ended = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(self, path: Path, environment: Mapping[str, str], stdin: bytes) -> None:
        """Start the file without arguments and write `stdin` to it; OSError if it cannot be started."""
        try:
            await self._spawn((str(path),), environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            await self._spawn(("/bin/sh", str(path)), environment)  # no #! line: do as a shell does
        pipe = cast("asyncio.WriteTransport", self._started.get_pipe_transport(_STDIN))
        with suppress(OSError, RuntimeError):  # the child may have exited without reading it
            pipe.write(stdin)
            pipe.write_eof()

    async def end(self, kill_after: float) -> None:
        """Send SIGTERM to the child's process group, then SIGKILL if it does not exit; wait for the exit."""
        if self._transport is None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait((self.exited,), timeout=kill_after)
        finally:  # also when cancelled again
            self._signal(signal.SIGKILL)
            await _wait_uninterrupted(self.exited, timeout=KILL_TIMEOUT)

    async def finish_output(self, timeout: float) -> None:
        """Wait for the end of the output; a background process may keep the pipes open beyond the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._output_ended.wait()
        for lines in self._output.values():
            lines.finish()

    def close(self) -> None:
        """Release all resources; a child that is still running is killed."""
        self._signal(signal.SIGKILL)
        if self._transport is None:
            return
        stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_STDIN))
        if stdin is not None and stdin.get_write_buffer_size() > 0:
            stdin.abort()  # closing would first try to write the rest
        self._transport.close()

    @property
    def _started(self) -> asyncio.SubprocessTransport:
        if self._transport is None:
            raise RuntimeError("the child process was not started")
        return self._transport

    async def _spawn(self, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        # A session of its own: Ctrl-C in the terminal must reach only the worker, for a graceful shutdown.
        # And a signal to the process group also reaches the processes that the child started.
        starting = asyncio.ensure_future(
            asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            )
        )
        try:
            await _wait_uninterrupted(starting)  # a half-finished start cannot be undone cleanly
        finally:
            self._transport, _ = starting.result()

    def _signal(self, number: signal.Signals) -> None:
        if self._transport is None or self.exited.done():
            return  # after the exit its id may belong to another process
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    # -- called by asyncio ---------------------------------------------------------------------------------

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        self._output[fd].feed(cast("bytes", data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd != _STDIN:
            self._open_outputs.discard(fd)
            if not self._open_outputs:
                self._output_ended.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def process_exited(self) -> None:
        status = self._started.get_returncode()
        if status is not None and not self.exited.done():
            self.exited.set_result(status)


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

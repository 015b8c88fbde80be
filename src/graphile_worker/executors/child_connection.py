"""ChildConnection: a process that the worker has started, and the sockets to it.

SharedCounters: two numbers in memory that a worker shares with one of its processes.

The process writes the number of each call before it begins it. So the worker knows, even if the process dies
or is deep in C code, which call it ran and which it had not begun. The worker writes up to which number it
takes calls back that were not begun.

Each side writes its number before it reads the other one. So of a call that is begun and taken back at the
same moment, at least one side notices: the process, which then does not run it and says so.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..tasks.executables.process_group import ProcessGroup
from ..values.lines import Lines, line
from .messages import Ask

DRAIN = 0.2  # seconds to read what a process sent before it died


def search_path() -> list[str]:
    """Where this process finds modules; absolute, because another process may be in another folder."""
    return [os.path.abspath(folder) if folder else os.getcwd() for folder in sys.path]


class ChildConnection(asyncio.Protocol):
    """Starts one process, reads its messages and notices its end.

    One socket is for calls and answers. The other is for requests beside them; the process ends when it is
    closed.
    """

    def __init__(
        self,
        module: str,
        messages: Any,
        *,
        on_messages: Callable[[list[Any]], None],
        on_exit: Callable[[int | None], None],
        is_busy: Callable[[], bool],
    ) -> None:
        """`module`: the program of the process. `messages`: the type of what it sends.

        `on_exit` gets its exit status. `is_busy`: whether it owes an answer, so that it must be killed if it
        closes its end and does not exit.
        """
        self._module = module
        self._lines = Lines(messages)
        self._on_messages = on_messages
        self._on_exit = on_exit
        self._is_busy = is_busy
        self._transport: asyncio.Transport | None = None
        self._control: socket.socket | None = None
        self._group: ProcessGroup | None = None
        self._eof = asyncio.Event()
        self.watching: asyncio.Task[None] | None = None
        self.pid = 0
        self.failure = ""
        """Why it was killed: what it sent cannot be read."""

    async def start(
        self,
        setup: msgspec.Struct,
        *,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start the process and send its first message; OSError if the system cannot.

        Open files in `descriptors` are passed on.
        """
        ours, theirs = socket.socketpair()
        control, their_control = socket.socketpair()
        try:
            passed = (theirs.fileno(), their_control.fileno(), *descriptors)
            command = (sys.executable, "-m", self._module, *map(str, passed))
            self._group = ProcessGroup(command, pass_fds=passed, ends_together=True)
            self.pid = self._group.pid
            self._control = control
            control.setblocking(False)
            ours.setblocking(False)
            await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            control.close()
            self.signal(signal.SIGKILL)
            raise
        finally:
            theirs.close()
            their_control.close()
        self.watching = asyncio.get_running_loop().create_task(
            self._watch(self._group.exited), name=f"graphile-worker process {self.pid}"
        )
        self.write(line(setup))

    def write(self, data: bytes) -> None:
        """Send messages."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def ask(self, request: Ask) -> None:
        """Send a request beside the calls. It is lost if the process does not read them."""
        if self._control is not None:
            with suppress(OSError):
                self._control.send(line(request))

    def signal(self, number: int) -> None:
        """Send a signal to the process; SIGKILL also to those that it has started."""
        if self._group is None:
            return
        if number == signal.SIGKILL:
            self._group.signal_all(number)
        else:
            self._group.signal(number)

    def close(self) -> None:
        """Send no more; the process exits when it has read everything."""
        if self._transport is not None:
            self._transport.close()

    # -- what the process says -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")  # noqa: S101
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Messages have arrived, perhaps many."""
        try:
            messages = self._lines.feed(data)
        except msgspec.DecodeError as error:  # something else writes to its socket
            self.failure = f"it sent something that is no message ({error})"
            self.signal(signal.SIGKILL)
            return
        self._on_messages(messages)

    def connection_lost(self, error: Exception | None) -> None:
        """The process has closed its end, or ours is closed."""
        self._eof.set()

    # -- the end -------------------------------------------------------------------------------------------

    async def _watch(self, exited: asyncio.Future[int]) -> None:
        eof = asyncio.ensure_future(self._eof.wait())
        try:
            await asyncio.wait((exited, eof), return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await asyncio.wait((exited,), timeout=DRAIN)
            if not exited.done() and self._is_busy():
                self.signal(signal.SIGKILL)  # it cannot answer any more
            await asyncio.wait((exited,))
            await asyncio.wait((eof,), timeout=DRAIN)  # a process that it has started may hold the socket
        finally:
            eof.cancel()
        self._on_exit(exited.result())
        self.release()

    def release(self) -> None:
        """Close everything that belongs to it."""
        if self._transport is not None:
            self._transport.abort()
        if self._control is not None:
            self._control.close()
            self._control = None


_SIZE = 16


class SharedCounters:
    """The numbers `begun` and `taken_back`."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._numbers = memoryview(self._memory).cast("Q")

    @property
    def begun(self) -> int:
        """The number of the last call that the process began."""
        return self._numbers[0]

    @property
    def taken_back(self) -> int:
        """Calls up to this number that were not begun are taken back."""
        return self._numbers[1]

    def begin(self, number: int) -> bool:
        """In the process: whether to run the call; False if it was taken back."""
        self._numbers[0] = number
        return number > self._numbers[1]

    def take_back(self, number: int) -> int:
        """In the worker: take back calls up to this number; the number of the last that was begun."""
        self._numbers[1] = number
        return self._numbers[0]

    def close(self) -> None:
        """Release the memory."""
        self._numbers.release()
        self._memory.close()


def new_descriptor() -> int:
    """An open file for them, without a name; close it when both sides have it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("graphile-worker")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    return descriptor

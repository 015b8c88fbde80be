"""ChildHandle: the worker's end of one process that runs tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from ..errors import JobInterruptedError
from .board import Board, new_descriptor
from .call import TaskCall
from .messages import RETURNED, Answer, Ask, Lines, Note, Setup, line
from .run_call import value_of

MODULE = "graphile_worker.executors.child"
DRAIN = 0.2  # seconds to read what a process sent before it died


class Work:
    """One call in a process, or waiting for one."""

    __slots__ = ("answer", "call", "child", "expected", "future", "is_over", "number")

    def __init__(self, call: TaskCall, expected: float) -> None:
        self.call = call
        self.expected = expected
        """Seconds that it will probably run."""
        self.child: ChildHandle | None = None
        self.number = 0
        self.is_over = False
        self.answer: Any = None
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self, answer: Any) -> None:
        """It was answered: by an `Answer`, or by an exception."""
        if not self.is_over:
            self.is_over, self.answer = True, answer
            if not self.future.done():
                self.future.set_result(None)

    def value(self) -> Any:
        """What the task returned; raises what it raised."""
        if isinstance(self.answer, Answer):
            return value_of(self.answer.body)
        raise self.answer


class ChildHandle(asyncio.Protocol):
    """One process: its calls in the order in which it runs them, and what it says."""

    def __init__(
        self,
        *,
        on_answer: Callable[[ChildHandle, Work, Answer], None],
        on_note: Callable[[ChildHandle, Any], None],
        on_exit: Callable[[ChildHandle, int | None], None],
    ) -> None:
        self._on_answer = on_answer
        self._on_note = on_note
        self._on_exit = on_exit
        self._lines = Lines(Answer | Note)
        self._transport: asyncio.Transport | None = None
        self._control: socket.socket | None = None
        self._board: Board | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._eof = asyncio.Event()
        self.watching: asyncio.Task[None] | None = None
        self.works: deque[Work] = deque()
        """Calls without an answer; the first one runs."""
        self.load = 0.0
        """Seconds that these will probably take."""
        self.count = 0
        """Calls that were sent."""
        self.pid = 0
        self.started_at = time.monotonic()
        self.is_ready = False
        self.is_retired = False
        """Whether it gets no more calls."""
        self.is_dead = False
        self.failure = ""
        """Why it could not start."""
        self.seen = 0
        """The running call when it was last looked at."""

    async def start(self, setup: Setup) -> None:
        """Start the process; OSError if the system cannot."""
        # In the thread of the event loop: the kernel ends the process with the thread that started it.
        ours, theirs = socket.socketpair()
        control, their_control = socket.socketpair()
        memory = new_descriptor()
        try:
            self._board = Board(memory)
            descriptors = (theirs.fileno(), their_control.fileno(), memory)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", MODULE, *map(str, descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C reaches the worker only
            )  # fmt: skip
            self.pid = self._process.pid
            self._control = control
            control.setblocking(False)
            ours.setblocking(False)
            await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            control.close()
            self._kill()
            raise
        finally:
            theirs.close()
            their_control.close()
            os.close(memory)
        self.watching = asyncio.get_running_loop().create_task(
            self._watch(self._process), name=f"graphile-worker process {self.pid}"
        )
        self._write(line(setup))

    # -- calls ---------------------------------------------------------------------------------------------

    def send(self, works: list[Work], first: int) -> None:
        """Send calls, numbered from `first` on."""
        now = time.monotonic()
        lines: list[bytes] = []
        for number, work in enumerate(works, first):
            work.child, work.number = self, number
            lines.append(line(work.call.message(number)))
            self.works.append(work)
            self.load += work.expected
        self.count += len(works)
        self._mark_running(now)
        self._write(b"".join(lines))

    def take_back(self) -> list[Work]:
        """Take back all calls but the one that runs, and return those that were not begun."""
        if self._board is None or len(self.works) < 2:
            return []
        begun = self._board.take_back(self.works[-1].number)
        first = self.works[0].number
        back = [work for work in self.works if work.number > begun and work.number != first]
        for work in back:
            self._forget(work)
        return back

    @property
    def running(self) -> Work | None:
        """The call that it runs, if it runs one."""
        try:
            return self.works[0]
        except IndexError:  # also read by other threads
            return None

    def ask(self, request: Ask) -> None:
        """Send a request beside the calls. It is lost if the process does not read them."""
        if self._control is not None:
            with suppress(OSError):
                self._control.send(line(request))

    def signal(self, number: int) -> None:
        """Send a signal to the process; SIGKILL also to those that it has started."""
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def retire(self) -> None:
        """Send no more calls; it exits after the last one."""
        self.is_retired = True
        if not self.works and self._transport is not None:
            self._transport.close()

    def _forget(self, work: Work) -> None:
        self.works.remove(work)
        self.load -= work.expected
        work.child, work.call.started_at, work.call.place = None, None, None

    def _mark_running(self, now: float) -> None:
        if self.works and self.works[0].call.started_at is None:
            call = self.works[0].call
            call.started_at, call.place = now, f"process {self.pid}"

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
        now = time.monotonic()
        for message in messages:
            if isinstance(message, Answer):
                self._answered(message, now)
            else:
                self._on_note(self, message)

    def _answered(self, answer: Answer, now: float) -> None:
        work = next((each for each in self.works if each.number == answer.number), None)
        if work is None:  # taken back, and the process noticed
            return
        if answer.seconds == RETURNED:
            self._forget(work)
            self._on_answer(self, work, answer)
        else:
            self.works.remove(work)
            self.load -= work.expected
            if work.call.started_at is None:
                work.call.started_at = now - answer.seconds
            self._on_answer(self, work, answer)
        self._mark_running(now)
        if self.is_retired and not self.works and self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The process has closed its end, or ours is closed."""
        self._eof.set()

    # -- the end -------------------------------------------------------------------------------------------

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        exited = asyncio.ensure_future(process.wait())
        eof = asyncio.ensure_future(self._eof.wait())
        try:
            await asyncio.wait((exited, eof), return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await asyncio.wait((exited,), timeout=DRAIN)
            if not exited.done() and self.works:
                self.signal(signal.SIGKILL)  # it cannot answer any more
            await exited
            await asyncio.wait((eof,), timeout=DRAIN)  # a process that it has started may hold the socket
        finally:
            exited.cancel()
            eof.cancel()
        self.is_dead = True
        self._on_exit(self, process.returncode)
        self.release()

    @property
    def was_begun(self) -> bool:
        """Whether the process has begun the first of its calls."""
        return bool(self.works) and self._board is not None and self._board.begun >= self.works[0].number

    def release(self) -> None:
        """Close everything that belongs to it."""
        if self._transport is not None:
            self._transport.abort()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._board is not None:
            self._board.close()
            self._board = None

    def _kill(self) -> None:
        self.signal(signal.SIGKILL)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def interrupted(call: TaskCall) -> JobInterruptedError:
    """The error of a call that was not begun when the worker asked its tasks to end."""
    return JobInterruptedError(call.helpers.abort_signal.reason)

"""ChildHandle: the worker's end of one process that runs tasks.

- `ChildConnection` is a process that the worker has started, and the sockets to it.
- `StackRequests` asks what a call does, and waits for the note that answers.
- `SharedCounters` are two numbers in memory that a worker shares with one of its processes. The process
  writes the number of each call before it begins it. So the worker knows, even if the process dies or is deep
  in C code, which call it ran and which it had not begun. The worker writes up to which number it takes calls
  back that were not begun. Each side writes its number before it reads the other one. So of a call that is
  begun and taken back at the same moment, at least one side notices: the process, which then does not run it
  and says so.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from ..errors import JobInterruptedError
from ..tasks.executables.process_group import ProcessGroup
from ..tasks.stacks import TaskStack
from ..values.lines import Lines, line
from .call import TaskCall
from .messages import RETURNED, Answer, Ask, Note, Setup, StackNote
from .run_call import value_of

MODULE = "graphile_worker.executors.child"


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


class ChildHandle:
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
        self._connection = ChildConnection(
            MODULE,
            Answer | Note,
            on_messages=self._received,
            on_exit=self._exited,
            is_busy=lambda: bool(self.works),
        )
        self.ask, self.signal = self._connection.ask, self._connection.signal
        self._counters: SharedCounters | None = None
        self.works: deque[Work] = deque()
        """Calls without an answer; the first one runs."""
        self.load = 0.0
        """Seconds that these will probably take."""
        self.count = 0
        """Calls that were sent."""
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
        memory = new_descriptor()
        try:
            self._counters = SharedCounters(memory)
            await self._connection.start(setup, descriptors=(memory,))
        finally:
            os.close(memory)

    @property
    def pid(self) -> int:
        return self._connection.pid

    @property
    def watching(self) -> asyncio.Task[None] | None:
        """Ends when the process has ended and its calls are taken care of."""
        return self._connection.watching

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
        self._connection.write(b"".join(lines))

    def take_back(self) -> list[Work]:
        """Take back all calls but the one that runs, and return those that were not begun."""
        if self._counters is None or len(self.works) < 2:
            return []
        begun = self._counters.take_back(self.works[-1].number)
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

    def retire(self) -> None:
        """Send no more calls; it exits after the last one."""
        self.is_retired = True
        if not self.works:
            self._connection.close()

    def _forget(self, work: Work) -> None:
        self.works.remove(work)
        self.load -= work.expected
        work.child, work.call.started_at, work.call.place = None, None, None

    def _mark_running(self, now: float) -> None:
        if self.works and self.works[0].call.started_at is None:
            call = self.works[0].call
            call.started_at, call.place = now, f"process {self.pid}"

    # -- what the process says -----------------------------------------------------------------------------

    def _received(self, messages: list[Any]) -> None:
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
        if self.is_retired and not self.works:
            self._connection.close()

    @property
    def was_begun(self) -> bool:
        """Whether the process has begun the first of its calls."""
        return (
            bool(self.works) and self._counters is not None and self._counters.begun >= self.works[0].number
        )

    def _exited(self, status: int | None) -> None:
        self.is_dead = True
        self.failure = self.failure or self._connection.failure
        self._on_exit(self, status)
        if self._counters is not None:
            self._counters.close()
            self._counters = None


def interrupted(call: TaskCall) -> JobInterruptedError:
    """The error of a call that was not begun when the worker asked its tasks to end."""
    return JobInterruptedError(call.helpers.abort_signal.reason)


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

    async def start(self, setup: msgspec.Struct, *, descriptors: Sequence[int] = ()) -> None:
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
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._lines.feed(data)
        except msgspec.DecodeError as error:  # something else writes to its socket
            self.failure = f"it sent something that is no message ({error})"
            self.signal(signal.SIGKILL)
            return
        self._on_messages(messages)

    def connection_lost(self, error: Exception | None) -> None:
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


ANSWER_WITHIN = 3.0
"""Seconds; code that holds the interpreter keeps a process from answering."""


class StackRequests:
    """Requests without an answer, by the number of the call."""

    def __init__(self) -> None:
        self._asked: dict[int, asyncio.Future[TaskStack]] = {}

    async def ask(self, number: int, send: Callable[[], object]) -> TaskStack | None:
        """The answer to what `send` asks; None if there is none in time."""
        answer = self._asked.get(number)
        if answer is None:
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            send()
        try:
            done, _ = await asyncio.wait((answer,), timeout=ANSWER_WITHIN)
        finally:
            if self._asked.get(number) is answer:
                del self._asked[number]
        return answer.result() if done else None

    def answered(self, note: StackNote) -> None:
        answer = self._asked.get(note.number)
        if answer is not None and not answer.done():
            answer.set_result(note.stack)

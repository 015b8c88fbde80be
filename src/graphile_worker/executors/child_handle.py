"""ChildHandle: the worker's end of one process that runs tasks.

How much memory a process uses.

StackRequests: asks what a call does, and waits for the note that answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..errors import JobInterruptedError
from ..tasks.stacks import TaskStack
from ..values.lines import line
from .call import TaskCall
from .child_connection import ChildConnection, SharedCounters, new_descriptor
from .messages import RETURNED, Answer, Note, Setup, StackNote
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
        """The process id."""
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


def memory_of(pid: int | None) -> int | None:
    """Bytes of a process, or of this one; None if the system does not say.

    Where there is no /proc, this is the most that this process ever used, and nothing is known of others.
    """
    try:
        with open(f"/proc/{'self' if pid is None else pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        pass
    if pid is not None or sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


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
        """An answer has arrived."""
        answer = self._asked.get(note.number)
        if answer is not None and not answer.done():
            answer.set_result(note.stack)

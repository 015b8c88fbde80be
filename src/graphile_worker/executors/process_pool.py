"""ProcessPool: the processes of one executor, and the calls that wait for one.

It decides which process gets which calls, starts processes when they are needed, and replaces those that end.
The death of a process fails the call it ran, and nothing else: calls that it had not begun run elsewhere.

A round trip costs more than a short task. So `ProcessPace` knows how long tasks run, and calls are sent ahead
for as long as they will probably take together, a few milliseconds; a task that is not known yet gets a
process for itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from ..errors import ProcessDiedError
from ..errors.text import message_of
from ..hooks.faults import logged
from ..tasks.stacks import TaskStack
from ..values.text import duration, signal_name
from .call import TaskCall
from .child_handle import ChildHandle, StackRequests, Work, interrupted
from .messages import (
    RETURNED,
    Answer,
    Ask,
    LogNote,
    MemoryNote,
    ProgressNote,
    ReadyNote,
    Setup,
    StackNote,
    StartFailure,
    log_again,
)

AHEAD = 0.002
"""Seconds of work in a process, beyond which it gets no further call."""
MOST = 64
"""Calls in a process."""
UNKNOWN = 1.0
"""Seconds to expect of a task that has not run yet."""
PATIENCE = 0.01
"""Seconds after which the calls behind a slow one are taken back."""
OVERHEAD = 0.00002
"""Seconds that each call costs a process."""

START_LIMIT = 60.0  # seconds for a process to load its tasks
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0  # seconds after a process could not start
HOPELESS = 3
"""Processes that could not start, one after another, until waiting calls fail."""
EXIT_LIMIT = 2.0  # seconds for an idle process to exit

logger = logging.getLogger("graphile_worker.executors")


class ProcessPool:
    """At most `size` processes, started when they are needed."""

    def __init__(self, size: int, setup: Callable[[], Setup], max_jobs: int | None) -> None:
        self._size = size
        self._setup = setup
        self._max_jobs = max_jobs
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # nothing here belongs to the job that happens to cause it
        self._pace = ProcessPace()
        self._waiting: deque[Work] = deque()
        self._number = 0
        self._failures = 0
        self._starting = 0
        self._may_start_at = 0.0
        self._dispatch_is_due = False
        self._look: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.all: list[ChildHandle] = []
        self.stacks = StackRequests()

    # -- calls ---------------------------------------------------------------------------------------------

    def submit(self, call: TaskCall) -> Work:
        """Have a call run as soon as a process is free."""
        work = Work(call, self._pace.expected(call.identifier))
        self._waiting.append(work)
        self._dispatch_soon()
        return work

    def withdraw(self, work: Work) -> bool:
        """Take back a call that was not begun; False if it runs, or has run."""
        if work.child is not None and work.child.running is not work:
            self._take_back(work.child)
        if work in self._waiting:
            self._waiting.remove(work)
            return True
        return False

    async def stack_of(self, work: Work) -> TaskStack | None:
        """What a running call does now; None if its process does not answer in time."""
        child = work.child
        if child is None or child.running is not work:
            return None
        return await self.stacks.ask(work.number, lambda: child.ask(Ask(work.number, "stack")))

    def abort(self, reason: str) -> None:
        """Ask running calls to end, and end those that wait."""
        while self._waiting:
            work = self._waiting.popleft()
            work.end(interrupted(work.call))
        for child in self.all:
            for back in child.take_back():
                back.end(interrupted(back.call))
            if (running := child.running) is not None:
                child.ask(Ask(running.number, "abort", reason))

    def _dispatch_soon(self) -> None:
        # Once per turn of the event loop, so that all slots that are awake share a write.
        if not self._dispatch_is_due:
            self._dispatch_is_due = True
            self._loop.call_soon(self._dispatch, context=self._context)

    def _dispatch(self) -> None:
        self._dispatch_is_due = False
        if not self._waiting:
            return
        for child in sorted(self.all, key=lambda child: child.load):
            if child.is_ready and not child.is_retired and not child.is_dead:
                self._fill(child)
        if self._waiting:
            self._start_another()

    def _fill(self, child: ChildHandle) -> None:
        """Send as many calls as the process can run soon."""
        works: list[Work] = []
        load, held = child.load, len(child.works)
        room = MOST - held if self._max_jobs is None else min(MOST - held, self._max_jobs - child.count)
        while self._waiting and len(works) < room:
            work = self._waiting[0]
            if (held or works) and load + work.expected > AHEAD:
                break
            works.append(self._waiting.popleft())
            load += work.expected
        if not works:
            return
        child.send(works, self._number + 1)
        self._number += len(works)
        if self._max_jobs is not None and child.count >= self._max_jobs:
            logger.debug("process %d is replaced after %d jobs", child.pid, child.count)
            child.retire()
        if len(child.works) > 1 and self._look is None:
            self._look = self._loop.call_later(PATIENCE, self._look_for_slow_calls, context=self._context)

    def _look_for_slow_calls(self) -> None:
        """Take back calls that wait behind one that turned out to be slow."""
        self._look = None
        for child in self.all:
            running = child.running
            if running is None or len(child.works) < 2:
                continue
            if running.number == child.seen:
                self._take_back(child)
                child.load += UNKNOWN - running.expected
                running.expected = UNKNOWN
            else:
                child.seen = running.number
        if any(len(child.works) > 1 for child in self.all):
            self._look = self._loop.call_later(PATIENCE, self._look_for_slow_calls, context=self._context)

    def _take_back(self, child: ChildHandle) -> None:
        self._waiting.extendleft(reversed(child.take_back()))
        self._dispatch_soon()

    # -- processes -----------------------------------------------------------------------------------------

    def resize(self, size: int) -> None:
        """Have at most this many processes: start more when needed, or end some after their calls."""
        self._size = size
        serving = [child for child in self.all if not child.is_retired and not child.is_dead]
        ready = sorted((child for child in serving if child.is_ready), key=lambda child: child.load)
        for child in ready[: max(0, len(serving) - size)]:
            self._waiting.extendleft(reversed(child.take_back()))
            child.retire()
        self._dispatch_soon()

    def _start_another(self) -> None:
        if self._is_closed or len(self.all) + self._starting >= self._size:
            return
        if (all(child.is_ready for child in self.all) and self._starting == 0) or self._failures == 0:
            self._starting += 1
            self._background(self._start(), "start of a process")

    async def _start(self) -> None:
        child = ChildHandle(on_answer=self._answered, on_note=self._noted, on_exit=self._exited)
        try:
            pause = self._may_start_at - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            if self._is_closed or not self._waiting:
                return
            await child.start(self._setup())
        except Exception as error:
            self._could_not_start(message_of(error))
            return
        finally:
            self._starting -= 1
        self.all.append(child)
        self._background(self._limit_start(child), "limit of a start")

    async def _limit_start(self, child: ChildHandle) -> None:
        await asyncio.sleep(START_LIMIT)
        if not child.is_ready and not child.is_dead:
            child.failure = f"it did not load its tasks within {START_LIMIT:g} seconds"
            child.signal(signal.SIGKILL)

    def _could_not_start(self, why: str) -> None:
        self._failures += 1
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        self._may_start_at = time.monotonic() + pause
        logger.error("a process for tasks could not start: %s; trying again in %s", why, duration(pause))
        if self._failures >= HOPELESS:
            while self._waiting:
                self._waiting.popleft().end(
                    ProcessDiedError(f"no process for the task could be started: {why}")
                )
        self._dispatch_soon()

    def _answered(self, child: ChildHandle, work: Work, answer: Answer) -> None:
        if answer.seconds == RETURNED:
            self._waiting.appendleft(work)
        else:
            self._pace.ran(work.call.identifier, answer.seconds)
            work.end(answer)
        if self._waiting:
            self._dispatch_soon()

    def _noted(self, child: ChildHandle, note: Any) -> None:
        if isinstance(note, LogNote | ProgressNote):
            work = next((each for each in child.works if each.number == note.number), None)
            helpers = None if work is None else work.call.helpers
            if isinstance(note, LogNote):
                log_again(note.record, helpers)
            elif helpers is not None and (receive := helpers._services.progress.receive) is not None:
                receive(helpers.job.id, note.report)
        elif isinstance(note, ReadyNote):
            child.is_ready, self._failures = True, 0
            self._dispatch_soon()
        elif isinstance(note, StackNote):
            self.stacks.answered(note)
        elif isinstance(note, StartFailure):
            child.failure = note.text
        elif isinstance(note, MemoryNote) and not child.is_retired:
            logger.info(
                "process %d is replaced after %d jobs: it uses %.0f MB",
                child.pid,
                child.count,
                note.bytes / 1e6,
            )
            self._waiting.extendleft(reversed(child.take_back()))
            child.retire()

    def _exited(self, child: ChildHandle, status: int | None) -> None:
        self.all.remove(child)
        works = list(child.works)
        if works and child.was_begun:
            works.pop(0).end(ProcessDiedError(_how_it_died(child, status), status))
        for work in works:
            work.child, work.call.started_at, work.call.place = None, None, None
        child.works.clear()
        self._waiting.extendleft(reversed(works))
        if not child.is_ready and not self._is_closed:
            self._could_not_start(child.failure or f"it {_status(status)}")
        self._dispatch_soon()

    # -- the end -------------------------------------------------------------------------------------------

    async def close(self) -> None:
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        for child in self.all:
            if child.works:
                child.signal(signal.SIGKILL)
            child.retire()
        watching = [child.watching for child in self.all if child.watching is not None]
        if watching:
            _, late = await asyncio.wait(watching, timeout=EXIT_LIMIT)
            for child in [child for child in self.all if child.watching in late]:
                child.signal(signal.SIGKILL)
            if late:
                await asyncio.wait(late, timeout=EXIT_LIMIT)
        for task in self._tasks:
            task.cancel()
        for work in self._waiting:
            work.end(ProcessDiedError("the executor was closed"))

    def _background(self, work: Any, name: str) -> None:
        task = self._loop.create_task(
            logged(work, name), name=f"graphile-worker {name}", context=self._context
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it never began if the task was cancelled before


def _status(status: int | None) -> str:
    if status is None:
        return "ended"
    return f"was ended by {signal_name(-status)}" if status < 0 else f"exited with status {status}"


def _how_it_died(child: ChildHandle, status: int | None) -> str:
    hint = "; perhaps the system ran out of memory" if status == -signal.SIGKILL else ""
    if status is not None and status >= 0:
        hint = "; a task must return or raise, not end its process"
    return f"{child.failure or f'the process that ran the task {_status(status)}{hint}'}"


class ProcessPace:
    """The usual run time of each task, by identifier."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def expected(self, identifier: str) -> float:
        """Seconds that a call will probably take."""
        return self._seconds.get(identifier, UNKNOWN)

    def ran(self, identifier: str, seconds: float) -> None:
        """Learn from a call; slower ones count for more, because others wait behind them."""
        seconds += OVERHEAD
        known = self._seconds.get(identifier, seconds)
        share = 0.5 if seconds > known else 0.1
        self._seconds[identifier] = known + share * (seconds - known)

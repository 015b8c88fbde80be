"""The worker's side of an executor on a cluster: its connection, and its calls.

`ClusterCalls` are those that the executor has sent there, and what they say. `Connecting` makes the
connection again after it was lost.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Generic, TypeVar

from ..recovery.registry.pool_state import ExecutorPlace
from .call import TaskCall
from .child_handle import StackRequests
from .messages import ClusterNote, LogNote, MemoryNote, StackNote, StartedNote, log_again


class ClusterCalls:
    """Calls by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._calls: dict[int, TaskCall] = {}
        self._memory: dict[int, int] = {}
        self.stacks = StackRequests()

    @contextmanager
    def added(self, call: TaskCall) -> Iterator[int]:
        """The number of a call, which is known until the block ends."""
        number = next(self._numbers)
        self._calls[number] = call
        try:
            yield number
        finally:
            del self._calls[number]
            self._memory.pop(number, None)

    def noted(self, note: ClusterNote) -> None:
        """A note of a call has arrived. Notes of calls that have ended are dropped."""
        call = self._calls.get(note.number)
        if call is None:
            return
        if isinstance(note, StartedNote):
            call.started_at, call.place = time.monotonic(), note.place
            if note.memory is not None:
                self._memory[note.number] = note.memory
        elif isinstance(note, MemoryNote):
            self._memory[note.number] = note.bytes
        elif isinstance(note, StackNote):
            self.stacks.answered(note)
        elif isinstance(note, LogNote):
            log_again({**note.record, "name": call.helpers._services.logger.name}, call.helpers)
        elif (receive := call.helpers._services.progress.receive) is not None:
            receive(call.job.id, note.report)

    def places(self, name: str) -> list[ExecutorPlace]:
        """Which machine of the cluster runs which job. May be called from any thread."""
        return [
            ExecutorPlace(
                executor=name, place=call.place, job_id=call.job.id, memory=self._memory.get(number)
            )
            for number, call in list(self._calls.items())
            if call.place is not None
        ]


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after the cluster could not be reached

T = TypeVar("T")


class Connecting(Generic[T]):
    """Connects when it is needed. All who wait share an attempt; the one after a failure waits longer."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, T]], is_open: Callable[[T], bool]) -> None:
        self._connect = connect
        self._is_open = is_open
        self._attempt: asyncio.Task[T] | None = None
        self._pause = FIRST_PAUSE
        self._may_connect_at = 0.0
        self.current: T | None = None
        """The last connection, perhaps lost."""

    async def get(self) -> T:
        """An open connection; raises why there is none."""
        if self.current is not None and self._is_open(self.current):
            return self.current
        if self._attempt is None:
            # Not in the context of the job that happens to cause it.
            self._attempt = asyncio.get_running_loop().create_task(self._try(), context=Context())
            self._attempt.add_done_callback(self._tried)
        return await asyncio.shield(self._attempt)

    def stop(self) -> None:
        """Give up an attempt."""
        if self._attempt is not None:
            self._attempt.cancel()

    async def _try(self) -> T:
        if (wait := self._may_connect_at - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        return await self._connect()

    def _tried(self, attempt: asyncio.Task[T]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        if attempt.exception() is None:
            self.current, self._pause = attempt.result(), FIRST_PAUSE
        else:
            self._may_connect_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

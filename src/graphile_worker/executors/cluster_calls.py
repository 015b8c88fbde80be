"""ClusterCalls: in the worker, the calls that an executor has sent to a cluster, and what they say."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..recovery.pool_state import ExecutorPlace
from .call import TaskCall
from .log_records import log_again
from .messages import ClusterNote, LogNote, MemoryNote, StackNote, StartedNote
from .stack_requests import StackRequests


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

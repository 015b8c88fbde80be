"""TaskExecutor: what runs tasks outside of the worker, and TaskCall: one job on its way there.

For the rest of the worker such a job is a running coroutine: time limits, cancelling, grace and shutdown
cancel it, and the executor sees to it that the work ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from ..tasks.helpers import JobHelpers
from ..tasks.stacks import TaskStack as TaskStack
from ..values.job import Job
from .messages import CallMessage


class TaskCall(msgspec.Struct, kw_only=True, eq=False):
    """One job for an executor."""

    where: str
    """How the task is found again: `package.module:name`, or a file and a name."""
    job: Job
    helpers: JobHelpers
    """The helpers of the job in this process: its abort signal, its logger and its progress."""
    timeout: float | None = None
    """Seconds that the attempt may run. The worker enforces it; the other side may want to know."""
    context: tuple[tuple[str, str], ...] = ()
    """What `Hooks.carry_context` has captured: for each, the function that restores it, and a text."""
    started_at: float | None = None
    """When the task began to run, by `time.monotonic`. Set by the executor; time limits count from here."""
    place: str | None = None
    """Where it runs, such as `process 4711`. Set by the executor, for those who look at workers."""
    ask_stack: Callable[[], Awaitable[TaskStack | None]] | None = None
    """Asks what the task does now; None if there is no answer in time. Set by executors that can."""

    @property
    def identifier(self) -> str:
        """The task identifier."""
        return self.job.task_identifier

    def message(self, number: int = 0) -> CallMessage:
        """The call as a message, which `executors.messages` encodes; no object of this process is in it."""
        return CallMessage(
            number=number,
            where=self.where,
            job=msgspec.structs.astuple(self.job),
            worker_id=self.helpers.worker_id,
            context=self.context,
            timeout=self.timeout,
        )


class TaskExecutor(Protocol):
    """Runs tasks outside of the worker. One object serves one worker at a time."""

    async def start(self, tasks: Sequence[Any]) -> None:
        """Called with the tasks of this executor before the first job; raise to stop the worker's start."""
        ...

    async def run(self, call: TaskCall) -> Any:
        """Run one job and return what its task returned, or raise what it raised.

        When it is cancelled, it must see to it that the work ends, and then raise CancelledError. A result
        that arrives in spite of that may be returned.
        """
        ...

    # May also have `def places(self, name: str) -> list[ExecutorPlace]`, for those who look at workers.

    async def close(self) -> None:
        """Release everything. Called after the last job has ended, and if the worker could not start."""
        ...

"""TaskExecutor: what runs tasks outside of the worker, and TaskCall: one job on its way there.

For the rest of the worker such a job is a running coroutine: time limits, cancelling, grace and shutdown
cancel it, and the executor sees to it that the work ends.

`bind_tasks` binds tasks to the executors that run them. A bound task is a copy whose call is a coroutine that
waits for the executor. The rest of the worker treats it like any other coroutine, so jobs of other tasks pay
nothing.

`end_call` ends a call that runs elsewhere, step by step: it is asked, then interrupted, then killed.
`follow_worker` passes the worker's request to end on to tasks that run elsewhere.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from ..errors import ConfigError, JobInterruptedError, TaskLoadError
from ..hooks.hooks import Carrier
from ..tasks.executables.process_group import SHUTDOWN_LIMIT
from ..tasks.helpers import JobHelpers
from ..tasks.signature import load_error
from ..tasks.stacks import TaskStack as TaskStack
from ..tasks.task import AnyTask
from ..values.job import Job
from .location import where_is
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


def tasks_of_executors(tasks: Mapping[str, AnyTask], known: Mapping[str, object]) -> dict[str, list[AnyTask]]:
    """The tasks of each executor that is used; TaskLoadError for one that does not exist."""
    found: dict[str, list[AnyTask]] = {}
    for task in tasks.values():
        if (name := task.rules.executor) is not None:
            if name not in known:
                raise load_error(
                    task.function,
                    f"the task {task.identifier!r} wants the executor {name!r}, which this worker does not "
                    f"have; it has: {', '.join(sorted(known))}. Pass it as run(executors={{{name!r}: ...}})",
                )
            _check(task, name)
            found.setdefault(name, []).append(task)
    return found


def bind_tasks(
    tasks: Mapping[str, AnyTask], executors: Mapping[str, TaskExecutor], *, carriers: Sequence[Carrier] = ()
) -> dict[str, AnyTask]:
    """The same tasks; those with an executor are called through it."""
    return {
        name: task if task.rules.executor is None else _bound(task, executors[task.rules.executor], carriers)
        for name, task in tasks.items()
    }


def _bound(task: AnyTask, executor: TaskExecutor, carriers: Sequence[Carrier]) -> AnyTask:
    bound = copy.copy(task)
    bound.is_async = True
    bound._decode = _undecoded
    bound._set_invoke(_invoker(executor, where_is(task, task.rules.executor or ""), task, carriers))
    return bound


def _invoker(
    executor: TaskExecutor, where: str, task: AnyTask, carriers: Sequence[Carrier]
) -> Callable[[Any, JobHelpers], Coroutine[Any, Any, Any]]:
    timeout = None if task.rules.time_limit is None else task.rules.time_limit.seconds

    def invoke(payload: Any, helpers: JobHelpers) -> Coroutine[Any, Any, Any]:
        call = TaskCall(where=where, job=helpers.job, helpers=helpers, timeout=timeout)
        if carriers:
            call.context = tuple(
                (restore, text) for capture, restore in carriers if (text := capture()) is not None
            )
        helpers._call = call
        return executor.run(call)

    return invoke


def _undecoded(raw: str) -> Any:
    """The payload is decoded where the task runs."""
    return raw


def _check(task: AnyTask, executor: str) -> None:
    where_is(task, executor)
    if task._injection is not None:
        for kind in task._injection.kinds(None):
            name = getattr(kind, "__name__", kind)
            raise TaskLoadError(
                f"the task {task.identifier!r} asks for the extension {name}, which does not exist in the "
                f"executor {executor!r}: extensions stay in the worker; make the object in its module, or "
                "with Depends",
                path=task.path,
                line=task.line,
            )


KILL_LIMIT = 5.0  # seconds to wait after the last step


def checked_seconds(name: str, value: float) -> float:
    """The setting, if it is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigError(f"{name}: expected a number of seconds, got {value!r}")
    return float(value)


async def end_call(
    call: TaskCall,
    ended: asyncio.Future[Any],
    kill_after: float,
    *,
    ask: Callable[[str], object],
    interrupt: Callable[[], object],
    kill: Callable[[], object],
) -> None:
    """Returns if the call has answered; raises CancelledError if it had to be killed.

    `ended` is done when the call has answered, or cannot any more. `kill_after`: seconds between the first
    and the last step, fewer if the cause of the end allows only that. `ask` gets the reason.
    """
    signal = call.helpers.abort_signal
    limit = min(kill_after, SHUTDOWN_LIMIT if signal._grace is None else signal._grace)
    try:
        ask(signal.reason or "the worker is stopping")
        await asyncio.wait((ended,), timeout=limit / 2)
        if not ended.done():
            interrupt()
            await asyncio.wait((ended,), timeout=limit / 2)
    finally:  # also when it is cancelled once more
        if not ended.done():
            kill()
            await _wait_uninterrupted(ended)
            raise asyncio.CancelledError


def value_after_end(value: Callable[[], Any]) -> Any:
    """What a call returned or raised although it was asked to end; CancelledError if it was interrupted."""
    try:
        return value()
    except JobInterruptedError:
        raise asyncio.CancelledError from None


async def _wait_uninterrupted(future: asyncio.Future[Any]) -> None:
    """Wait for the end of what was killed; cancelling this does not end the wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_LIMIT
    while not future.done() and (left := deadline - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=left)


def follow_worker(call: TaskCall, abort: Callable[[str], object]) -> Callable[[], None]:
    """When the worker of this call asks its tasks to end, call `abort` in this event loop, with the reason.

    Returns a function that ends this.
    """
    worker = call.helpers._services.abort_signal
    loop = asyncio.get_running_loop()

    def pass_on() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(abort, worker.reason)

    return worker.on_set(pass_on)

"""Binds tasks to the executors that run them.

A bound task is a copy whose call is a coroutine that waits for the executor. The rest of the worker treats it
like any other coroutine, so jobs of other tasks pay nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ..errors import TaskLoadError
from ..hooks.hooks import Carrier
from ..tasks.helpers import JobHelpers
from ..tasks.signature import load_error
from ..tasks.task import AnyTask
from .call import TaskCall, TaskExecutor
from .location import where_is


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
    tasks: Mapping[str, AnyTask],
    executors: Mapping[str, TaskExecutor],
    *,
    carriers: Sequence[Carrier] = (),
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

"""Calling a task: a coroutine on the event loop, or a plain function in a thread."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from .helpers import JobHelpers
from .task import AnyTask
from .threads import TaskThreads


def call_task(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Awaitable[Any]:
    """Call a task with a decoded payload; await the returned value for what the function returned.

    The caller has set `current_helpers` in this context. For an `async def` the returned value is the task's
    own coroutine, without a wrapper.
    """
    if task.is_async:
        coroutine: Awaitable[Any] = task._invoke(payload, helpers)
        return coroutine
    return _call_in_thread(task, payload, helpers, threads)


async def _call_in_thread(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Any:
    label = label_of(task.identifier, helpers.job.id)
    helpers._in_thread = threads.submit(label, task._invoke, payload, helpers)
    try:
        return await helpers._in_thread
    finally:
        helpers._in_thread = None


def label_of(identifier: str, job_id: int) -> str:
    """The name of a call in a thread."""
    return f"{identifier} (job {job_id})"

"""Calling a task: a coroutine on the loop, or a plain function in a thread.

The worker has put the current job into the context, where the task, what it calls and what it starts see it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

from .helpers import JobHelpers
from .task import AnyTask
from .threads import TaskThreads


def call_task(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Awaitable[Any]:
    """Start a task with a decoded payload; await what comes back for its result.

    Call it in the asyncio task that drives the job, where `current_job` is set. For an `async def` this is
    the task's own coroutine, with nothing around it.
    """
    if task.is_async:
        coroutine: Awaitable[Any] = task._invoke(payload, helpers)
        return coroutine
    return _call_in_thread(task, payload, helpers, threads)


async def _call_in_thread(task: AnyTask, payload: Any, helpers: JobHelpers, threads: TaskThreads) -> Any:
    label = f"{task.identifier} (job {helpers.job.id})"
    result = await threads.submit(label, task._invoke, payload, helpers)
    # A plain function may hand back a coroutine, as decorated ones do; that part runs on the loop.
    return await result if inspect.isawaitable(result) else result

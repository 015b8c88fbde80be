"""Interceptors: functions that decide before a job is added, around its run, and on recovery.

An interceptor is a plain function or a coroutine function. None means "no objection". Several are called in
the order in which they were installed; those around a run nest, the first one outermost.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..values.job import Job
from ..values.outcome import Outcome
from .faults import as_exception, is_our_end

if TYPE_CHECKING:
    from ..values.spec import JobSpec


class SkipJob(msgspec.Struct, frozen=True):
    """From `before_run`: do not call the task; the job counts as completed."""

    reason: str


class FailJob(msgspec.Struct, frozen=True):
    """From `before_run`: do not call the task; the job fails with this message and is retried."""

    message: str


class LeaveLocked(msgspec.Struct, frozen=True):
    """From `on_recovery`: leave the job locked until the next sweep."""


BeforeAdd = Callable[["JobSpec"], "JobSpec | Awaitable[JobSpec | None] | None"]
"""May return a changed spec; raises JobRefusedError to refuse."""
BeforeRun = Callable[[Job], "SkipJob | FailJob | Awaitable[SkipJob | FailJob | None] | None"]
"""Runs in the task's own context, so the task sees a context variable that is set here."""
AfterRun = Callable[[Job, Outcome], "Awaitable[None] | None"]
"""Gets the outcome in the task's context, before it is written."""
CallNext = Callable[[], Awaitable[Outcome]]
"""Runs the next interceptor, at last the task. Returns the outcome; a failed task does not raise here."""
AroundRun = Callable[[Job, CallNext], "Awaitable[Outcome | None]"]
"""`async def around(job, call_next)`: awaits `call_next()` once and returns the outcome.

It encloses `before_run`, the task and `after_run`, in the task's context. Reset the context variables that
you set: a slot with a changed context is replaced, which costs time.

It may return another `Completed`, `Failed` or `Snoozed` than it got; None keeps the outcome. If it raises, a
job that was completed fails; a failed one keeps its own error, a snoozed one stays snoozed. An interrupted
job stays interrupted.
"""
OnRecovery = Callable[[Job], "FailJob | LeaveLocked | Awaitable[FailJob | LeaveLocked | None] | None"]
"""Decides about one job of a dead worker; None returns it to the queue."""


async def resolve(value: Any) -> Any:
    """The value, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain function or a coroutine function of the application.

    It may raise anything. What comes out of here is an Exception, or a cancellation of the calling task.
    """
    try:
        return await resolve(function(*arguments))
    except Exception:
        raise
    except BaseException as error:
        if is_our_end(error):
            raise
        raise as_exception(error) from error

"""The few places where others may steer: before a job is added, before and after it runs, on recovery.

An interceptor is a plain function or a coroutine function. Its result is an explicit value; None means
"go on". Several are asked in the order in which they were installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..job import Job
from ..outcome import Outcome

if TYPE_CHECKING:
    from ..spec import JobSpec


class SkipJob(msgspec.Struct, frozen=True):
    """From `before_run`: do not call the task; the job counts as completed."""

    reason: str


class FailJob(msgspec.Struct, frozen=True):
    """From `before_run`: do not call the task; the job fails with this message and is retried."""

    message: str


class LeaveLocked(msgspec.Struct, frozen=True):
    """From `on_recovery`: do not touch the job now; it is looked at again at the next sweep."""


BeforeAdd = Callable[["JobSpec"], "JobSpec | Awaitable[JobSpec | None] | None"]
"""May return a changed spec; raises JobRefusedError to refuse."""
BeforeRun = Callable[[Job], "SkipJob | FailJob | Awaitable[SkipJob | FailJob | None] | None"]
"""Runs in the task's own context, so a context variable set here is seen by the task."""
AfterRun = Callable[[Job, Outcome], "Awaitable[None] | None"]
"""Sees how the attempt ended, in the task's context, before that is written."""
OnRecovery = Callable[[Job], "FailJob | LeaveLocked | Awaitable[FailJob | LeaveLocked | None] | None"]
"""Decides about one job of a dead worker; None gives it back."""


async def resolve(value: Any) -> Any:
    """The value, or what it comes to when it is awaitable."""
    return await value if inspect.isawaitable(value) else value

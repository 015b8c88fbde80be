"""Functions of the application that decide: interceptors and redactors.

Interceptors decide before a job is added, around its run, and on recovery. One is a plain function or a
coroutine function. None means "no objection". Several are called in the order in which they were installed;
those around a run nest, the first one outermost.

Redactors decide what of a job may be kept in the history and shown to people. They are called with the part
(`payload`, `result` or `error`), the task identifier and the JSON value, and return the value to keep. A
redactor that fails must not let a secret pass: then the whole value is replaced.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ConfigError
from ..errors.text import place_of, type_name
from ..values.job import Job
from ..values.outcome import Outcome
from ..values.payload import encode
from .faults import as_exception, is_our_end

if TYPE_CHECKING:
    from ..values.spec import JobSpec


class SkipJob(msgspec.Struct, frozen=True):
    """From `before_run`: do not call the task; the job is completed."""

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


KeptPart = Literal["payload", "result", "error"]
"""What a redactor gets: a payload, a result, or the text of an error (message or traceback)."""
Redactor = Callable[[KeptPart, str, Any], Any]
"""`redact(part, task_identifier, value)` returns the value to keep, often the same."""
REDACTION_FAILED = "[redaction failed]"
"""Kept in place of a value whose redactor failed."""

logger = logging.getLogger("graphile_worker.hooks")


def check_redactor(function: object) -> None:
    """Reject what cannot be called while outcomes are written."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"redact: expected a plain function, got {function!r}")


def redacted(redactors: Sequence[Redactor], part: KeptPart, task_identifier: str, value: Any) -> Any:
    """The value after all redactors; never raises."""
    for redactor in redactors:
        try:
            value = redactor(part, task_identifier, value)
        except BaseException as error:
            # Only the place: a message may contain the value that must not be seen.
            logger.error(
                "the redactor %s failed for the %s of a job of %s, which is not kept: %s %s",
                getattr(redactor, "__qualname__", redactor), part, task_identifier, type_name(error),
                place_of(error),
            )  # fmt: skip
            return REDACTION_FAILED
    return value


def redacted_json(redactors: Sequence[Redactor], part: KeptPart, task_identifier: str, raw: str) -> str:
    """The same for JSON text."""
    try:
        value = redacted(redactors, part, task_identifier, msgspec.json.decode(raw))
        return "null" if value is None else encode(value)
    except BaseException as error:  # half a surrogate pair, or the redactor's value is not JSON
        logger.error(
            "the redacted %s of a job of %s is not JSON and is not kept: %s", part, task_identifier, error
        )
        return encode(REDACTION_FAILED)


def redacted_text(redactors: Sequence[Redactor], task_identifier: str, text: str) -> str:
    """The same for the text of an error."""
    value = redacted(redactors, "error", task_identifier, text)
    return value.replace("\0", "") if isinstance(value, str) else REDACTION_FAILED

"""What application code raises where the engine calls it: in hooks, rules, log handlers or a clock.

Such code may raise anything, even `asyncio.CancelledError`, `GeneratorExit` or `SystemExit`. It must end
neither the worker nor the asyncio task of the engine that called it. So the engine catches everything except
what is meant for its own task: a cancellation that was requested, and the closing of its coroutine.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from .error_text import summarize

T = TypeVar("T")


def is_our_end(error: BaseException) -> bool:
    """Whether the asyncio task that runs this must end; otherwise the code that it called raised the error.

    Call it in the coroutine that caught the error, for what was raised below an `await`. A plain function
    cannot be cancelled: whatever it raises is its own error.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return is_closed(error)


def is_closed(error: BaseException) -> bool:
    """Whether the coroutine that caught this is being closed, for example at the end of an event loop.

    Python then raises GeneratorExit in the coroutine itself; one that a task raised comes from a call below.
    """
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


def as_exception(error: BaseException) -> Exception:
    """The error, or an ordinary one caused by it, which can be stored in a future and raised to a caller."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"code of the application raised {summarize(error)}")
    wrapped.__cause__ = error
    return wrapped


def call_guarded(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a plain application function; whatever it raises becomes an Exception."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def report(logger: logging.Logger, message: str, *arguments: object, error: BaseException) -> None:
    """Log what application code raised, with its traceback. Never raises, whatever log handlers do."""
    try:
        logger.error(message, *arguments, exc_info=error)
    except BaseException as failure:
        try:
            text = "".join(traceback.format_exception(failure))
            sys.stderr.write(f"a log handler failed on {message!r}:\n{text}")
        except BaseException:  # noqa: S110 - there is nowhere left to report it
            pass

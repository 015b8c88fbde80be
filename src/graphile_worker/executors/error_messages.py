"""Exceptions as messages, and messages as exceptions.

An exception that can be pickled arrives as itself, so that `retry_on` and the like work as in the worker.
Any other arrives as a RemoteTaskError with the name and message of the original. Both have the traceback of
the place where they were raised.
"""

from __future__ import annotations

import base64
import pickle
import sys
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any

from ..error_parts import (
    MAX_MESSAGE,
    cause_of,
    context_of,
    filename_of,
    frames_of,
    is_above_tasks,
    notes_of,
    storable,
    suppresses_context,
    text_of,
)
from ..errors import RemoteTaskError
from .messages import ErrorMessage

MAX_DEPTH = 8  # causes of causes
MAX_FRAMES = 100
MAX_PICKLE = 256 * 1024  # bytes

_remote_types: dict[tuple[str, str], type[RemoteTaskError]] = {}


def error_message(error: BaseException, depth: int = 0) -> ErrorMessage:
    """The message for an exception; never raises, whatever the exception does."""
    kind = type(error)
    cause, context = cause_of(error), context_of(error)
    deeper = depth < MAX_DEPTH
    return ErrorMessage(
        module=storable(str(kind.__module__)),
        name=storable(str(kind.__qualname__)),
        message=storable(text_of(error, MAX_MESSAGE)),
        pickled=_pickled(error),
        frames=_frames(error),
        notes=tuple(storable(note) for note in notes_of(error)),
        cause=error_message(cause, depth + 1) if cause is not None and deeper else None,
        context=error_message(context, depth + 1)
        if context is not None and cause is None and deeper
        else None,
        hides_context=suppresses_context(error),
    )


def error_of(message: ErrorMessage) -> BaseException:
    """The exception for a message."""
    error = _unpickled(message)
    if error is None:
        error = _remote_type(message)(message.message)
        for note in message.notes:
            error.add_note(note)
    error.__cause__ = None if message.cause is None else error_of(message.cause)
    error.__context__ = None if message.context is None else error_of(message.context)
    error.__suppress_context__ = message.hides_context
    return error.with_traceback(_traceback(message.frames))


def _pickled(error: BaseException) -> str | None:
    """None if it cannot be pickled, or would not be the same afterwards."""
    try:
        data = pickle.dumps(error)
        if len(data) > MAX_PICKLE:
            return None
        again = pickle.loads(data)  # noqa: S301 - made one line above
        if type(again) is not type(error) or str(again) != str(error):
            return None
        return base64.b64encode(data).decode()
    except BaseException:
        return None


def _unpickled(message: ErrorMessage) -> BaseException | None:
    # The module is loaded if the worker has the task. Nothing is imported here, on the event loop.
    if message.pickled is None or message.module not in sys.modules:
        return None
    try:
        error = pickle.loads(base64.b64decode(message.pickled))  # noqa: S301 - from a process of this worker
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _remote_type(message: ErrorMessage) -> type[RemoteTaskError]:
    """A RemoteTaskError that is shown with the name of the original type."""
    key = message.module, message.name
    known = _remote_types.get(key)
    if known is None:
        name = message.name if message.module == "builtins" else f"{message.module}.{message.name}"
        values: dict[str, Any] = {
            "__module__": message.module,
            "__qualname__": message.name,
            "__doc__": RemoteTaskError.__doc__,
            "remote_type": name,
        }
        known = type(message.name.rpartition(".")[2], (RemoteTaskError,), values)
        _remote_types[key] = known
    return known


def _frames(error: BaseException) -> tuple[tuple[str, int, str], ...]:
    frames = list(frames_of(error))
    while frames and is_above_tasks(filename_of(frames[0])):
        frames.pop(0)
    return tuple(
        (storable(filename_of(frame)), frame.tb_lineno or 0, storable(frame.tb_frame.f_code.co_name))
        for frame in frames[-MAX_FRAMES:]
    )


def _traceback(frames: tuple[tuple[str, int, str], ...]) -> TracebackType | None:
    """A traceback with these frames, for formatting; they have no variables."""
    found: TracebackType | None = None
    for file, line, name in reversed(frames):
        found = TracebackType(found, _frame(file, line, name), -1, line)
    return found


@lru_cache(maxsize=1_000)
def _frame(file: str, line: int, name: str) -> FrameType:
    """A frame of its own for each line: texts of tracebacks are cached by the code of their frames."""
    code = compile("__import__('sys')._getframe()", file, "eval").replace(co_name=name)
    frame: FrameType = eval(code, {})  # noqa: S307 - a constant
    return frame

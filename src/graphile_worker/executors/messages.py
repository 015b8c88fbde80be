"""The messages between a worker and what runs its tasks; `values.lines` has their format.

To a process: calls. From it: an answer to each call, and notes.

An exception that can be pickled arrives as itself, so that `retry_on` and the like work as in the worker.
Any other arrives as a RemoteTaskError with the name and message of the original. Both have the traceback of
the place where they were raised. Log records are sent as JSON, and logged in the worker as if made there.
"""

from __future__ import annotations

import base64
import logging
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any, Literal

import msgspec

from ..errors import RemoteTaskError
from ..errors.text import (
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
from ..history.task_reports import ProgressReport
from ..logging.job_context import add_job_fields
from ..tasks.stacks import TaskStack
from ..values.job import current_helpers

RETURNED = -1.0
"""In place of the run time: the call was taken back before it began."""


class CallMessage(msgspec.Struct, array_like=True, frozen=True):
    """One call. The number is the sender's, and comes back with the answer."""

    number: int
    where: str
    job: tuple[Any, ...]
    worker_id: str
    context: tuple[tuple[str, str], ...] = ()
    timeout: float | None = None


class ErrorMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception: its texts, the exception itself if it can be pickled, and where it was raised."""

    module: str
    name: str
    message: str
    pickled: str | None = None
    """Base64."""
    frames: tuple[tuple[str, int, str], ...] = ()
    """File, line and function, the outermost first."""
    notes: tuple[str, ...] = ()
    cause: ErrorMessage | None = None
    context: ErrorMessage | None = None
    hides_context: bool = False


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task returned or raised; nothing for None."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ErrorMessage | None = None
    batch: tuple[ErrorMessage | None, ...] | None = None
    """The answer of a batch job: for each item None or its error."""
    problem: str | None = None
    """Why the result cannot be sent."""


class Answer(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """The answer to a call: its number, how long the task ran, and what it returned or raised."""

    number: int
    seconds: float
    body: Body | None = None


class LogNote(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A log record of a job; 0 for none."""

    number: int
    record: dict[str, Any]


class ProgressNote(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """What a task reports about its progress."""

    number: int
    report: ProgressReport


class ReadyNote(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """The process has loaded its tasks and takes calls."""


class MemoryNote(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """How much memory the process uses that runs or ran a call."""

    number: int
    bytes: int


class StartFailure(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """The process cannot start to work."""

    text: str


class StackNote(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """What a call does now."""

    number: int
    stack: TaskStack


class StartedNote(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """A call has begun, on this machine of a cluster."""

    number: int
    place: str
    memory: int | None = None


class LostCall(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """The cluster has no answer to a call, and why."""

    number: int
    text: str


Note = LogNote | ProgressNote | ReadyNote | MemoryNote | StartFailure | StackNote
"""What a process of a worker says beside its answers."""
ClusterNote = LogNote | ProgressNote | MemoryNote | StackNote | StartedNote
"""What a call on a cluster says before its answer."""


class Setup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process must know before its first call; its first line."""

    parent: int
    """The process id of the worker."""
    path: list[str]
    """`sys.path`."""
    tasks: list[tuple[str, str]]
    """Where each task is found, and its identifier."""
    job_logger: str
    levels: dict[str, int]
    """Levels of loggers by name."""
    initializer: str | None = None
    nice: int | None = None
    max_memory: int | None = None


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request about a call."""

    number: int
    what: Literal["abort", "cancel", "interrupt", "kill", "stack"]
    """Set its abort signal; cancel it, too; interrupt it; kill it; send a `StackNote`."""
    reason: str = ""


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


_PLAIN = (str, int, float, bool, type(None))
_LEFT_OUT = frozenset(("exc_info", "stack_info", "message", "asctime", "args", "msg"))


def levels() -> dict[str, int]:
    """The levels of all loggers that have one, so that another process need not send what none wants."""
    manager = logging.root.manager
    found = {
        name: logger.level
        for name, logger in manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {**found, "": max(logging.root.level, manager.disable + 1 if manager.disable else 0)}


def apply_levels(wanted: Mapping[str, int]) -> None:
    for name, level in wanted.items():
        logging.getLogger(name or None).setLevel(level)


class SendingHandler(logging.Handler):
    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            add_job_fields(record)
            self._send(as_plain(record))
        except Exception:
            self.handleError(record)


def as_plain(record: logging.LogRecord) -> dict[str, Any]:
    """The record as JSON values."""
    values: dict[str, Any] = {
        name: value if isinstance(value, _PLAIN) else str(value)
        for name, value in record.__dict__.items()
        if name not in _LEFT_OUT
    }
    args = record.args
    if isinstance(args, tuple) and all(isinstance(each, _PLAIN) for each in args):
        values["msg"], values["args"] = str(record.msg), list(args)
    else:
        values["msg"], values["args"] = record.getMessage(), []
    if record.exc_info and not record.exc_text:
        values["exc_text"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    if record.stack_info:
        values["stack_info"] = record.stack_info
    return values


def log_again(values: dict[str, Any], helpers: Any) -> None:
    """Log a record of another process here; `helpers` are those of its job, None for no job."""
    logger = logging.getLogger(values.get("name"))
    if not logger.isEnabledFor(values.get("levelno", logging.INFO)):
        return
    record = logging.makeLogRecord({**values, "args": tuple(values.get("args", ()))})
    token = None if helpers is None else current_helpers.set(helpers)
    try:
        logger.handle(record)
    finally:
        if token is not None:
            current_helpers.reset(token)

"""CapturedOutput: logs what a program prints, so that a stream of JSON lines stays one.

It replaces `sys.stdout` and `sys.stderr`. Each line becomes a record of the logger `stdout` or `stderr`, with
the job if a task printed it. Records go straight to our handler: another handler may write to the streams
that are captured here. What C code and child processes write to the file descriptors is not seen.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from ..errors.text import summarize
from ..values.job import current_helpers
from .job_context import ROOT, job_fields

MAX_LINE = 64 * 1024  # characters; bounds memory when a program prints no newline

logger = logging.getLogger(ROOT)


class LogStream(io.TextIOBase):
    """A text stream whose lines are passed to a handler.

    Lines are collected for each slot, and outside tasks for each thread, so that tasks that print at the same
    time do not mix theirs. Of a line that a carriage return overwrites, the last state is logged.
    """

    def __init__(self, name: str, level: int, handler: logging.Handler, stream: TextIO) -> None:
        self.original = stream
        self._logger = logging.getLogger(name)
        self._level = level
        self._handler = handler
        self.partial: dict[object, tuple[str, Any]] = {}
        """Lines without a newline yet, each with the helpers of its job, by slot or thread."""
        self._bytes = _ByteStream(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> io.RawIOBase:
        """A stream for bytes, which become text of this one."""
        return self._bytes

    @property
    def line_buffering(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.original.fileno()

    def reconfigure(self, **_: object) -> None:
        """Accepted for programs that set an encoding; lines are encoded by the handler."""

    def write(self, text: str) -> int:
        """Log each complete line."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        helpers = current_helpers.get(None)
        key = threading.get_ident() if helpers is None else helpers.worker_id
        with self._in_order():
            before, owner = self.partial.pop(key, ("", helpers))
            left = before if owner is not helpers else ""  # by an earlier job of the slot
            *lines, rest = (text if left else before + text).split("\n")
            if len(rest) > MAX_LINE:
                lines.append(rest)
            elif rest:
                self.partial[key] = rest, helpers
            self._log(left, owner)
            for line in lines:
                self._log(line, helpers)
        return len(text)

    def finish(self, key: object | None = None) -> None:
        """Log the line of this slot, or all lines, though they have no newline."""
        with self._in_order():
            keys = list(self.partial) if key is None else [key]
            for line, helpers in [self.partial.pop(each) for each in keys if each in self.partial]:
                self._log(line, helpers)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Hold the handler's lock, so that no end of a job is logged between a line and its record."""
        self._handler.acquire()
        try:
            yield
        finally:
            self._handler.release()

    def after_fork(self) -> None:
        """In a child process: forget the lines of the parent. `logging` itself renews the handler's lock."""
        self.partial.clear()

    def _log(self, line: str, helpers: Any) -> None:
        text = line.rstrip("\r").rpartition("\r")[2]
        if not text.strip() or not self._logger.isEnabledFor(self._level):
            return
        extra = None if helpers is None else job_fields(helpers.job, helpers.worker_id)
        record = self._logger.makeRecord(
            self._logger.name, self._level, "", 0, "%s", (text,), None, extra=extra
        )
        self._handler.handle(record)


class _ByteStream(io.RawIOBase):
    """What `sys.stdout.buffer` is while the stream is captured."""

    def __init__(self, stream: LogStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode(errors="backslashreplace"))
        return len(data)


class CapturedOutput:
    """Both streams, and what is needed to release them."""

    def __init__(self, stdout: LogStream, stderr: LogStream) -> None:
        self._streams = (stdout, stderr)

    @property
    def is_partial(self) -> bool:
        """Whether a line without a newline is waiting."""
        stdout, stderr = self._streams
        return bool(stdout.partial or stderr.partial)

    def finish(self) -> None:
        """Log the lines that have no newline."""
        for stream in self._streams:
            stream.finish()

    def finish_before(self, record: logging.LogRecord) -> None:
        """If the record reports how a job ended, log first what the job printed without a newline."""
        own = record.__dict__
        if "event" in own and own.get("worker_id") is not None:
            for stream in self._streams:
                stream.finish(own["worker_id"])

    def release(self) -> None:
        """Stop capturing."""
        self.finish()
        stdout, stderr = self._streams
        if sys.stdout is stdout:
            sys.stdout = stdout.original
        if sys.stderr is stderr:
            sys.stderr = stderr.original
        for module, name in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
            if getattr(module, name) in (_uncaught, _uncaught_in_thread, _unraisable):
                setattr(module, name, getattr(module, f"__{name}__"))


def capture_output(handler: logging.Handler) -> CapturedOutput:
    """Send what the program prints, and exceptions that nothing catches, to the handler."""
    stdout, stderr = original_streams()
    captured = CapturedOutput(
        LogStream("stdout", logging.INFO, handler, stdout),
        LogStream("stderr", logging.WARNING, handler, stderr),
    )
    for stream in captured._streams:
        os.register_at_fork(after_in_child=stream.after_fork)
    sys.stdout, sys.stderr = (cast("TextIO", stream) for stream in captured._streams)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    return captured


def original_streams() -> tuple[TextIO, TextIO]:
    """Standard output and standard error, not captured."""
    stdout, stderr = (
        stream.original if isinstance(stream, LogStream) else stream for stream in (sys.stdout, sys.stderr)
    )
    return stdout, stderr


def _uncaught(kind: type[BaseException], error: BaseException, _: Any) -> None:
    logger.error("uncaught exception: %s", summarize(error), exc_info=error)


def _uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is None or arguments.exc_type is SystemExit:
        return
    name = arguments.thread.name if arguments.thread is not None else "that has ended"
    logger.error(
        "uncaught exception in thread %s: %s", name, summarize(arguments.exc_value),
        exc_info=arguments.exc_value,
    )  # fmt: skip


def _unraisable(arguments: sys.UnraisableHookArgs) -> None:
    logger.error(
        "%s: %s", arguments.err_msg or f"exception ignored in {arguments.object!r}",
        "unknown" if arguments.exc_value is None else summarize(arguments.exc_value),
        exc_info=arguments.exc_value,
    )  # fmt: skip

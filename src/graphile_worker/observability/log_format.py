"""Format and destination of log lines for the command line. Library code never calls this.

Text for people: `[label(worker: task{job})] LEVEL: message`, as Graphile Worker for Node prints it, with a
traceback indented below. JSON for machines: one object per line, `ts`, `level`, `logger`, `label` and `msg`
first, then the other fields of the record.

Messages contain foreign text: payloads, server errors, output of programs. The text format escapes control
characters, so that none reaches the terminal and a line break cannot forge a log line.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from ..error_text import format_traceback

ROOT = "graphile_worker"
DEBUG_VARIABLES = ("GRAPHILE_LOGGER_DEBUG", "GRAPHILE_WORKER_DEBUG")
KEYS = {
    "event": "event",
    "pool_id": "pool_id",
    "worker_id": "worker_id",
    "task_identifier": "task",
    "job_id": "job_id",
    "attempt": "attempt",
    "max_attempts": "max_attempts",
}
"""Attributes of a record that come first in JSON, in this order and under these names."""
INDENT = "    "
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab, line separators, bidirectional controls, lone surrogates."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "label"}


class TextFormatter(logging.Formatter):
    """`[worker(worker-1: send_email{7})] INFO: …`; the parenthesis only if the record has a worker."""

    def format(self, record: logging.LogRecord) -> str:
        text = escaped(f"[{_label(record)}{_scope(record)}] {record.levelname}: {record.getMessage()}")
        for block in (_traceback(self, record), record.stack_info):
            for line in block.split("\n") if block else ():
                text += f"\n{INDENT}{escaped(line)}" if line else "\n"
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per record; fields of `extra` become members."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "ts": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "label": _label(record),
            "msg": record.getMessage(),
        }
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line |= {key: extra.pop(name) for name, key in KEYS.items() if name in extra}
        line |= {key: value for key, value in extra.items() if key not in line}
        traceback = _traceback(self, record)
        if traceback:
            line["traceback"] = traceback
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except BaseException:  # a lone surrogate, a cyclic structure, a failing __str__
            return msgspec.json.encode({key: _encodable(value) for key, value in line.items()}).decode()


class PipeHandler(logging.Handler):
    """Writes info and below to standard output, warnings and errors to standard error.

    A broken pipe raises nothing: the stream is silenced and `on_broken_pipe` is called once with its name, so
    that the worker can shut down gracefully.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__()
        self._stdout = stdout
        self._stderr = stderr
        self._broken: set[int] = set()
        self.on_broken_pipe: Callable[[str], object] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        stream = self._stderr if record.levelno >= logging.WARNING else self._stdout
        if id(stream) in self._broken:
            return
        try:
            _write_line(stream, self.format(record))
            stream.flush()
        except Exception as error:
            if not is_broken_pipe(error):
                self.handleError(record)
                return
            self._broken.add(id(stream))
            silence(stream)
            if self.on_broken_pipe is not None:
                self.on_broken_pipe("standard error" if stream is self._stderr else "standard output")


def configure_logging(
    log_format: str = "text",
    level: str = "info",
    *,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    on_broken_pipe: Callable[[str], object] | None = None,
) -> PipeHandler:
    """Set up the logger `graphile_worker`, and no other, for the command line; returns its handler.

    A second call replaces the handler of the first.
    """
    logger = logging.getLogger(ROOT)
    for old in [handler for handler in logger.handlers if isinstance(handler, PipeHandler)]:
        logger.removeHandler(old)
    handler = PipeHandler(stdout or sys.stdout, stderr or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.on_broken_pipe = on_broken_pipe
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


def debug_wanted(environ: os._Environ[str] | dict[str, str] = os.environ) -> bool:
    """Whether the environment asks for debug lines, with the variables of Graphile Worker for Node."""
    return any(environ.get(name) for name in DEBUG_VARIABLES)


def is_broken_pipe(error: BaseException) -> bool:
    """Whether an error means that the reader of a stream is gone."""
    closed = isinstance(error, ValueError) and "closed file" in str(error)
    return closed or (isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO, errno.EBADF))


def silence(stream: TextIO) -> None:
    """Redirect the stream to the null device, so that flushing it at exit does not fail."""
    try:
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)
    except (OSError, ValueError):
        return


def escaped(text: str) -> str:
    """The text without line breaks and control characters: `\\n`, `\\x1b`, `\\u2028` replace them."""
    return text if text.isprintable() else _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return (
        found[0].encode("ascii", "backslashreplace").decode() if found[0] > "\x7f" else repr(found[0])[1:-1]
    )


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """The traceback of a record: its `exc_text`, else formatted here; never raises."""
    if record.exc_text:
        return record.exc_text
    if not record.exc_info or record.exc_info[1] is None:
        return None
    try:
        return formatter.formatException(record.exc_info)
    except BaseException:  # formatting runs code of the exception
        return format_traceback(record.exc_info[1])


def _encodable(value: Any) -> Any:
    try:
        msgspec.json.encode(value)
    except BaseException:
        try:
            return str(value).encode("utf-8", "backslashreplace").decode()
        except BaseException:
            return f"<{type(value).__name__}>"
    return value


def _write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
    except UnicodeEncodeError:  # the stream is not UTF-8
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _label(record: logging.LogRecord) -> str:
    label = getattr(record, "label", None)
    return str(label or record.name.removeprefix(ROOT).lstrip(".") or "core")


def _scope(record: logging.LogRecord) -> str:
    worker = getattr(record, "worker_id", None)
    if worker is None:
        return ""
    task, job = getattr(record, "task_identifier", None), getattr(record, "job_id", None)
    return f"({worker}: {task}{{{job}}})" if task is not None else f"({worker})"

"""How log lines look and where they go when the command line runs; a library never calls this.

Text for people: `[label(worker: task{job})] LEVEL: message`, as Graphile Worker for Node prints it. JSON for
machines: one object per line, `ts`, `level`, `logger`, `label` and `msg` first, then what the record knows.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

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
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "label"}


class TextFormatter(logging.Formatter):
    """`[worker(worker-1: send_email{7})] INFO: …`; the parenthesis only where a worker is known."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"[{_label(record)}{_scope(record)}] {record.levelname}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per record; what was given as `extra` becomes members of their own."""

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
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class PipeHandler(logging.Handler):
    """Writes info and below to standard output, warnings and errors to standard error.

    When the reader of either goes away nothing is raised: that stream falls silent and `on_broken_pipe` is
    called once, with a name for it, so that the worker can stop in an orderly way.
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
            stream.write(self.format(record) + "\n")
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
    """Set up the logger `graphile_worker`, and no other, for a process of ours; returns its one handler.

    Called again it replaces what it had set up before.
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
    """Whether the environment asks for debug lines, in the way Graphile Worker for Node knows."""
    return any(environ.get(name) for name in DEBUG_VARIABLES)


def is_broken_pipe(error: BaseException) -> bool:
    """Whether an error says that nobody reads what we write."""
    closed = isinstance(error, ValueError) and "closed file" in str(error)
    return closed or (isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO, errno.EBADF))


def silence(stream: TextIO) -> None:
    """Let later writes go nowhere, so that the interpreter does not trip over the pipe at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def _label(record: logging.LogRecord) -> str:
    label = getattr(record, "label", None)
    return str(label or record.name.removeprefix(ROOT).lstrip(".") or "core")


def _scope(record: logging.LogRecord) -> str:
    worker = getattr(record, "worker_id", None)
    if worker is None:
        return ""
    task, job = getattr(record, "task_identifier", None), getattr(record, "job_id", None)
    return f"({worker}: {task}{{{job}}})" if task is not None else f"({worker})"

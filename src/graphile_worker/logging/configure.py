"""Format, levels and destination of log lines. The command calls this; in a program the application may.

`configure_logging` puts one handler on the root logger, so that lines of the application look like ours.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

from .captured_output import CapturedOutput, capture_output, original_streams
from .formatters import JsonFormatter as JsonFormatter
from .formatters import TextFormatter as TextFormatter

DEBUG_VARIABLES = ("GRAPHILE_LOGGER_DEBUG", "GRAPHILE_WORKER_DEBUG")
USUAL_LEVELS = {"stdout": "info", "stderr": "info", "watchfiles": "warning"}
"""What is printed is always logged. The package that watches files for us reports each change at info."""


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
        self.captured: CapturedOutput | None = None
        """What the program prints, if that is logged too."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.captured is not None and self.captured.is_partial:
            self.captured.finish_before(record)
        stream = self._stderr if record.levelno >= logging.WARNING else self._stdout
        if id(stream) in self._broken:
            return
        try:
            _write_line(stream, self._line(record))
            stream.flush()
        except Exception as error:
            if not is_broken_pipe(error):
                self.handleError(record)
                return
            self._broken.add(id(stream))
            silence(stream)
            if self.on_broken_pipe is not None:
                self.on_broken_pipe("standard error" if stream is self._stderr else "standard output")

    def flush(self) -> None:
        """Log what was printed without a newline."""
        if self.captured is not None:
            self.captured.finish()

    def handleError(self, record: logging.LogRecord) -> None:
        """Report that a line could not be written, to the stream itself: `sys.stderr` may be captured."""
        with suppress(Exception):
            traceback.print_exc(file=self._stderr)

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # the arguments do not fit the message, or `__str__` of one failed
            place = f"{record.pathname}:{record.lineno}"
            fields = {**record.__dict__, "msg": "cannot format the log message %r (%s): %r", "exc_info": None}
            fields["args"] = (record.msg, place, error)
            return self.format(logging.makeLogRecord(fields))


def configure_logging(
    log_format: str = "text",
    level: str = "info",
    *,
    levels: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    capture: bool = False,
    on_broken_pipe: Callable[[str], object] | None = None,
) -> PipeHandler:
    """Log everything as the command does: one handler on the root logger, which is returned.

    `level` is the lowest level to log; `levels` has others for single loggers and those below them. Python's
    warnings are logged too. `capture` also logs what the program prints and exceptions that nothing catches,
    so that all output has the same format. Handlers of the root logger that write to standard output or
    standard error are removed, among them that of an earlier call; files and other handlers stay.
    """
    root = logging.getLogger()
    real_stdout, real_stderr = original_streams()
    for old in [*root.handlers]:
        if isinstance(old, PipeHandler):
            root.removeHandler(old)
            if old.captured is not None:
                old.captured.release()
        elif getattr(old, "stream", None) in (sys.stdout, sys.stderr, real_stdout, real_stderr):
            root.removeHandler(old)  # else each line would appear twice
    handler = PipeHandler(stdout or real_stdout, stderr or real_stderr)
    handler.on_broken_pipe = on_broken_pipe
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        has_times = is_journal(handler._stdout) or is_journal(handler._stderr)
        handler.setFormatter(TextFormatter(timestamps=not has_times))
    root.addHandler(handler)
    root.setLevel(level.upper())
    if capture:
        handler.captured = capture_output(handler)
    for name, its_level in {**USUAL_LEVELS, **(levels or {})}.items():
        logging.getLogger(name).setLevel(its_level.upper())
    warnings.showwarning = _log_warning
    return handler


def debug_wanted(environ: os._Environ[str] | dict[str, str] = os.environ) -> bool:
    """Whether the environment asks for debug lines, with the variables of Graphile Worker for Node."""
    return any(environ.get(name) for name in DEBUG_VARIABLES)


def is_broken_pipe(error: BaseException) -> bool:
    """Whether an error means that the reader of a stream is gone."""
    closed = isinstance(error, ValueError) and "closed file" in str(error)
    return closed or (isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO, errno.EBADF))


def is_journal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the stream goes to the systemd journal, which adds the time to each line."""
    expected = environ.get("JOURNAL_STREAM")
    if not expected:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return expected == f"{status.st_dev}:{status.st_ino}"


def silence(stream: TextIO) -> None:
    """Redirect the stream to the null device, so that flushing it at exit does not fail."""
    try:
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)
    except (OSError, ValueError):
        return


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Replaces `warnings.showwarning`: one line on the logger that the standard library uses."""
    if file is not None:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    logging.getLogger("py.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def _write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
    except UnicodeEncodeError:  # the stream is not UTF-8
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")

"""Logging as it was before: for tests that call `configure_logging` or the command in this process."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from graphile_worker.observability.log_format import PipeHandler

TOUCHED = ("", "graphile_worker", "stdout", "stderr", "watchfiles")


@contextmanager
def restored_logging() -> Iterator[None]:
    """Remove our handler and restore levels, streams and hooks at the end."""
    loggers = [logging.getLogger(name) for name in TOUCHED]
    before = [logger.level for logger in loggers]
    streams = sys.stdout, sys.stderr
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
        root = logging.getLogger()
        # pytest has handlers of its own there, others in each phase of a test.
        root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, PipeHandler)]

"""Logging as it was before: tests call `configure_logging` and the command in this process."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from graphile_worker.observability.log_format import PipeHandler

TOUCHED = ("", "graphile_worker", "stdout", "stderr", "watchfiles")


@contextmanager
def restored_logging() -> Iterator[None]:
    """Remove our handler and restore levels, handlers, streams and hooks at the end."""
    loggers = [logging.getLogger(name) for name in TOUCHED]
    before = [(logger.level, logger.propagate) for logger in loggers]
    own = logging.getLogger("graphile_worker")
    handlers = own.handlers[:]
    streams = sys.stdout, sys.stderr
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    show_warning = warnings.showwarning
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        warnings.showwarning = show_warning
        own.handlers[:] = handlers
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate
        root = logging.getLogger()
        # pytest has handlers of its own there, others in each phase of a test.
        root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, PipeHandler)]

"""Log records of tasks in other processes: sent as JSON, and logged in the worker as if made there."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ..job import current_helpers
from ..observability.job_context import add_job_fields

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
    """Set the levels of loggers in this process."""
    for name, level in wanted.items():
        logging.getLogger(name or None).setLevel(level)


class SendingHandler(logging.Handler):
    """Sends every record."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
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

"""Log records that show the stack of another thread or coroutine in place of the logging one's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any


def log_with_stack(
    logger: logging.Logger,
    level: int,
    fields: Mapping[str, Any],
    stack: str,
    message: str,
    *arguments: object,
) -> None:
    """Log the message with this stack below it; `fields` are attributes of the record."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, message, arguments, None)
        record.__dict__.update(fields)
        record.stack_info = f"Stack (most recent call last):\n{stack}"
        logger.handle(record)

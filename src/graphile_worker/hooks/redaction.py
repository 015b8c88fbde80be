"""Redaction: what of a job may be kept in the history and shown to people.

Redactors are called with the part (`payload`, `result` or `error`), the task identifier and the JSON value,
and return the value to keep. A redactor that fails must not let a secret pass: then the whole value is
replaced.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ..errors import ConfigError
from ..errors.text import place_of, type_name
from ..values.payload import encode

KeptPart = Literal["payload", "result", "error"]
"""What a redactor gets: a payload, a result, or the text of an error (message or traceback)."""
Redactor = Callable[[KeptPart, str, Any], Any]
"""`redact(part, task_identifier, value)` returns the value to keep, often the same."""
REDACTION_FAILED = "[redaction failed]"
"""Kept in place of a value whose redactor failed."""

logger = logging.getLogger("graphile_worker.hooks")


def check_redactor(function: object) -> None:
    """Reject what cannot be called while outcomes are written."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"redact: expected a plain function, got {function!r}")


def redacted(redactors: Sequence[Redactor], part: KeptPart, task_identifier: str, value: Any) -> Any:
    """The value after all redactors; never raises."""
    for redactor in redactors:
        try:
            value = redactor(part, task_identifier, value)
        except BaseException as error:
            # Only the place: a message may contain the value that must not be seen.
            logger.error(
                "the redactor %s failed for the %s of a job of %s, which is not kept: %s %s",
                getattr(redactor, "__qualname__", redactor), part, task_identifier, type_name(error),
                place_of(error),
            )  # fmt: skip
            return REDACTION_FAILED
    return value


def redacted_json(redactors: Sequence[Redactor], part: KeptPart, task_identifier: str, raw: str) -> str:
    """The same for JSON text."""
    try:
        value = redacted(redactors, part, task_identifier, msgspec.json.decode(raw))
        return "null" if value is None else encode(value)
    except BaseException as error:  # half a surrogate pair, or the redactor's value is not JSON
        logger.error(
            "the redacted %s of a job of %s is no JSON and is not kept: %s", part, task_identifier, error
        )
        return encode(REDACTION_FAILED)


def redacted_text(redactors: Sequence[Redactor], task_identifier: str, text: str) -> str:
    """The same for the text of an error."""
    value = redacted(redactors, "error", task_identifier, text)
    return value.replace("\0", "") if isinstance(value, str) else REDACTION_FAILED

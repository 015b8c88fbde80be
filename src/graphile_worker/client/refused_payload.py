"""Payloads that only the server can judge: JSON that the caller wrote, and arrays that have to be merged."""

from __future__ import annotations

from .. import sqlstates
from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError

# Not JSON; a character or a number in it that `jsonb` cannot hold. Every other value was checked before.
_REFUSALS = (
    sqlstates.INVALID_TEXT_REPRESENTATION,
    sqlstates.UNTRANSLATABLE_CHARACTER,
    sqlstates.NUMERIC_VALUE_OUT_OF_RANGE,
)


def refused_payload(error: Exception) -> InvalidArgumentError | None:
    """After an error of adding: our own, if it was the payload that the server could not use."""
    if sqlstate_of(error) not in _REFUSALS:
        return None
    return InvalidArgumentError(
        "payload",
        "PostgreSQL cannot use it as JSON, or cannot append it to the payload of the waiting job with "
        f"the same key: {error}",
    )

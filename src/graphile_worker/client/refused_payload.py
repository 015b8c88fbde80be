"""Payloads that only the server can judge: JSON that the caller wrote, and arrays that have to be merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError

# Not JSON; a character or a number in it that `jsonb` cannot hold. Every other value was checked before.
_REFUSALS = ("22P02", "22P05", "22003")


@contextmanager
def explain_refused_payload() -> Iterator[None]:
    """Around adding: say that it was the payload which the server could not use."""
    try:
        yield
    except Exception as error:
        if sqlstate_of(error) not in _REFUSALS:
            raise
        raise InvalidArgumentError(
            "payload",
            "PostgreSQL cannot use it as JSON, or cannot append it to the payload of the waiting job with "
            f"the same key: {error}",
        ) from error

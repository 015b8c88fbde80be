"""Cursors of lists: opaque to callers, checked when they come back."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from .answers import Problem

LONGEST = 500


def encode_cursor(kind: str, *values: Any) -> str:
    """A cursor for a list of this kind, such as its order."""
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, *values])).decode().rstrip("=")


def decode_cursor(cursor: str, kind: str, types: Any) -> Any:
    """The values of a cursor; refused if it was made for another list, or by hand.

    `types` is the type of the values, such as `tuple[int]`.
    """
    try:
        if len(cursor) > LONGEST:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(found, list) or not found:
            raise ValueError
        if found[0] != kind:
            raise Problem(400, "The cursor is for another list", f"It was not made for the order {kind}.")
        return msgspec.convert(found[1:], types)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise bad_cursor() from None


def bad_cursor() -> Problem:
    return Problem(400, "The cursor is not valid", "Start again without it.")


def checked_id(value: int) -> int:
    """A value that a bigint holds."""
    if not -(2**63) <= value < 2**63:
        raise bad_cursor()
    return value


def checked_priority(value: int) -> int:
    if not -(2**15) <= value < 2**15:
        raise bad_cursor()
    return value

"""Arguments that several methods of the client take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

from ..errors import InvalidArgumentError

T = TypeVar("T")


def beginning(since: datetime | timedelta, until: datetime | None, now: datetime) -> datetime:
    """The beginning of a period that may be given by its length."""
    end = now if until is None else until
    begin = end - since if isinstance(since, timedelta) else since
    for name, value in (("since", begin), ("until", end)):
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidArgumentError(name, f"expected a time with a time zone, got {value!r}")
    if begin >= end:
        raise InvalidArgumentError("since", f"must be before {end}, got {begin}")
    return begin


def rereadable(values: Iterable[T]) -> Iterable[T]:
    """An iterable that can be read again for a retry."""
    return list(values) if isinstance(values, Iterator) else values

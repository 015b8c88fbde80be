"""TimestampDigest: the parts of a minute that patterns and match functions compare."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self


@dataclass(frozen=True, slots=True)
class TimestampDigest:
    """One minute in parts; `dow` is the weekday, 0 = Sunday. In UTC, unless the item has a time zone."""

    min: int
    hour: int
    date: int
    month: int
    dow: int

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The parts of a time in its own time zone."""
        return cls(moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)

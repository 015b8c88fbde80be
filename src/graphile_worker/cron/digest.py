"""TimestampDigest: the parts of one minute that a recurring job's pattern or function looks at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self


@dataclass(frozen=True, slots=True)
class TimestampDigest:
    """One minute taken apart; `dow` is the weekday, 0 = Sunday. In UTC unless the item has a time zone."""

    min: int
    hour: int
    date: int
    month: int
    dow: int

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The parts of a moment as its own clock shows them."""
        return cls(moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)

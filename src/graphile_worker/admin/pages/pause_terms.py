"""The fields of forms that pause something: how long, or until when."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..answers import Problem
from ..call import Call
from ..render import zone_of

PERIODS = (
    ("", "until it is resumed"), ("900", "15 minutes"), ("3600", "1 hour"), ("21600", "6 hours"),
    ("86400", "24 hours"),
)  # fmt: skip
LONGEST = 366 * 86_400


def end_of_pause(call: Call, until: str, period: str) -> datetime | timedelta | None:
    """A time in the viewer's zone if one was given, else a period; None for no end."""
    if until:
        try:
            at = datetime.fromisoformat(until[:40])
        except ValueError:
            raise Problem(400, "A value is not valid", "until: expected a date and a time.") from None
        return at if at.tzinfo is not None else at.replace(tzinfo=zone_of(call))
    if not period:
        return None
    if not period.isdecimal() or not 0 < int(period[:12]) <= LONGEST:
        raise Problem(400, "A value is not valid", f"period: expected seconds, at most {LONGEST:,}.")
    return timedelta(seconds=int(period[:12]))

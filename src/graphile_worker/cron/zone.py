"""Wall clocks that are not UTC: from minutes of a zone to instants and back, across clock changes. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ..errors import CrontabError
from ..text import closest

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def find_zone(name: str) -> ZoneInfo:
    """The zone of this name. Raises CrontabError that offers the nearest known name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = available_timezones()
    if not known:
        raise CrontabError("no time zones are installed here; install the package tzdata")
    near = closest(name, known)
    hint = f"did you mean {near}?" if near else "allowed: IANA names such as Europe/Berlin"
    raise CrontabError(f"unknown time zone {name!r}; {hint}")


@lru_cache(maxsize=8192)
def steady_offset(zone: ZoneInfo, day: date) -> timedelta | None:
    """The zone's offset during a whole UTC day, or None if its clocks change then or tell a time twice.

    Almost every day is steady, and on those a wall clock is plain arithmetic.
    """
    start = datetime.combine(day, time(), UTC)
    offset = _offset(zone, start - MINUTE)
    for hour in range(25):
        local = (start + hour * HOUR).astimezone(zone)
        if local.fold or local.utcoffset() != offset:
            return None
    return None if offset % MINUTE else offset


def skipped_minutes(zone: ZoneInfo, minute: datetime) -> list[datetime]:
    """The wall-clock minutes that never come because the clocks were put forward just before `minute`."""
    before = _offset(zone, minute - MINUTE)
    gap = _offset(zone, minute) - before
    first = minute.astimezone(UTC).replace(tzinfo=None) + before
    return [first + number * MINUTE for number in range(max(0, gap // MINUTE))]


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()

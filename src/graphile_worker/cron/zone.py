"""Time zones: offsets of whole days, and minutes that daylight saving time skips. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ..errors import CrontabError
from ..text import closest

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def find_zone(name: str) -> ZoneInfo:
    """The time zone of this name. Raises CrontabError, which suggests the closest name."""
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
    """The zone's offset during a whole UTC day, or None if it changes on that day.

    On almost every day it is steady, and local time is simple arithmetic.
    """
    start = datetime.combine(day, time(), UTC)
    offset = _offset(zone, start - MINUTE)
    for hour in range(25):
        local = (start + hour * HOUR).astimezone(zone)
        if local.fold or local.utcoffset() != offset:
            return None
    return None if offset % MINUTE else offset


def skipped_minutes(zone: ZoneInfo, minute: datetime) -> list[datetime]:
    """The local minutes skipped because the clocks were set forward just before `minute`."""
    before = _offset(zone, minute - MINUTE)
    gap = _offset(zone, minute) - before
    first = minute.astimezone(UTC).replace(tzinfo=None) + before
    return [first + number * MINUTE for number in range(max(0, gap // MINUTE))]


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()

"""Times and durations as people read them: relative first, the exact time in the viewer's zone and in UTC.

The browser tells its time zone in a cookie (`times.js` sets it); without one, times are in UTC.
`static/times.js` has the same rules, so that relative times go on without the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from ...values.text import DAY
from ...values.text import duration as duration_text
from ..answers import Problem

ZONE_COOKIE = "gw_zone"
NONE = "—"
LONGEST = 100 * 365 * DAY
"""Seconds; what is further away than that counts as never."""


@lru_cache(maxsize=128)
def zone_named(name: str) -> tzinfo:
    """The zone with an IANA name such as Europe/Berlin; UTC for anything else."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= 64 else UTC
    except (KeyError, ValueError, OSError):
        return UTC


def zone_name(zone: tzinfo) -> str:
    return str(zone) if isinstance(zone, ZoneInfo) else "UTC"


def duration(seconds: float | timedelta | None, *, units: int = 2) -> str:
    """A duration, or a dash if there is none."""
    return NONE if seconds is None else duration_text(seconds, units=units)


def relative(at: datetime | None, now: datetime) -> str:
    """3 min ago, just now, in 4 h."""
    if at is None:
        return NONE
    if is_never(at, now):
        return "never"
    value = (_aware(at) - now).total_seconds()
    if abs(value) < 1:
        return "just now"
    words = duration_text(int(abs(value)), units=1)
    return f"in {words}" if value > 0 else f"{words} ago"


def instant(at: datetime | None, zone: tzinfo = UTC) -> str:
    """2026-11-16 03:14:07 CET."""
    if at is None:
        return NONE
    local = local_time(at, zone)
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if local is not None else "never"


def clock(at: datetime | None, now: datetime, zone: tzinfo = UTC) -> str:
    """03:14:07 for a time of today, 15 Nov 03:14 for another day of this year, else 2025-11-15 03:14."""
    if at is None:
        return NONE
    local = local_time(at, zone)
    if local is None:
        return "never"
    today = now.astimezone(zone)
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    if local.year == today.year:
        return f"{local.day} {local:%b %H:%M}"
    return f"{local:%Y-%m-%d %H:%M}"


def local_time(at: datetime, zone: tzinfo) -> datetime | None:
    """The time in a zone; None if it lies outside of the calendar."""
    try:
        return _aware(at).astimezone(zone)
    except (OverflowError, ValueError):
        return None


def is_never(at: datetime, now: datetime) -> bool:
    """Whether a time is so far away that it stands for infinity."""
    return abs((_aware(at) - now).total_seconds()) >= LONGEST


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


def times_in(text: str) -> Iterator[tuple[str, datetime | None]]:
    """Parts of a text, each with the time in UTC that follows it; None after the last."""
    *parts, rest = _UTC.split(text)
    for part, at in zip(parts[::2], parts[1::2], strict=True):
        try:
            yield part, datetime.fromisoformat(at).replace(tzinfo=UTC)
        except ValueError:
            yield f"{part}{at} UTC", None
    yield rest, None


# -- times that were typed ----------------------------------------------------------------------------------


def typed_time(text: str, zone: tzinfo) -> datetime:
    """A time that was typed in the viewer's zone."""
    try:
        found = datetime.fromisoformat(text[:40])
    except ValueError:
        raise Problem(400, "The time is not valid", "Write it as 2030-01-31T12:00.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)

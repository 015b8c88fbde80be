"""Times and durations as people read them: relative first, the exact time in the viewer's zone and in UTC.

The browser tells its time zone in a cookie (`times.js` sets it); without one, times are in UTC.
`static/times.js` has the same rules, so that relative times go on without the server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

ZONE_COOKIE = "gw_zone"
NONE = "—"
MINUTE, HOUR, DAY = 60, 3600, 86_400
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


def duration(seconds: float | timedelta | None) -> str:
    """6 ms, 0.42 s, 1.9 s, 41 s, 4 min 12 s, 2 h 5 min, 3 d 4 h."""
    value = _seconds(seconds)
    if value is None:
        return NONE
    if abs(value) >= LONGEST or value != value:
        return "forever"
    sign, value = ("-" if value < 0 else ""), abs(value)
    return sign + (_short(value) if value < MINUTE else _long(value))


def relative(at: datetime | None, now: datetime) -> str:
    """3 min ago, just now, in 4 h."""
    if at is None:
        return NONE
    if is_never(at, now):
        return "never"
    value = (_aware(at) - now).total_seconds()
    if abs(value) < 1:
        return "just now"
    words = coarse(abs(value))
    return f"in {words}" if value > 0 else f"{words} ago"


def coarse(seconds: float) -> str:
    """A duration in one unit: 12 s, 3 min, 4 h, 2 days."""
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)} min"
    if seconds < 2 * DAY:
        return f"{int(seconds // HOUR)} h"
    return f"{int(seconds // DAY):,} days"


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


def _seconds(value: float | timedelta | None) -> float | None:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _short(value: float) -> str:
    if value == 0:
        return "0 s"
    if value < 0.1:
        return f"{max(value * 1000, 0.1):.{0 if value >= 0.01 else 1}f} ms".replace(".0 ms", " ms")
    if value < 1:
        return f"{value:.2f} s"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def _long(value: float) -> str:
    whole = round(value)
    for size, unit, part, part_unit in (
        (DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s"),
    ):  # fmt: skip
        if whole >= size:
            count, rest = divmod(whole, size)
            rest //= part
            return f"{count:,} {unit}" + (f" {rest} {part_unit}" if rest and count < 100 else "")
    return f"{whole} s"

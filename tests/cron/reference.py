"""A slow and obvious reading of patterns and zones, to compare the real one with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
BOUNDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


@cache
def allowed_values(field: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, last = (low, high) if span == "*" else (int(span.split("-")[0]), int(span.split("-")[-1]))
        values |= {value % 7 if high == 6 else value for value in range(first, last + 1, int(step or 1))}
    return values


def matches(pattern: str, moment: datetime) -> bool:
    minutes, hours, dates, months, weekdays = (
        allowed_values(field, low, high) for field, (low, high) in zip(pattern.split(), BOUNDS, strict=True)
    )
    date_fits, weekday_fits = moment.day in dates, (moment.weekday() + 1) % 7 in weekdays
    if len(dates) == 31:
        day_fits = weekday_fits
    elif len(weekdays) == 7:
        day_fits = date_fits
    else:
        day_fits = date_fits or weekday_fits
    return moment.minute in minutes and moment.hour in hours and moment.month in months and day_fits


def utc_minutes(pattern: str, start: datetime, end: datetime) -> list[datetime]:
    return [minute for minute in every_minute(start, end) if matches(pattern, minute)]


def zone_minutes(pattern: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Take every wall-clock minute there can be, and find the instant at which it comes.

    A wall-clock minute that never comes is put to the first instant that shows a later one. Of one that comes
    twice the first counts, unless the pattern takes every hour and so means real time.
    """
    every_hour = len(allowed_values(pattern.split()[1], 0, 23)) == 24
    instants = list(every_minute(start - timedelta(hours=26), end))
    due: set[datetime] = set()
    seen: set[datetime] = set()
    latest: datetime | None = None
    for instant in instants:
        wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = list(every_minute(latest + MINUTE, wall)) if latest is not None and not every_hour else []
        is_new = wall not in seen or every_hour
        if any(matches(pattern, minute) for minute in skipped) or (is_new and matches(pattern, wall)):
            due.add(instant)
        seen.add(wall)
        latest = wall if latest is None else max(latest, wall)
    return sorted(instant for instant in due if start <= instant < end)


def every_minute(start: datetime, end: datetime) -> list[datetime]:
    return [start + number * MINUTE for number in range(max(0, int((end - start) / MINUTE)))]


def at(text: str) -> datetime:
    """A moment in UTC from text such as `2026-03-29 01:00`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)

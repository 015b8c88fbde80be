"""What the ends of daylight saving time mean for a recurring job in the next year. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .digest import TimestampDigest
from .fields import parse_pattern
from .matcher import PatternMatcher, each_minute
from .zone import skipped_minutes, steady_offset

DAYS_AHEAD = 366


class ClockChange(NamedTuple):
    """A run at a time that does not exist on a day, or exists twice."""

    day: date
    wall: time
    """The time of the pattern."""
    is_skipped: bool
    """Whether the time does not exist on that day; otherwise it exists twice."""
    runs_at: datetime

    @property
    def text(self) -> str:
        """For people: `29 March 2027: 02:30 does not exist; runs at 03:00`."""
        on = f"{self.day.day} {self.day:%B %Y}: {self.wall:%H:%M}"
        if self.is_skipped:
            return f"{on} does not exist; runs at {self.runs_at:%H:%M}"
        return f"{on} comes twice; runs the first time only"


def clock_changes(pattern: str, zone: ZoneInfo | None, today: date) -> tuple[ClockChange, ...]:
    """The runs that a change of the clock moves or would repeat; patterns for every hour have none."""
    if zone is None:
        return ()
    return _clock_changes(pattern, zone, today)


@lru_cache(maxsize=512)
def _clock_changes(pattern: str, zone: ZoneInfo, today: date) -> tuple[ClockChange, ...]:
    matcher = PatternMatcher(parse_pattern(pattern), zone)
    if len(matcher.fields.hours) == 24:
        return ()
    found: dict[tuple[date, bool], ClockChange] = {}
    for change in _changes(matcher, zone, today):
        found.setdefault((change.day, change.is_skipped), change)
    return tuple(found.values())


def _changes(matcher: PatternMatcher, zone: ZoneInfo, today: date) -> Iterator[ClockChange]:
    for day in _days_of_change(zone, today):
        start = datetime.combine(day, time(), UTC)
        for minute in each_minute(start, start + timedelta(days=1)):
            local = minute.astimezone(zone)
            for wall in skipped_minutes(zone, minute):
                if matcher(TimestampDigest.of(wall)):
                    yield ClockChange(wall.date(), wall.time(), True, local)
            if local.fold and matcher(TimestampDigest.of(local)):
                yield ClockChange(local.date(), local.time(), False, local)


@lru_cache(maxsize=64)
def _days_of_change(zone: ZoneInfo, today: date) -> tuple[date, ...]:
    days = (today + timedelta(days=number) for number in range(DAYS_AHEAD))
    return tuple(day for day in days if steady_offset(zone, day) is None)

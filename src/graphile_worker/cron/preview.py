"""What a crontab means: its next runs, and what the ends of daylight saving time do to them. Pure.

The next runs of recurring jobs, to show what a crontab means. Pure.

What the ends of daylight saving time mean for a recurring job in the next year. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .fields import parse_pattern
from .item import ParsedCronItem
from .matcher import PatternMatcher, TimestampDigest, each_minute, skipped_minutes, steady_offset

# Some dates are rare: 29 February is up to eight years away around 2100. A function has to be called for
# every minute, so it is not searched that far.
_HORIZON = timedelta(days=366 * 9)
_FUNCTION_HORIZON = timedelta(days=366)
# The ends of the calendar, with room for time zone offsets.
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """One future run."""

    at: datetime
    item: ParsedCronItem


def upcoming_runs(items: Sequence[ParsedCronItem], start: datetime, count: int) -> list[UpcomingRun]:
    """The next `count` runs from `start` on, by time and then by the order of the items."""
    start = min(max(start, _FIRST), _LAST)
    streams = (_runs(item, number, start) for number, item in enumerate(items))
    return [UpcomingRun(at, items[number]) for at, number in islice(heapq.merge(*streams), count)]


def _runs(item: ParsedCronItem, number: int, start: datetime) -> Iterator[tuple[datetime, int]]:
    horizon = _FUNCTION_HORIZON if item.pattern is None else _HORIZON
    end = _LAST if _LAST - start <= horizon else start + horizon
    return ((at, number) for at in item.match.minutes_between(start, end))


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

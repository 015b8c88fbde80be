"""What a crontab means, to show it to people. Pure.

- `upcoming_runs`: the next runs of recurring jobs.
- `clock_changes`: what the ends of daylight saving time mean for a recurring job in the next year.
- `describe_pattern`: a pattern in words, such as "weekdays at 09:00" or "every 5 minutes".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, repeat
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .fields import MONTHS, WEEKDAYS, CronFields, FieldError, parse_pattern
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
    streams = (zip(_runs(item, start), repeat(number)) for number, item in enumerate(items))
    return [UpcomingRun(at, items[number]) for at, number in islice(heapq.merge(*streams), count)]


def _runs(item: ParsedCronItem, start: datetime) -> Iterator[datetime]:
    horizon = _FUNCTION_HORIZON if item.pattern is None else _HORIZON
    end = _LAST if _LAST - start <= horizon else start + horizon
    return item.match.minutes_between(start, end)


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


_MOST_TIMES = 4  # times of a day that are written out
_MOST_VALUES = 6


def describe_pattern(pattern: str) -> str:
    """What a pattern means; the pattern itself if it cannot be read."""
    try:
        fields = parse_pattern(pattern)
    except FieldError:
        return pattern
    days = _days(fields)
    times = _times(fields)
    if not days:
        is_of_day = len(fields.hours) < 24 and times.startswith("at ")
        return f"every day {times}" if is_of_day else times
    return f"{days} {times}" if times.startswith("at ") else f"{times}, {days}"


def _times(fields: CronFields) -> str:
    """The times of a day."""
    hours, minutes = fields.hours, fields.minutes
    if len(hours) == 24:
        return _minutes(minutes)
    if len(hours) * len(minutes) <= _MOST_TIMES:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(minutes) == 1 and (step := _step(hours, 24)) is not None:
        return f"every {step} hours" + ("" if minutes == (0,) else f" at {minutes[0]} minutes past")
    return f"{_minutes(minutes)}, {_hours(hours)}"


def _minutes(minutes: Sequence[int]) -> str:
    if len(minutes) == 60:
        return "every minute"
    if (step := _step(minutes, 60)) is not None:
        return f"every {step} minutes"
    if len(minutes) == 1:
        return "every hour" if minutes[0] == 0 else f"every hour at {minutes[0]} minutes past"
    return f"at {_values(minutes)} minutes past every hour"


def _hours(hours: Sequence[int]) -> str:
    runs = _runs_of(hours)
    if len(runs) <= 2:
        return " and ".join(f"from {first:02}:00 to {last:02}:59" for first, last in runs)
    return "in the hours " + _values(hours)


def _days(fields: CronFields) -> str:
    """The days, empty for every day; if both are restricted, either suffices."""
    parts = [part for part in (_dates(fields.dates), _weekdays(fields.weekdays)) if part]
    days = " and on ".join(parts) if len(parts) == 2 else "".join(parts)
    if len(fields.months) == 12:
        return days
    months = _listed([MONTHS[month - 1].capitalize() for month in fields.months])
    if not days:
        return f"every day in {months}"
    return f"{days.removesuffix(' of each month')} in {months}"


def _dates(dates: Sequence[int]) -> str:
    if len(dates) == 31:
        return ""
    return f"on day {_values(dates)} of each month"


def _weekdays(weekdays: Sequence[int]) -> str:
    found = set(weekdays)
    if len(found) == 7:
        return ""
    if found == {1, 2, 3, 4, 5}:
        return "weekdays"
    if found == {0, 6}:
        return "weekends"
    ordered = sorted(found, key=lambda day: (day + 6) % 7)  # the week begins on Monday
    return _listed([f"{WEEKDAYS[day].capitalize()}s" for day in ordered])


def _values(values: Sequence[int]) -> str:
    runs = _runs_of(values)
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 1], f"{len(texts) - _MOST_VALUES + 1} more"]
    return _listed(texts)


def _runs_of(values: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of consecutive values; pairs stay apart."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return [
        part for first, last in runs
        for part in ([(first, first), (last, last)] if last == first + 1 else [(first, last)])
    ]  # fmt: skip


def _step(values: Sequence[int], size: int) -> int | None:
    """The step of `*/n` from zero; None for other lists."""
    if len(values) < 2 or values[0] != 0:
        return None
    step = values[1]
    return step if list(values) == list(range(0, size, step)) and step > 1 else None


def _listed(texts: Sequence[str]) -> str:
    if len(texts) <= 1:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"

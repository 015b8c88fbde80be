"""When a recurring job is due: by pattern or by function, in UTC or in a time zone. Pure.

When daylight saving time begins or ends, a pattern with fixed hours runs once: runs in the skipped hour move
to the first minute after it, and in the repeated hour only the first pass counts. A pattern for every hour
follows real time, so an item that runs each minute never pauses.

A `TimestampDigest` has the parts of a minute that patterns and match functions compare.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Protocol, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ..errors import CrontabError
from ..hooks.faults import report
from ..values.text import closest
from .fields import CronFields

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

logger = logging.getLogger("graphile_worker.cron")


class Matcher(Protocol):
    """When an item is due. Times are aware, whole minutes, in UTC."""

    def __call__(self, digest: TimestampDigest) -> bool:
        """Whether a minute with these parts matches."""
        ...

    def is_due_at(self, minute: datetime) -> bool:
        """Whether the item is due in this minute."""
        ...

    def minutes_between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Every due minute from `start` until before `end`, in order."""
        ...


class PatternMatcher:
    """Five fields; months and days that do not match are skipped as a whole."""

    def __init__(self, fields: CronFields, zone: ZoneInfo | None = None) -> None:
        self.fields = fields
        self.zone = zone
        self._minutes = frozenset(fields.minutes)
        self._hours = frozenset(fields.hours)
        self._dates = frozenset(fields.dates)
        self._months = frozenset(fields.months)
        self._weekdays = frozenset(fields.weekdays)
        # A full list restricts nothing; if both lists are restricted, a match of either suffices.
        self._any_date = len(fields.dates) == 31
        self._any_weekday = len(fields.weekdays) == 7
        self._every_hour = len(fields.hours) == 24

    def __call__(self, digest: TimestampDigest) -> bool:
        return (
            digest.min in self._minutes
            and digest.hour in self._hours
            and digest.month in self._months
            and self._matches_day(digest.date, digest.dow)
        )

    def is_due_at(self, minute: datetime) -> bool:
        if self.zone is None:
            return self(TimestampDigest.of(minute.astimezone(UTC)))
        local = minute.astimezone(self.zone)
        if self._every_hour:
            return self(TimestampDigest.of(local))
        if not local.fold and self(TimestampDigest.of(local)):
            return True
        return any(self(TimestampDigest.of(wall)) for wall in skipped_minutes(self.zone, minute))

    def minutes_between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        start, end = round_up(start), round_up(end)
        if self.zone is None:
            yield from self._walk(start, end)
            return
        while start < end:
            day = start.date()
            stop = min(end, datetime.combine(day + DAY, time(), UTC))
            offset = steady_offset(self.zone, day)
            if offset is not None:
                yield from (wall - offset for wall in self._walk(start + offset, stop + offset))
            else:
                yield from (minute for minute in each_minute(start, stop) if self.is_due_at(minute))
            start = stop

    def _matches_day(self, day: int, weekday: int) -> bool:
        if self._any_date:
            return self._any_weekday or weekday in self._weekdays
        return day in self._dates or (not self._any_weekday and weekday in self._weekdays)

    def _walk(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The matching minutes of a clock without daylight saving time."""
        times = _times_of_day(self.fields.hours, self.fields.minutes)
        day = start.date()
        while (midnight := datetime.combine(day, time(), start.tzinfo)) < end:
            if day.month not in self._months:
                day = _first_of_next_month(day)
                continue
            if self._matches_day(day.day, day.isoweekday() % 7):
                first = bisect_left(times, start - midnight) if start > midnight else 0
                last = bisect_left(times, end - midnight) if end - midnight < DAY else len(times)
                for offset in times[first:last]:
                    yield midnight + offset
            day += DAY


class FunctionMatcher:
    """A function of the digest, called for every minute. An error is logged once and means not due."""

    def __init__(
        self,
        function: Callable[[TimestampDigest], object],
        zone: ZoneInfo | None = None,
        name: str | None = None,
    ) -> None:
        self.function = function
        self.zone = zone
        self.name = name or getattr(function, "__qualname__", repr(function))
        self._has_failed = False

    def __call__(self, digest: TimestampDigest) -> bool:
        try:
            return bool(self.function(digest))
        except BaseException as error:
            if not self._has_failed:
                self._has_failed = True
                report(
                    logger, "the match function of cron item %r failed for %s", self.name, digest, error=error
                )
            return False

    def is_due_at(self, minute: datetime) -> bool:
        return self(TimestampDigest.of(minute.astimezone(self.zone or UTC)))

    def minutes_between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        return (minute for minute in each_minute(round_up(start), end) if self.is_due_at(minute))


def round_up(moment: datetime) -> datetime:
    """The next whole minute, or the time itself if it is one; in UTC."""
    minute = round_down(moment)
    return minute if minute == moment else minute + MINUTE


def round_down(moment: datetime) -> datetime:
    """The minute that contains this time, in UTC."""
    return moment.astimezone(UTC).replace(second=0, microsecond=0)


def each_minute(start: datetime, end: datetime) -> Iterator[datetime]:
    """Every minute from `start` until before `end`."""
    while start < end:
        yield start
        start += MINUTE


@lru_cache(maxsize=1024)
def _times_of_day(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[timedelta, ...]:
    return tuple(timedelta(hours=hour, minutes=minute) for hour in hours for minute in minutes)


def _first_of_next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


@dataclass(frozen=True, slots=True)
class TimestampDigest:
    """One minute in parts; `dow` is the weekday, 0 = Sunday. In UTC, unless the item has a time zone."""

    min: int
    hour: int
    date: int
    month: int
    dow: int

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The parts of a time in its own time zone."""
        return cls(moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)


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

"""The next runs of recurring jobs, to show what a crontab means. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from .item import ParsedCronItem

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

"""The scheduler's decisions: what is due, what was missed, when to tick, how long to back off. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, repeat
from operator import itemgetter
from typing import NamedTuple

from ..tasks.task import AnyTask
from ..values.spec import CronJob
from .item import ParsedCronItem
from .item_jobs import job_options, options_of, payload_at
from .matcher import MINUTE, round_up

DueMinute = tuple[datetime, list[ParsedCronItem]]


class KnownCrontab(NamedTuple):
    """One item as the database knows it."""

    identifier: str
    known_since: datetime
    last_execution: datetime | None


LONGEST_CATCH_UP = timedelta(weeks=1)
"""How far back a late scheduler adds missed runs, unless an item's backfill period is longer.

Without a limit, a clock set forward by years would add one job for every minute of them.
"""
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)  # room for time zone offsets
_INSTANT = timedelta(microseconds=1)
_MIN_BACKOFF = 0.2
_MAX_BACKOFF = 60.0
_BACKOFF_GROWTH = 1.5


def due_between(items: Sequence[ParsedCronItem], start: datetime, end: datetime) -> Iterator[DueMinute]:
    """Each minute from `start` until before `end` in which something is due, with its items in order."""
    if end - start <= MINUTE:  # a regular tick; checking each item is faster than merging
        minute = round_up(start)
        due = [item for item in items if item.match.is_due_at(minute)] if minute < end else []
        return iter([(minute, due)] if due else [])
    return _merged(items, [start] * len(items), end)


def due_when_late(
    items: Sequence[ParsedCronItem], expected: datetime, current: datetime
) -> Iterator[DueMinute]:
    """What is due from `expected` to `current`, within the limits of a catch-up."""
    end = current + MINUTE
    if current - expected <= LONGEST_CATCH_UP:
        return due_between(items, expected, end)
    starts = [
        max(expected, min(_before(current, LONGEST_CATCH_UP), _period_start(item, current))) for item in items
    ]
    return _merged(items, starts, end)


def due_for_backfill(
    items: Sequence[ParsedCronItem],
    known: Mapping[str, KnownCrontab],
    start: datetime,
    owed: datetime | None = None,
) -> Iterator[DueMinute]:
    """The minutes missed before `start`: for each item, those in its backfill period since its last run.

    Items that were unknown before `start` missed nothing. A scheduler that restarts after a failure owes
    everything since `owed`, even before the backfill period, up to `LONGEST_CATCH_UP`.
    """
    eligible = [item for item in items if item.options.backfill_period > 0 and item.identifier in known]
    starts = [_backfill_from(item, known[item.identifier], start, owed or start) for item in eligible]
    return _merged(eligible, starts, start)


def in_groups(minutes: Iterable[DueMinute], size: int) -> Iterator[list[DueMinute]]:
    """The minutes in lists of about `size` items, at least one minute each."""
    group: list[DueMinute] = []
    count = 0
    for minute in minutes:
        group.append(minute)
        count += len(minute[1])
        if count >= size:
            yield group
            group, count = [], 0
    if group:
        yield group


def _backfill_from(item: ParsedCronItem, known: KnownCrontab, start: datetime, owed: datetime) -> datetime:
    earliest = min(_period_start(item, start), max(owed, _before(start, LONGEST_CATCH_UP)))
    if known.last_execution is not None:
        return max(earliest, known.last_execution + _INSTANT)
    return max(earliest, known.known_since)


def _period_start(item: ParsedCronItem, end: datetime) -> datetime:
    """The start of the item's backfill period that ends here."""
    try:
        return _before(end, timedelta(seconds=item.options.backfill_period))
    except OverflowError:  # longer than the calendar
        return _FIRST


def _before(moment: datetime, period: timedelta) -> datetime:
    return moment - period if moment - _FIRST > period else _FIRST


def _merged(
    items: Sequence[ParsedCronItem], starts: Sequence[datetime], end: datetime
) -> Iterator[DueMinute]:
    streams = (
        zip(item.match.minutes_between(start, end), repeat(index))
        for index, (item, start) in enumerate(zip(items, starts, strict=True))
    )
    for minute, group in groupby(heapq.merge(*streams), key=itemgetter(0)):
        yield minute, [items[index] for _, index in group]


def first_tick(start: datetime, owed: datetime | None) -> datetime:
    """The minute to start with: the next one, or an earlier one that a database failure left undone."""
    tick = round_up(start)
    return tick if owed is None else min(tick, owed)


def cron_job(
    item: ParsedCronItem, minute: datetime, *, backfilled: bool, task: AnyTask | None = None
) -> CronJob:
    """The job to add for an item and a minute; options of `task` fill in what the item does not set."""
    payload = payload_at(item.payload, minute, backfilled=backfilled)
    return CronJob(
        item.task_identifier,
        payload,
        identifier=item.identifier,
        run_at=minute,
        **job_options(item.options, options_of(task, payload)),
    )


def backoff(failures: int, jitter: float) -> float:
    """Seconds to wait after this many failures in a row; `jitter` from 0 to 1 spreads workers apart."""
    # The exponent is capped because a worker may fail for days.
    delay = min(_MIN_BACKOFF * _BACKOFF_GROWTH ** min(failures - 1, 100), _MAX_BACKOFF)
    return delay * (0.5 + jitter)

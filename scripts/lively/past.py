"""Statistics and samples of the past: two days by the minute, ninety days by the hour."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from graphile_worker.history.statistics import BUCKETS, bucket_of

from .shop import FAILING, TASKS, ShopTask, pace

MINUTES = 48 * 60
HOURS = 90 * 24
SPREAD = 0.55  # of the logarithm of run times
STATISTICS = ("completed", "failed", "permanently_failed", "run_seconds", "wait_seconds", "longest",
           "run_times", "wait_times")  # fmt: skip


async def write_past(connection: Any, now: datetime, rng: random.Random) -> None:
    """Fill the tables of statistics and samples."""
    minute = now.replace(second=0, microsecond=0)
    await connection.copy_records_to_table(
        "_private_py_minutes", records=_minutes(minute, rng),
        columns=("minute", "task", "pool_id", *STATISTICS),
    )  # fmt: skip
    await connection.copy_records_to_table(
        "_private_py_hours", records=_hours(minute, rng),
        columns=("hour", "task", *STATISTICS),
    )  # fmt: skip
    await connection.copy_records_to_table(
        "_private_py_samples", records=_samples(now, rng),
        columns=("at", "added", "deleted", "updated", "live", "ready", "scheduled", "failed", "is_estimate",
                 "oldest_wait"),
    )  # fmt: skip


def _minutes(now: datetime, rng: random.Random) -> Iterator[tuple[Any, ...]]:
    for ago in range(MINUTES, 0, -1):
        moment = now - timedelta(minutes=ago)
        for task in TASKS:
            count = _number(task.per_minute * pace(ago), rng)
            if count:
                share = _failing(task, ago)
                yield moment, task.name, "", *_statistics(task, count, share, rng, late=ago < FAILING)


def _hours(now: datetime, rng: random.Random) -> Iterator[tuple[Any, ...]]:
    hour = now.replace(minute=0)
    growth = 0.6
    for ago in range(HOURS, 0, -1):
        moment = hour - timedelta(hours=ago)
        growth = 0.6 + 0.4 * (1 - ago / HOURS)
        outage = ago in range(31 * 24, 31 * 24 + 5)
        for task in TASKS:
            count = _number(task.per_minute * 60 * pace(ago * 60) * growth, rng)
            if count:
                share = 0.4 if outage and task.name == "charge_card" else task.failing
                yield moment, task.name, *_statistics(task, count, share, rng, late=outage)


def _failing(task: ShopTask, ago: int) -> float:
    if task.name == "send_email" and ago <= FAILING:
        return 0.8 if ago < FAILING - 3 else 0.5
    return task.failing


def _statistics(
    task: ShopTask, count: int, share: float, rng: random.Random, *, late: bool
) -> tuple[Any, ...]:
    """The columns of STATISTICS for this many attempts."""
    failed = _number(count * share, rng)
    permanently = _number(failed * 0.12, rng)
    runs, run_seconds, longest = _histogram(task.seconds, count, rng)
    waits, wait_seconds, _ = _histogram(8.0 if late and task.name == "send_email" else 0.02, count, rng)
    failed = min(failed, count)
    permanently = min(permanently, failed)
    return (
        count - failed, failed - permanently, permanently, run_seconds, wait_seconds, longest, runs, waits
    )  # fmt: skip


def _histogram(median: float, count: int, rng: random.Random) -> tuple[list[int], float, float]:
    """Buckets without trailing zeros, the sum and the longest; a sample stands for larger numbers."""
    drawn = [median * rng.lognormvariate(0, SPREAD) for _ in range(min(count, 12))]
    weight, rest = divmod(count, len(drawn))
    buckets = [0] * BUCKETS
    for number, seconds in enumerate(drawn):
        buckets[bucket_of(seconds)] += weight + (number < rest)
    while buckets and not buckets[-1]:
        buckets.pop()
    return buckets, sum(drawn) / len(drawn) * count, max(drawn)


def _number(expected: float, rng: random.Random) -> int:
    """A whole number around the expected one."""
    drawn = max(0.0, rng.gauss(expected, expected**0.5))
    return int(drawn) + (rng.random() < drawn % 1)


def _samples(now: datetime, rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Every minute for two days, every ten seconds in the last hour; the backlog grows since the deploy."""
    added = deleted = updated = 0
    moments = [now - timedelta(minutes=ago) for ago in range(MINUTES, 60, -1)]
    moments += [now - timedelta(seconds=ago) for ago in range(3600, 5, -10)]
    before = moments[0] - timedelta(minutes=1)
    for moment in moments:
        minutes = (moment - before).total_seconds() / 60
        before, ago = moment, (now - moment).total_seconds() / 60
        done = _number(305 * pace(ago) * minutes, rng)
        failing = max(0.0, FAILING - ago)
        failed = _number(48 * minutes, rng) if failing else _number(0.4 * minutes, rng)
        added += done + failed
        deleted += done
        updated += done + 2 * failed
        ready = int(24 + 12 * rng.random() + failing * 2.5)
        scheduled = int(420 + 40 * pace(ago) + failing * 30)
        wait = 0.2 + rng.random() * 1.3 + failing * 9
        dead = 9 + int(failing * 48)
        yield moment, added, deleted, updated, ready + scheduled + dead, ready, scheduled, dead, False, wait

"""Where the lines of an axis are. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil, floor, log10

MINUTE, HOUR, DAY = 60, 3600, 86400
TIME_STEPS = (
    MINUTE, 3 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR,
    6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
)  # fmt: skip
DURATION_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def value_ticks(largest: float, *, lines: int = 4, is_duration: bool = False) -> list[float]:
    """Round values from 0 to the first one that is not below the largest, at most `lines` above 0."""
    step = duration_step(largest / lines) if is_duration else round_step(largest / lines)
    return [step * number for number in range(max(ceil(largest / step - 1e-9), 1) + 1)]


def round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, not below `least`; at least 1."""
    if least <= 1:
        return 1.0
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def duration_step(least: float) -> float:
    """Seconds that make round durations, not below `least`."""
    for step in DURATION_STEPS:
        if step >= least:
            return float(step)
    return ceil(least / DAY) * float(DAY)


def time_ticks(start: datetime, end: datetime, zone: tzinfo, *, most: int = 6) -> list[tuple[datetime, str]]:
    """Round times in a zone between two moments, and how to write each."""
    period = (end - start).total_seconds()
    if period <= 0:
        return []
    step = next((step for step in TIME_STEPS if period / step <= most), TIME_STEPS[-1])
    found = []
    moment = _first(start, step, zone)
    while moment <= end:
        local = moment.astimezone(zone)
        found.append((moment, _label(local, step)))
        moment = _following(moment, step, zone)
    return found


def _first(start: datetime, step: int, zone: tzinfo) -> datetime:
    """The first multiple of the step in local time that is not before the start."""
    local = start.astimezone(zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if step >= DAY:
        return _aware(midnight if midnight >= local else _next_day(midnight), zone)
    seconds = (local.replace(tzinfo=None) - midnight.replace(tzinfo=None)).total_seconds()
    return _aware(midnight.replace(tzinfo=None) + timedelta(seconds=ceil(seconds / step) * step), zone)


def _following(moment: datetime, step: int, zone: tzinfo) -> datetime:
    """One step later: days by the calendar, so that they stay at midnight when clocks change."""
    if step < DAY:
        return moment + timedelta(seconds=step)
    local = moment.astimezone(zone).replace(tzinfo=None) + timedelta(days=step // DAY)
    return _aware(local, zone)


def _next_day(local: datetime) -> datetime:
    return local.replace(tzinfo=None) + timedelta(days=1)


def _aware(local: datetime, zone: tzinfo) -> datetime:
    return local.replace(tzinfo=zone).astimezone(UTC)


def _label(local: datetime, step: int) -> str:
    if step >= DAY or (step >= 3 * HOUR and local.hour == local.minute == 0):
        return f"{local:%b} {local.day}"
    return f"{local:%H:%M}"

"""Round values and times for axes, and lines and areas as SVG paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from math import ceil, floor, log10

Values = Sequence[float | None]
"""None where a value is unknown."""


def number(value: float) -> str:
    """A value of an axis or a table: `0`, `0.4`, `1,200`, `40 k`, `1.5 M`."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1000:.4g} k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


# -- paths --------------------------------------------------------------------------------------------------

WIDTH = 1000.0


def line(values: Values, top: float, height: float) -> str:
    """A line through the known values, with gaps where they are unknown."""
    pieces: list[str] = []
    is_drawing = False
    for number, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        pieces.append(f"{'L' if is_drawing else 'M'}{_point(number, len(values), value, top, height)}")
        is_drawing = True
    if len(values) == 1 and pieces:
        pieces.append(f"L{WIDTH:.1f} {_y(values[0] or 0, top, height)}")
    return " ".join(pieces)


def area(lower: Sequence[float], upper: Values, top: float, height: float) -> str:
    """The area between two lines, with gaps where the upper one is unknown."""
    count = len(upper)
    if count == 1:
        lower, upper, count = [*lower, *lower], [*upper, *upper], 2
    pieces: list[str] = []
    for is_known, run in groupby(enumerate(upper), key=lambda pair: pair[1] is not None):
        if is_known:
            points = [(number, value or 0.0) for number, value in run]
            points += [(number, lower[number]) for number, _ in reversed(points)]
            outline = " L".join(_point(number, count, value, top, height) for number, value in points)
            pieces.append(f"M{outline} Z")
    return " ".join(pieces)


def _point(number: int, count: int, value: float, top: float, height: float) -> str:
    x = number * WIDTH / (count - 1) if count > 1 else 0.0
    return f"{x:.1f} {_y(value, top, height)}"


def _y(value: float, top: float, height: float) -> str:
    return f"{height - min(max(value, 0.0), top) / top * height:.1f}"


# -- scales -------------------------------------------------------------------------------------------------

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

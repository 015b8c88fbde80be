"""What charts draw, and where: markers with their texts, paths, round values and times for axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from math import ceil, floor, log10
from typing import Literal

from ..answers import Marker, MarkerKind

Values = Sequence[float | None]
"""None where a value is unknown."""
Colour = Literal["c1", "c2", "c3", "c4", "c5", "c6", "c-fail", "c-idle"]
"""A class of CSS."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line or area: a value for each step, None where it is unknown."""

    name: str
    values: Values
    colour: Colour = "c1"


# -- labels of markers --------------------------------------------------------------------------------------

NARROWEST = 600  # pixels; CSS hides the texts where a chart is narrower
ROWS = 3
CHARACTER = 6.3  # pixels, a little more than the average
LENGTHS = (30, 18, 12)  # characters; the first that fits
GAP = 8  # pixels between the line of a marker and its text
EDGE = 3  # pixels between a text and the line of another marker
CLOSE = 14 / NARROWEST  # markers closer than this share a line
IMPORTANCE: tuple[MarkerKind, ...] = ("deploy", "pause", "restart", "action")


@dataclass(frozen=True, slots=True)
class PlacedMarker:
    """One line: where it is, and its text unless there is no room for one."""

    share: float
    """From 0 at the left to 1 at the right."""
    kind: MarkerKind
    texts: tuple[str, ...]
    """Everything that happened here."""
    label: str = ""
    row: int = ROWS
    """The line begins here: below its own text, or below all texts if it has none."""
    is_left: bool = False
    """Whether the text is left of the line."""

    @property
    def at(self) -> float:
        return self.share * NARROWEST

    @property
    def span(self) -> tuple[float, float]:
        """From where to where the text goes, in pixels."""
        width = len(self.label) * CHARACTER
        begin = self.at - GAP - width if self.is_left else self.at + GAP
        return begin, begin + width


def place(markers: Sequence[Marker], start: float, period: float) -> list[PlacedMarker]:
    """Lines for markers since the start, with texts in rows above the plot.

    What happened after the last step that is over is at the right edge.
    """
    lines: list[PlacedMarker] = []
    for marker in sorted(markers, key=lambda marker: marker.at):
        share = min((marker.at.timestamp() - start) / period, 1.0)
        if share < 0:
            continue
        if lines and share - lines[-1].share < CLOSE:
            lines[-1] = _joined(lines[-1], marker)
        else:
            lines.append(PlacedMarker(share, marker.kind, (marker.text,)))
    return _labelled(lines)


def _joined(line: PlacedMarker, marker: Marker) -> PlacedMarker:
    """The most important text first."""
    if IMPORTANCE.index(marker.kind) < IMPORTANCE.index(line.kind):
        return PlacedMarker(line.share, marker.kind, (marker.text, *line.texts))
    return PlacedMarker(line.share, line.kind, (*line.texts, marker.text))


def _labelled(lines: list[PlacedMarker]) -> list[PlacedMarker]:
    """Texts for as many as there is room for, the most important first: the best of three orders."""

    def important(line: PlacedMarker) -> tuple[int, float]:
        return IMPORTANCE.index(line.kind), -line.share

    def texts(placed: list[PlacedMarker]) -> list[int]:
        return [sum(each.kind == kind and bool(each.label) for each in placed) for kind in IMPORTANCE]

    orders = [sorted(lines, key=important), lines, lines[::-1]]
    return max((_labelled_in_turn(order) for order in orders), key=texts)


def _labelled_in_turn(lines: Sequence[PlacedMarker]) -> list[PlacedMarker]:
    """Each with the best place that those before it have left, if there is any."""
    placed: list[PlacedMarker] = []
    for line in lines:
        free = (each for each in _choices(line) if all(_is_apart(each, other) for other in placed))
        placed.append(next(free, line))
    return sorted(placed, key=lambda each: each.share)


def _choices(line: PlacedMarker) -> Iterator[PlacedMarker]:
    """Where its text could go, the best place first."""
    for label in dict.fromkeys(_label(line.texts, length) for length in LENGTHS):
        for row in range(ROWS):
            for is_left in (False, True):
                choice = replace(line, label=label, row=row, is_left=is_left)
                begin, end = choice.span
                if begin >= 0 and end <= NARROWEST:
                    yield choice


def _is_apart(one: PlacedMarker, other: PlacedMarker) -> bool:
    """Whether neither text covers the other one or its line, which goes down from its row."""
    (begin, end), (other_begin, other_end) = one.span, other.span
    if one.row == other.row and begin - GAP < other_end and other_begin < end + GAP:
        return False
    if one.row >= other.row and begin - EDGE < other.at < end + EDGE:
        return False
    return not (other.row >= one.row and other_begin - EDGE < one.at < other_end + EDGE)


def _label(texts: tuple[str, ...], length: int) -> str:
    more = f" +{len(texts) - 1}" if len(texts) > 1 else ""
    room = length - len(more)
    first = texts[0] if len(texts[0]) <= room else texts[0][: room - 1].rstrip() + "…"
    return first + more


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
        found.append((moment, _time(local, step)))
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


def _time(local: datetime, step: int) -> str:
    if step >= DAY or (step >= 3 * HOUR and local.hour == local.minute == 0):
        return f"{local:%b} {local.day}"
    return f"{local:%H:%M}"


def number(value: float) -> str:
    """A value of an axis or a table: `0`, `0.4`, `1,200`, `40 k`, `1.5 M`."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1000:.4g} k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"

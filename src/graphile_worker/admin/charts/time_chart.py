"""A chart over time: stacked areas, lines or bars, with axes, markers and a table of the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from ...values.text import duration
from ..answers import Marker
from .series import ChartSeries, PlacedMarker, place

AXIS = 22  # pixels below the plot
ROW = 13  # pixels of a row of marker texts
TOP = 8  # pixels above the plot, for the top label
TABLE_ROWS = 24

Format = Callable[[float], str]


def time_chart(
    series: Sequence[ChartSeries],
    *,
    start: datetime,
    step: float,
    label: str,
    unit: str = "",
    zone: tzinfo = UTC,
    stacked: bool = True,
    is_duration: bool = False,
    is_bars: bool = False,
    markers: Sequence[Marker] = (),
    height: int = 220,
) -> Markup:
    """Values every `step` seconds since `start`, all series equally long.

    `label` says in a sentence what the chart shows, for those who do not see it. `unit` follows values, such
    as `/min`. `is_duration`: values are seconds. `is_bars`: a bar as wide as its step for each value, which
    suits counts.
    """
    count = max((len(each.values) for each in series), default=0)
    period = max(count if is_bars else count - 1, 1) * step
    placed = place(markers, start.timestamp(), period)
    rows = max((each.row + 1 for each in placed if each.label), default=0)
    above = TOP + (rows * ROW + 4 if placed else 0)
    inside = height - above - AXIS
    ticks = value_ticks(_largest(series, stacked), is_duration=is_duration)
    write = duration if is_duration else number
    end = start + timedelta(seconds=period)
    frame = _Frame(start, end, step, count, zone, above, inside, ticks[-1], write)
    draw = _bars if is_bars else _stack if stacked else _lines
    drawn = draw(series, frame)
    return Markup(
        '<figure class="chart" data-start="{}" data-step="{:g}" data-count="{}" data-zone="{}" data-unit="{}"'
        ' data-kind="{}"><svg width="100%" height="{}" role="img" aria-label="{}">{}'
        '<svg class="plot" x="0" y="{}" width="100%" height="{}" viewBox="0 0 1000 {}"'
        ' preserveAspectRatio="none">{}</svg>{}{}</svg>{}{}</figure>'
    ).format(
        int(start.timestamp()), step, count, str(zone), unit, "duration" if is_duration else "number",
        height, label, grid(ticks, frame.y, write), above, inside, inside, drawn, _times(frame, height),
        _markers(placed, rows, frame), _marker_list(placed), _table(series, frame, unit),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Frame:
    """The measures that the parts of one chart share."""

    start: datetime
    end: datetime
    step: float
    count: int
    zone: tzinfo
    above: int
    inside: int
    top: float
    write: Format

    def at(self, number: int) -> datetime:
        return self.start + timedelta(seconds=number * self.step)

    def x(self, moment: datetime) -> float:
        """The place of a moment, in per cent of the width."""
        return (moment - self.start) / (self.end - self.start) * 100

    def y(self, value: float) -> float:
        return self.above + self.inside * (1 - value / self.top)


def number(value: float) -> str:
    """A value of an axis or a table: `0`, `0.4`, `1,200`, `40 k`, `1.5 M`."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1000:.4g} k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _largest(series: Sequence[ChartSeries], stacked: bool) -> float:
    if not stacked:
        return max((_known(value) for each in series for value in each.values), default=0.0)
    return max(map(sum, zip(*(map(_known, each.values) for each in series), strict=True)), default=0.0)


def _known(value: float | None) -> float:
    return value if value is not None and isfinite(value) else 0.0


def _stack(series: Sequence[ChartSeries], frame: _Frame) -> Markup:
    lower = [0.0] * frame.count
    drawn = []
    for each in series:
        upper = [base + _known(value) for base, value in zip(lower, each.values, strict=True)]
        known = [None if value is None else height for value, height in zip(each.values, upper, strict=True)]
        drawn.append(
            Markup('<path class="area {}" d="{}"/>').format(
                each.colour, area(lower, known, frame.top, frame.inside)
            )
        )
        drawn.append(_line(each, known if each is series[0] else _where_it_is(each.values, known), frame))
        lower = upper
    return Markup("").join(drawn)


def _where_it_is(values: Sequence[float | None], upper: Sequence[float | None]) -> list[float | None]:
    """A line on top of others, left out where its own values are zero."""
    around = [0.0, *map(_known, values), 0.0]
    return [height if any(around[number : number + 3]) else None for number, height in enumerate(upper)]


def _bars(series: Sequence[ChartSeries], frame: _Frame) -> Markup:
    """A bar for each value that is not zero, those of several series one on the other."""
    width = WIDTH / max(frame.count, 1)
    lower = [0.0] * frame.count
    drawn = []
    for each in series:
        heights = [_known(value) / frame.top * frame.inside for value in each.values]
        drawn += [
            Markup('<rect class="fill {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                each.colour, number * width, frame.inside - lower[number] - height, width * 0.8, height
            )
            for number, height in enumerate(heights)
            if height
        ]
        drawn.append(_line(each, [None] * frame.count, frame))
        lower = [below + height for below, height in zip(lower, heights, strict=True)]
    return Markup("").join(drawn)


def _lines(series: Sequence[ChartSeries], frame: _Frame) -> Markup:
    return Markup("").join(_line(each, each.values, frame) for each in series)


def _line(series: ChartSeries, drawn: Sequence[float | None], frame: _Frame) -> Markup:
    """`drawn` is where the line runs: in a stack, above the others. `data-values` has the values."""
    return Markup(
        '<path class="line {}" d="{}" vector-effect="non-scaling-stroke" data-name="{}" data-values="{}"/>'
    ).format(
        series.colour,
        line(drawn, frame.top, frame.inside),
        series.name,
        ",".join("" if value is None else f"{value:.6g}" for value in series.values),
    )


def grid(ticks: Sequence[float], y: Callable[[float], float], write: Format, *, drop: float = 4) -> Markup:
    """Lines across the chart with their values; `drop` is how far the text is below the line."""
    return Markup("").join(
        Markup(
            '<line class="grid" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>'
            '<text class="axis-text" x="-8" y="{1:.1f}" text-anchor="end">{2}</text>'
        ).format(y(tick), y(tick) + drop, write(tick))
        for tick in ticks
    )


def _times(frame: _Frame, height: int) -> Markup:
    if frame.count < 2:
        return Markup("")
    return Markup("").join(
        Markup('<text class="axis-text{}" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            " minor" if number % 2 else "", frame.x(moment), height - 6, _anchor(frame.x(moment)), text
        )
        for number, (moment, text) in enumerate(time_ticks(frame.start, frame.end, frame.zone))
    )


def _anchor(x: float) -> str:
    return "start" if x < 3 else "end" if x > 97 else "middle"


def _markers(placed: Sequence[PlacedMarker], rows: int, frame: _Frame) -> Markup:
    """Lines that begin in the row of their text; those without one begin below all texts."""
    return Markup("").join(_marker(each, 2 + min(each.row, rows) * ROW, frame) for each in placed)


def _marker(placed: PlacedMarker, top: int, frame: _Frame) -> Markup:
    x = placed.share * 100
    return Markup(
        '<g class="mark {}"><title>{}</title><line x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>'
        '<svg x="{:.2f}%" y="{}" overflow="visible" width="1" height="1">'
        '<rect x="-4" width="8" height="8" rx="2"/></svg>{}</g>'
    ).format(
        placed.kind,
        "; ".join(placed.texts),
        x,
        x,
        top + 8,
        frame.above + frame.inside,
        x,
        top,
        _marker_text(placed, x) if placed.label else "",
    )


def _marker_text(placed: PlacedMarker, x: float) -> Markup:
    side, distance = ("end", -8) if placed.is_left else ("start", 8)
    return Markup('<text class="mark-text" x="{:.2f}%" dx="{}" y="{}" text-anchor="{}">{}</text>').format(
        x, distance, 11 + placed.row * ROW, side, placed.label
    )


def _marker_list(placed: Sequence[PlacedMarker]) -> Markup:
    """All texts, for phones, which have no room for them in the chart, and for screen readers."""
    if not placed:
        return Markup("")
    items = Markup("").join(
        Markup('<li class="mark {}">{}</li>').format(each.kind, text)
        for each in placed
        for text in each.texts
    )
    return Markup('<ul class="marks">{}</ul>').format(items)


def _table(series: Sequence[ChartSeries], frame: _Frame, unit: str) -> Markup:
    """The values, averaged over some steps if there are many."""
    if not frame.count:
        return Markup("")
    group = -(-frame.count // TABLE_ROWS)
    rows = [
        (
            f"{frame.at(begin).astimezone(frame.zone):%Y-%m-%d %H:%M}",
            *(_mean(each.values[begin : begin + group], frame.write) for each in series),
        )
        for begin in range(0, frame.count, group)
    ]
    return values_table(["Time", *(f"{each.name} {unit}".strip() for each in series)], rows)


def values_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table in a fold, for those who do not see the chart. All columns but the first hold numbers."""

    def row(cells: Sequence[str], tag: str) -> Markup:
        return Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup("<{0}{1}>{2}</{0}>").format(tag, Markup(' class="num"') if number else "", cell)
                for number, cell in enumerate(cells)
            )
        )

    return Markup(
        '<details class="values"><summary>Values as a table</summary><table><thead>{}</thead>'
        "<tbody>{}</tbody></table></details>"
    ).format(row(head, "th"), Markup("").join(row(each, "td") for each in rows))


def _mean(values: Sequence[float | None], write: Format) -> str:
    known = [value for value in values if value is not None]
    return write(sum(known) / len(known)) if known else "—"


# -- paths --------------------------------------------------------------------------------------------------

WIDTH = 1000.0


def line(values: Sequence[float | None], top: float, height: float) -> str:
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


def area(lower: Sequence[float], upper: Sequence[float | None], top: float, height: float) -> str:
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

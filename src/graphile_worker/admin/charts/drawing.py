"""The charts: numbers for the macros of `templates/parts/charts.html`, which write the markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from math import isfinite
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...history.statistics import limits_of
from ...values.text import duration
from ..answers import Marker
from .geometry import WIDTH, ChartSeries, Colour, Values, area, line, number, place, time_ticks, value_ticks

Rect = tuple[str, str, str, str]
"""x, y, width and height."""
SMALL = 28  # pixels: the height of a chart in a tile or a row


@cache
def _macros() -> Any:
    environment = Environment(
        loader=PackageLoader("graphile_worker.admin"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("parts/charts.html").module


def _drawn(name: str, **values: Any) -> Markup:
    found: Markup = getattr(_macros(), name)(**values)
    return found.strip()


def sparkline(
    values: Values,
    *,
    label: str,
    colour: Colour = "c1",
    has_axis: bool = False,
    is_duration: bool = False,
) -> Markup:
    """A line from 0 to its largest value; `has_axis` writes both beside it, where it stands alone."""
    top = _largest(values)
    scale = duration(top, units=1) if is_duration else number(top)
    path = line(values, top, SMALL)
    return _drawn(
        "sparkline", label=label, colour=colour, path=path, height=SMALL, scale=scale if has_axis else ""
    )


def bars(values: Values, *, label: str, colour: Colour = "c1") -> Markup:
    """One bar for each value, from 0 to the largest."""
    top, width = _largest(values), WIDTH / max(len(values), 1)
    heights = [max(min(value / top, 1.0) * SMALL, 1.0) if value else 0.0 for value in values]
    rects = [_rect(at * width, SMALL - each, width * 0.8, each) for at, each in enumerate(heights) if each]
    return _drawn("bars", label=label, colour=colour, rects=rects, height=SMALL)


def slots(total: int, busy: int, *, long: int = 0, most: int = 10) -> Markup:
    """A cell for each slot of a worker: `long` of the busy ones run unusually long. At most `most` cells."""
    shown = min(total, most)
    filled, coloured = (-(-number * shown // total) if total else 0 for number in (min(busy, total), long))
    if busy < total:
        filled = min(filled, shown - 1)  # a free slot is never hidden by rounding
    coloured = min(coloured, filled)
    label = f"{busy} of {total} slots busy" + (f", {long} unusually long" if long else "")
    states = ["long" if each < coloured else "on" if each < filled else "free" for each in range(shown)]
    return _drawn("slots", label=label, states=states)


def _rect(x: float, y: float, width: float, height: float) -> Rect:
    return f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{height:.1f}"


def _known(value: float | None) -> float:
    return value if value is not None and isfinite(value) else 0.0


def _largest(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


# -- histogram ----------------------------------------------------------------------------------------------

COLUMNS = 120  # pixels of the highest column
EDGES = 18  # pixels below the columns


def histogram(counts: Sequence[int], *, label: str, colour: Colour = "c1") -> Markup:
    """Columns for the buckets of `history.statistics` that are in use, with times below them."""
    used = [bucket for bucket, count in enumerate(counts) if count]
    if not used:
        return Markup("")
    shown = range(used[0], used[-1] + 1)
    ticks, width = value_ticks(max(counts), lines=3), 100 / len(shown)
    every = -(-len(shown) // 6)
    columns = [
        {
            "rect": (f"{at * width:.2f}", f"{COLUMNS - height:.1f}", f"{width * 0.92:.2f}", f"{height:.1f}"),
            "title": f"{_range(bucket)}: {counts[bucket]:,}",
            "edge": edge(bucket) if at % every == 0 else "",
        }
        for at, bucket in enumerate(shown)
        for height in (max(counts[bucket] / ticks[-1] * COLUMNS, 1.0) if counts[bucket] else 0.0,)
    ]
    return _drawn(
        "histogram", label=label, colour=colour, height=COLUMNS + EDGES, plot=COLUMNS, columns=columns,
        lines=[(COLUMNS * (1 - tick / ticks[-1]), number(tick)) for tick in ticks],
        head=("Time", "Attempts"), rows=[(_range(bucket), f"{counts[bucket]:,}") for bucket in shown],
    )  # fmt: skip


def edge(bucket: int) -> str:
    """The lower limit of a bucket: `8 ms`, `2 s`, `17 min`."""
    return duration(limits_of(bucket)[0], units=1)


def _range(bucket: int) -> str:
    return f"{edge(bucket)} to {edge(bucket + 1)}"


# -- outcomes -----------------------------------------------------------------------------------------------

BAR_WIDTH = 6
BAR_HEIGHT = 20


@dataclass(frozen=True, slots=True)
class _Outcome:
    word: str
    colour: Colour
    height: int


_FAILED = _Outcome("failed", "c-fail", BAR_HEIGHT)
_OUTCOMES = {
    "completed": _Outcome("completed", "c1", BAR_HEIGHT),
    "gone": _Outcome("ended", "c-idle", BAR_HEIGHT // 2),
    "cancelled": _Outcome("cancelled", "c-idle", BAR_HEIGHT // 2),
    **dict.fromkeys(("failed", "permanently_failed", "retry"), _FAILED),
}
_OTHER = _Outcome("not ended", "c3", BAR_HEIGHT // 3)


def outcomes(states: Sequence[str], *, most: int = 20) -> Markup:
    """Bars for the states of runs, which come with the latest first; drawn with the latest at the right."""
    runs = [_OUTCOMES.get(state, _OTHER) for state in reversed(states[:most])]
    words = [run.word for run in runs]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    label = f"Last {len(runs)} {'run' if len(runs) == 1 else 'runs'}: {counted}"
    return _drawn("outcomes", label=label, runs=runs, width=BAR_WIDTH, height=BAR_HEIGHT)


# -- values over time ---------------------------------------------------------------------------------------

AXIS = 22  # pixels below the plot
TOP = 8  # pixels above the plot, for the top label
TABLE_ROWS = 24


@dataclass(frozen=True, slots=True)
class _Frame:
    """The measures that the parts of one chart share."""

    ROW: ClassVar = 13
    """Pixels of a row of marker texts."""

    start: datetime
    end: datetime
    step: float
    count: int
    rows: int
    """Of marker texts."""
    above: int
    height: int
    top: float

    @property
    def begin(self) -> int:
        return int(self.start.timestamp())

    @property
    def inside(self) -> int:
        return self.height - self.above - AXIS

    def x(self, moment: datetime) -> float:
        """The place of a moment, in per cent of the width."""
        return (moment - self.start) / (self.end - self.start) * 100

    def y(self, value: float) -> float:
        return self.above + self.inside * (1 - value / self.top)


@dataclass(slots=True)
class _Layer:
    """What is drawn of one series."""

    name: str
    colour: Colour
    values: str
    line: str = ""
    area: str | None = None
    rects: Sequence[Rect] = ()


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
    ticks = value_ticks(_highest(series, stacked), is_duration=is_duration)
    write = duration if is_duration else number
    above = TOP + (rows * _Frame.ROW + 4 if placed else 0)
    frame = _Frame(start, start + timedelta(seconds=period), step, count, rows, above, height, ticks[-1])
    draw = _bars if is_bars else _stack if stacked else _lines
    return _drawn(
        "time_chart", frame=frame, label=label, unit=unit, kind="duration" if is_duration else "number",
        zone=str(zone), lines=[(frame.y(tick), write(tick)) for tick in ticks], layers=draw(series, frame),
        times=_times(frame, zone), marks=placed, rows=_table(series, frame, zone, write),
        head=("Time", *(f"{each.name} {unit}".strip() for each in series)),
    )  # fmt: skip


def _highest(series: Sequence[ChartSeries], stacked: bool) -> float:
    if not stacked:
        return max((_known(value) for each in series for value in each.values), default=0.0)
    return max(map(sum, zip(*(map(_known, each.values) for each in series), strict=True)), default=0.0)


def _layer(series: ChartSeries) -> _Layer:
    values = ",".join("" if value is None else f"{value:.6g}" for value in series.values)
    return _Layer(series.name, series.colour, values)


def _lines(series: Sequence[ChartSeries], frame: _Frame) -> list[_Layer]:
    layers = [_layer(each) for each in series]
    for each, layer in zip(series, layers, strict=True):
        layer.line = line(each.values, frame.top, frame.inside)
    return layers


def _stack(series: Sequence[ChartSeries], frame: _Frame) -> list[_Layer]:
    layers, lower = [_layer(each) for each in series], [0.0] * frame.count
    for each, layer in zip(series, layers, strict=True):
        upper = [base + _known(value) for base, value in zip(lower, each.values, strict=True)]
        known = [None if value is None else height for value, height in zip(each.values, upper, strict=True)]
        layer.area = area(lower, known, frame.top, frame.inside)
        shown = known if each is series[0] else _where_it_is(each.values, known)
        layer.line = line(shown, frame.top, frame.inside)
        lower = upper
    return layers


def _where_it_is(values: Values, upper: Values) -> list[float | None]:
    """A line on top of others, left out where its own values are zero."""
    around = [0.0, *map(_known, values), 0.0]
    return [height if any(around[number : number + 3]) else None for number, height in enumerate(upper)]


def _bars(series: Sequence[ChartSeries], frame: _Frame) -> list[_Layer]:
    """A bar for each value that is not zero, those of several series one on the other."""
    layers, lower, width = [_layer(each) for each in series], [0.0] * frame.count, WIDTH / max(frame.count, 1)
    for each, layer in zip(series, layers, strict=True):
        heights = [_known(value) / frame.top * frame.inside for value in each.values]
        layer.rects = [
            _rect(at * width, frame.inside - lower[at] - height, width * 0.8, height)
            for at, height in enumerate(heights)
            if height
        ]
        lower = [below + height for below, height in zip(lower, heights, strict=True)]
    return layers


def _times(frame: _Frame, zone: tzinfo) -> list[tuple[str, str, str]]:
    """Where on the axis of times, how it is aligned there, and the time."""
    ticks = time_ticks(frame.start, frame.end, zone) if frame.count > 1 else []
    placed = [(frame.x(moment), text) for moment, text in ticks]
    return [(f"{x:.2f}", "start" if x < 3 else "end" if x > 97 else "middle", text) for x, text in placed]


def _table(
    series: Sequence[ChartSeries], frame: _Frame, zone: tzinfo, write: Callable[[float], str]
) -> list[list[str]]:
    """The values, averaged over some steps if there are many."""
    group, rows = -(-frame.count // TABLE_ROWS), []
    for begin in range(0, frame.count, group or 1):
        at = frame.start + timedelta(seconds=begin * frame.step)
        means = [_mean(each.values[begin : begin + group], write) for each in series]
        rows.append([f"{at.astimezone(zone):%Y-%m-%d %H:%M}", *means])
    return rows


def _mean(values: Values, write: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return write(sum(known) / len(known)) if known else "—"

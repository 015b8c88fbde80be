"""Small charts, for tiles and rows of tables, and histograms."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...history.statistics import limits_of
from ...values.text import duration
from .series import Colour
from .time_chart import WIDTH, grid, line, number, value_ticks, values_table

HEIGHT = 28


def sparkline(
    values: Sequence[float | None],
    *,
    label: str,
    colour: Colour = "c1",
    has_axis: bool = False,
    is_duration: bool = False,
) -> Markup:
    """A line from 0 to its largest value; `has_axis` writes both beside it, where it stands alone."""
    top = _largest(values)
    drawn = Markup(
        '<svg class="spark" viewBox="0 -1 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="line {}" d="{}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(int(WIDTH), HEIGHT + 2, label, colour, line(values, top, HEIGHT))
    if not has_axis:
        return drawn
    return Markup('<span class="scaled">{}<span class="scale"><i>{}</i><i>0</i></span></span>').format(
        drawn, duration(top, units=1) if is_duration else number(top)
    )


def bars(values: Sequence[float | None], *, label: str, colour: Colour = "c1") -> Markup:
    """One bar for each value, from 0 to the largest."""
    top, width = _largest(values), WIDTH / max(len(values), 1)
    drawn = Markup("").join(
        Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
            number * width, HEIGHT - _height(value, top), width * 0.8, _height(value, top)
        )
        for number, value in enumerate(values)
        if value
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<g class="fill {}">{}</g></svg>'
    ).format(int(WIDTH), HEIGHT, label, colour, drawn)


def slots(total: int, busy: int, *, long: int = 0, most: int = 10) -> Markup:
    """A cell for each slot of a worker: `long` of the busy ones run unusually long. At most `most` cells."""
    shown = min(total, most)
    filled, coloured = (-(-number * shown // total) if total else 0 for number in (min(busy, total), long))
    if busy < total:
        filled = min(filled, shown - 1)  # a free slot is never hidden by rounding
    label = f"{busy} of {total} slots busy" + (f", {long} unusually long" if long else "")
    coloured = min(coloured, filled)
    states = ("long" if each < coloured else "on" if each < filled else "free" for each in range(shown))
    cells = Markup("").join(Markup('<i class="{}"></i>').format(state) for state in states)
    return Markup('<span class="slots" role="img" aria-label="{}">{}</span>').format(label, cells)


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _height(value: float, top: float) -> float:
    return max(min(value / top, 1.0) * HEIGHT, 1.0)


# -- histogram ----------------------------------------------------------------------------------------------

COLUMNS = 120  # pixels of the highest column
AXIS = 18  # pixels below the columns


def histogram(counts: Sequence[int], *, label: str, colour: Colour = "c1") -> Markup:
    """Columns for the buckets of `history.statistics` that are in use, with times below them."""
    used = [bucket for bucket, count in enumerate(counts) if count]
    if not used:
        return Markup("")
    shown = range(used[0], used[-1] + 1)
    ticks, width = value_ticks(max(counts), lines=3), 100 / len(shown)
    top = ticks[-1]
    step = -(-len(shown) // 6)
    columns = Markup("").join(
        _column(bucket, counts[bucket], top, number * width, width) for number, bucket in enumerate(shown)
    )
    edges = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}">{}</text>').format(number * width, COLUMNS + 14, edge(bucket))
        for number, bucket in enumerate(shown)
        if number % step == 0
    )
    return Markup(
        '<figure class="chart"><svg class="histogram" width="100%" height="{}" role="img"'
        ' aria-label="{}">{}<g class="fill {}">{}</g><g class="axis">{}</g></svg>{}</figure>'
    ).format(
        COLUMNS + AXIS, label, grid(ticks, lambda tick: COLUMNS * (1 - tick / top), number, drop=8),
        colour, columns, edges,
        values_table(["Time", "Attempts"], [(_range(bucket), f"{counts[bucket]:,}") for bucket in shown]),
    )  # fmt: skip


def edge(bucket: int) -> str:
    """The lower limit of a bucket: `8 ms`, `2 s`, `17 min`."""
    return duration(limits_of(bucket)[0], units=1)


def _column(bucket: int, count: int, top: float, x: float, width: float) -> Markup:
    height = max(count / top * COLUMNS, 1.0) if count else 0.0
    return Markup(
        '<rect x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}" rx="2"><title>{}</title></rect>'
    ).format(x, COLUMNS - height, width * 0.92, height, f"{_range(bucket)}: {count:,}")


def _range(bucket: int) -> str:
    return f"{edge(bucket)} to {edge(bucket + 1)}"


# -- outcomes -----------------------------------------------------------------------------------------------

BAR_WIDTH = 6
BAR_HEIGHT = 20
_BAD = ("failed", "permanently_failed", "retry")
_KINDS: dict[str, tuple[str, Colour, int]] = {
    "completed": ("completed", "c1", BAR_HEIGHT),
    "gone": ("ended", "c-idle", BAR_HEIGHT // 2),
    "cancelled": ("cancelled", "c-idle", BAR_HEIGHT // 2),
}


def outcomes(states: Sequence[str], *, most: int = 20) -> Markup:
    """Bars for the states of runs, which come with the latest first; drawn with the latest at the right."""
    kinds = [_kind(state) for state in reversed(states[:most])]
    bars = Markup("").join(
        Markup('<rect class="fill {}" x="{}" y="{}" width="{}" height="{}"/>').format(
            colour, number * BAR_WIDTH, BAR_HEIGHT - height, BAR_WIDTH - 2, height
        )
        for number, (_, colour, height) in enumerate(kinds)
    )
    words = [word for word, _, _ in kinds]
    label = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    noun = "run" if len(kinds) == 1 else "runs"
    return Markup(
        '<svg class="outcomes" width="{}" height="{}" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(
        max(len(kinds), 1) * BAR_WIDTH, BAR_HEIGHT, f"Last {len(kinds)} {noun}: {label}",
        f"Last {len(kinds)} {noun}: {label}", bars,
    )  # fmt: skip


def _kind(state: str) -> tuple[str, Colour, int]:
    if state in _BAD:
        return "failed", "c-fail", BAR_HEIGHT
    return _KINDS.get(state, ("not ended", "c3", BAR_HEIGHT // 3))

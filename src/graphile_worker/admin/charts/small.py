"""Charts without axes, for tiles and rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from .paths import WIDTH, line
from .series import Colour

HEIGHT = 28


def sparkline(values: Sequence[float | None], *, label: str, colour: Colour = "c1") -> Markup:
    """A line without axes, from 0 to its largest value."""
    top = _largest(values)
    return Markup(
        '<svg class="spark" viewBox="0 -1 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="line {}" d="{}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(int(WIDTH), HEIGHT + 2, label, colour, line(values, top, HEIGHT))


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


def share_bar(share: float, *, label: str, colour: Colour = "c1") -> Markup:
    """A bar that is filled up to a share from 0 to 1."""
    return Markup(
        '<svg class="share" role="img" aria-label="{}"><rect class="rest" width="100%" height="6" rx="3"/>'
        '<rect class="fill {}" width="{:.1f}%" height="6" rx="3"/></svg>'
    ).format(label, colour, min(max(share, 0.0), 1.0) * 100)


def slots(total: int, busy: int, *, long: int = 0, most: int = 10) -> Markup:
    """A cell for each slot of a worker: `long` of the busy ones run unusually long. At most `most` cells."""
    shown = min(total, most)
    filled, coloured = (-(-number * shown // total) if total else 0 for number in (min(busy, total), long))
    if busy < total:
        filled = min(filled, shown - 1)  # a free slot is never hidden by rounding
    label = f"{busy} of {total} slots busy" + (f", {long} unusually long" if long else "")
    cells = Markup("").join(
        Markup('<i class="{}"></i>').format(state) for state in _cells(shown, filled, min(coloured, filled))
    )
    return Markup('<span class="slots" role="img" aria-label="{}">{}</span>').format(label, cells)


def _cells(shown: int, filled: int, long: int) -> Iterable[str]:
    return ("long" if number < long else "on" if number < filled else "free" for number in range(shown))


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _height(value: float, top: float) -> float:
    return max(min(value / top, 1.0) * HEIGHT, 1.0)

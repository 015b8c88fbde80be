"""Lines and areas as path data, in a plot 1,000 units wide. Pure."""

from __future__ import annotations

from collections.abc import Sequence

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


def area(lower: Sequence[float], upper: Sequence[float], top: float, height: float) -> str:
    """The area between two lines."""
    count = len(upper)
    if count == 1:
        lower, upper, count = [*lower, *lower], [*upper, *upper], 2
    forward = " L".join(_point(number, count, value, top, height) for number, value in enumerate(upper))
    back = " L".join(_point(number, count, lower[number], top, height) for number in reversed(range(count)))
    return f"M{forward} L{back} Z"


def _point(number: int, count: int, value: float, top: float, height: float) -> str:
    x = number * WIDTH / (count - 1) if count > 1 else 0.0
    return f"{x:.1f} {_y(value, top, height)}"


def _y(value: float, top: float, height: float) -> str:
    return f"{height - min(max(value, 0.0), top) / top * height:.1f}"

"""Draws the rate of ready jobs against the size of the backlog as SVG. Pure; needs no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from .results import Growth

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 90, 240, 60, 70
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#5b3fa8", "#444444")
"""Distinguishable for colour-blind readers."""
SHAPES = ("circle", "square", "diamond")


def growth_chart(results: Sequence[Growth]) -> str:
    """The whole chart. Every line starts at the rate without a backlog."""
    alone = next(result for result in results if result.size == 0)
    sizes = sorted({result.size for result in results})
    top = _nice_ceiling(max(result.rate.per_second for result in results))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="13" role="img">',
        "<title>Rate of ready jobs against the size of the backlog</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 30, f"{alone.rate.jobs:,} ready jobs beside others that cannot run", size=17),
        *_vertical_axis(top),
        *_horizontal_axis(sizes),
    ]
    names = list(dict.fromkeys(result.backlog for result in results if result.size))
    for number, name in enumerate(names):
        line = [alone, *(result for result in results if result.backlog == name)]
        points = [(_x(result.size, sizes), _y(result.rate.per_second, top)) for result in line]
        parts += _line(number, name, points)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(size: int, sizes: Sequence[int]) -> float:
    """Zero at the left, then a logarithmic scale."""
    width = WIDTH - LEFT - RIGHT
    largest, least = max(sizes), min((size for size in sizes if size), default=1)
    if size == 0:
        return float(LEFT)
    if largest == least:
        return float(LEFT + width)
    share = math.log(size / least) / math.log(largest / least)
    return LEFT + width * (0.25 + 0.75 * share)


def _y(rate: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - rate / top)


def _nice_ceiling(value: float) -> float:
    """The next larger number that divides well into five steps."""
    step = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next(factor * step for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * step >= value)


def _vertical_axis(top: float) -> list[str]:
    parts = []
    for number in range(6):
        rate = top * number / 5
        y = _y(rate, top)
        parts += [
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>',
            _text(LEFT - 10, y + 4, f"{rate:,.0f}", anchor="end"),
        ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    rotation = f'transform="rotate(-90 24 {middle:.1f})"'
    return [*parts, _text(24, middle, "jobs per second", anchor="middle", more=rotation)]


def _horizontal_axis(sizes: Sequence[int]) -> list[str]:
    base = HEIGHT - BOTTOM
    parts = [f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}" stroke="#666666"/>']
    for size in sizes:
        x = _x(size, sizes)
        parts += [
            f'<line x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{base + 6}" stroke="#666666"/>',
            _text(x, base + 22, f"{size:,}", anchor="middle"),
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, _text(middle, HEIGHT - 20, "jobs in the backlog", anchor="middle")]


def _line(number: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    entry = TOP + 12 + 26 * number
    legend = WIDTH - RIGHT + 24
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(_point(number, x, y, colour) for x, y in points[1:]),
        f'<line x1="{legend}" y1="{entry}" x2="{legend + 24}" y2="{entry}" stroke="{colour}" '
        'stroke-width="2"/>',
        _point(number, legend + 12, entry, colour),
        _text(legend + 32, entry + 4, name),
    ]


def _point(number: int, x: float, y: float, colour: str) -> str:
    shape = SHAPES[number % len(SHAPES)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    rotation = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"{rotation}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222222" {more}>'
        f"{escape(text)}</text>"
    )

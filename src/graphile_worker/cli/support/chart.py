"""A bar chart for the terminal, from block characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN_BLOCKS = "  ..::###"
"""For terminals that cannot show the others."""
HEIGHT = 5
WIDTH = 62  # enough for an hour by minutes


def bar_chart(
    values: Sequence[float], *, begin: str, end: str, height: int = HEIGHT, blocks: str = BLOCKS
) -> list[str]:
    """The lines of a chart, a column for each value, with the largest one at the side; never empty."""
    top = max(values, default=0)
    label = f"{top:,.0f}" if top >= 10 or top == int(top) else f"{top:.2g}"
    margin = max(len(label), 1)
    lines = []
    for row in range(height - 1, -1, -1):
        name = label if row == height - 1 else "0" if row == 0 else ""
        bars = "".join(_part(value, top, row, height, blocks) for value in values)
        lines.append(f"{name:>{margin}} |{bars}".rstrip())
    gap = max(len(values) - len(begin) - len(end), 1)
    return [*lines, f"{'':>{margin}}  {begin}{'':{gap}}{end}"]


def _part(value: float, top: float, row: int, height: int, blocks: str) -> str:
    """What a bar shows in one line; a value that is not zero is visible."""
    if not top:
        return blocks[0]
    eighths = 8 * height * value / top - 8 * row
    if row == 0 and value > 0:
        eighths = max(eighths, 1)
    return blocks[max(0, min(8, round(eighths)))]

"""A histogram of times: columns whose buckets grow by a factor of two."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...history.statistics import limits_of
from ...values.text import duration
from .series import Colour

HEIGHT = 120
AXIS = 18  # pixels below the columns


def histogram(counts: Sequence[int], *, label: str, colour: Colour = "c1") -> Markup:
    """Columns for the buckets of `history.statistics` that are in use, with times below them."""
    used = [bucket for bucket, count in enumerate(counts) if count]
    if not used:
        return Markup("")
    shown = range(used[0], used[-1] + 1)
    top, width = max(counts), 100 / len(shown)
    step = -(-len(shown) // 6)
    columns = Markup("").join(
        _column(bucket, counts[bucket], top, number * width, width) for number, bucket in enumerate(shown)
    )
    edges = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}">{}</text>').format(number * width, HEIGHT + 14, edge(bucket))
        for number, bucket in enumerate(shown)
        if number % step == 0
    )
    return Markup(
        '<figure class="chart flush"><svg class="histogram" width="100%" height="{}" role="img"'
        ' aria-label="{}"><g class="fill {}">{}</g><g class="axis">{}</g></svg>{}</figure>'
    ).format(HEIGHT + AXIS, label, colour, columns, edges, _table(counts, shown))


def edge(bucket: int) -> str:
    """The lower limit of a bucket: `8 ms`, `2 s`, `17 min`."""
    return duration(limits_of(bucket)[0], units=1)


def _column(bucket: int, count: int, top: int, x: float, width: float) -> Markup:
    height = max(count / top * HEIGHT, 1.0) if count else 0.0
    return Markup(
        '<rect x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}" rx="2"><title>{}</title></rect>'
    ).format(x, HEIGHT - height, width * 0.92, height, f"{_range(bucket)}: {count:,}")


def _range(bucket: int) -> str:
    return f"{edge(bucket)} to {edge(bucket + 1)}"


def _table(counts: Sequence[int], shown: range) -> Markup:
    rows = Markup("").join(
        Markup('<tr><td>{}</td><td class="num">{:,}</td></tr>').format(_range(bucket), counts[bucket])
        for bucket in shown
    )
    return Markup(
        '<details class="values"><summary>Values as a table</summary><table><thead><tr><th>Time</th>'
        '<th class="num">Attempts</th></tr></thead><tbody>{}</tbody></table></details>'
    ).format(rows)

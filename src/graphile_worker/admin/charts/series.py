"""What charts draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..answers import Marker, MarkerKind

Colour = Literal["c1", "c2", "c3", "c4", "c5", "c6", "c-fail", "c-idle"]
"""A class of CSS."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line or area: a value for each step, None where it is unknown."""

    name: str
    values: Sequence[float | None]
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
    """The line begins here; below all texts if it has none of its own."""
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

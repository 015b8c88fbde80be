"""Where the texts of markers go, so that none covers another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .series import Marker, MarkerKind

NARROWEST = 560  # pixels; CSS hides the texts where a chart is narrower
ROWS = 2
CHARACTER = 6.3  # pixels, a little more than the average
LONGEST = 30  # characters
GAP = 8  # pixels between the line of a marker and its text
CLOSE = 14 / NARROWEST  # markers closer than this share a line


@dataclass(frozen=True, slots=True)
class PlacedMarker:
    """One line: where it is, and its text unless there is no room for one."""

    share: float
    """From 0 at the left to 1 at the right."""
    kind: MarkerKind
    texts: tuple[str, ...]
    """Everything that happened here."""
    label: str = ""
    row: int = 0
    is_left: bool = False
    """Whether the text is left of the line."""


def place(markers: Sequence[Marker], start: float, period: float) -> list[PlacedMarker]:
    """Lines for markers within the period, with texts in rows above the plot."""
    lines: list[PlacedMarker] = []
    for marker in sorted(markers, key=lambda marker: marker.at):
        share = (marker.at.timestamp() - start) / period
        if not 0 <= share <= 1:
            continue
        if lines and share - lines[-1].share < CLOSE:
            last = lines[-1]
            lines[-1] = PlacedMarker(last.share, last.kind, (*last.texts, marker.text))
        else:
            lines.append(PlacedMarker(share, marker.kind, (marker.text,)))
    return _labelled(lines)


def _labelled(lines: list[PlacedMarker]) -> list[PlacedMarker]:
    taken: list[list[tuple[float, float]]] = [[] for _ in range(ROWS)]
    taken[0] = [(line.share * NARROWEST - 6, line.share * NARROWEST + 6) for line in lines]
    return [_with_label(line, taken) for line in lines]


def _with_label(line: PlacedMarker, taken: list[list[tuple[float, float]]]) -> PlacedMarker:
    label = _label(line.texts)
    width, at = len(label) * CHARACTER, line.share * NARROWEST
    for row, used in enumerate(taken):
        for is_left in (False, True):
            begin = at - GAP - width if is_left else at + GAP
            end = begin + width
            if begin < 0 or end > NARROWEST or any(begin < other[1] and other[0] < end for other in used):
                continue
            used.append((begin, end + GAP))
            return PlacedMarker(line.share, line.kind, line.texts, label, row, is_left)
    return line


def _label(texts: tuple[str, ...]) -> str:
    more = f" +{len(texts) - 1}" if len(texts) > 1 else ""
    room = LONGEST - len(more)
    first = texts[0] if len(texts[0]) <= room else texts[0][: room - 1] + "…"
    return first + more

"""What charts draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Colour = Literal["c1", "c2", "c3", "c4", "c5", "c6", "c-fail", "c-idle"]
"""A class of CSS."""
MarkerKind = Literal["deploy", "pause", "action", "restart"]


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line or area: a value for each step, None where it is unknown."""

    name: str
    values: Sequence[float | None]
    colour: Colour = "c1"


@dataclass(frozen=True, slots=True)
class ChartMarker:
    """Something that happened at one moment, drawn as a line across the chart."""

    at: datetime
    text: str
    kind: MarkerKind = "action"

"""Values over time."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

RangeName = Literal["15m", "1h", "6h", "24h", "48h", "7d", "30d", "90d"]
MarkerKind = Literal["deploy", "pause", "action", "restart"]
Points = list[float | None]


class Marker(msgspec.Struct, frozen=True):
    """Something that happened at one moment: a deploy, a pause, an action of a person, a restart."""

    at: datetime
    kind: MarkerKind
    text: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Values every `step` seconds since `start`."""

    start: datetime = msgspec.field(name="from")
    step: int
    """Seconds."""
    points: dict[str, dict[str, Points]]
    """By task, or `all`, and then by metric. Rates are per minute, times in seconds; null if unknown."""
    markers: list[Marker] = []
    is_recorded: bool = True
    """False if no worker records statistics: the tables are missing."""

"""Forecast: when the backlog is empty, or how many slots are missing. Pure."""

from __future__ import annotations

from math import ceil

from ...values.text import count, duration
from ..models.overview import Forecast

FEW = 20
"""Ready jobs that are no backlog."""
STEADY = 0.05
"""Share of the arrivals within which a change is no trend."""
BUSY = 0.8
"""Share of the slots from which on they are what holds jobs up."""
LONGEST = 30 * 86400.0
"""Seconds; a forecast beyond is none."""


def forecast(
    *,
    ready: int,
    added: float | None,
    completed: float | None,
    run_time: float | None,
    busy: float,
    slots: int | None,
) -> Forecast | None:
    """From rates per minute, the mean run time in seconds, and busy slots; None if too little is known."""
    if added is None or completed is None:
        return None
    growth = added - completed
    if abs(growth) <= max(STEADY * added, 0.5):
        text = "steady" if ready > FEW else "nothing piles up"
        return Forecast(growth=growth, text=text)
    if growth < 0:
        return _shrinking(ready, growth)
    if ready <= FEW:
        return Forecast(growth=growth, text="nothing piles up")
    return _growing(growth, run_time, busy, slots)


def _shrinking(ready: int, growth: float) -> Forecast:
    empty_in = ready / -growth * 60
    if ready <= FEW or empty_in > LONGEST:
        return Forecast(growth=growth, text="nothing piles up" if ready <= FEW else "shrinks slowly")
    text = f"empty in {duration(max(empty_in, 1), units=1)}"
    return Forecast(growth=growth, empty_in=empty_in, text=text)


def _growing(growth: float, run_time: float | None, busy: float, slots: int | None) -> Forecast:
    rate = f"{growth:,.0f}" if growth >= 10 else f"{growth:.1f}"
    text = f"grows by {rate}/min"
    if not slots:
        return Forecast(growth=growth, text=text)
    if busy < slots * BUSY:
        return Forecast(growth=growth, text=f"{text}, though slots are free")
    if not run_time:
        return Forecast(growth=growth, text=text)
    missing = max(ceil(growth * run_time / 60), 1)
    return Forecast(
        growth=growth, missing_slots=missing, text=f"{text}: {count(missing, 'more slot')} would hold it"
    )

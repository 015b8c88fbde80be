"""Finding: one thing the doctor saw, what it means and what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info", "ok"]
"""Jobs are lost or do not run; something will hurt sooner or later; worth knowing; all is well."""
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names what was looked at; a finding that is not ok has a meaning and an advice."""

    check: str
    severity: Severity
    summary: str
    meaning: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on something is worth a word. Ages are seconds."""

    lock_age: float = 3600.0
    transaction_age: float = 300.0
    waiting_age: float = 60.0
    clock_warning: float = 2.0
    clock_error: float = 60.0
    dead_rows: int = 10_000
    bloat_bytes: int = 64 * 1024 * 1024
    busy_changes: int = 1_000_000


def well(check: str, summary: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", summary)


def age(seconds: float) -> str:
    """A time span in its largest unit: 45 seconds, 12 minutes, 3 hours, 5 days."""
    if not math.isfinite(seconds):  # since a time that was set to infinity
        return "an unknown time"
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    return f"{seconds:.0f} seconds"


def some(names: list[str], most: int = 5) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def size(number: int) -> str:
    """Bytes for people."""
    for unit, bytes_ in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if number >= bytes_:
            return f"{number / bytes_:.1f} {unit}"
    return f"{number} bytes"

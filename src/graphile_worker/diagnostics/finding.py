"""Finding: one result of the doctor, what it means and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info", "ok"]
"""Jobs are lost or do not run; trouble ahead; worth knowing; no problem."""
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names the check; a finding that is not ok has a meaning and an advice."""

    check: str
    severity: Severity
    summary: str
    meaning: str = ""
    advice: str = ""

    @property
    def page(self) -> str:
        """Where the documentation says more about this check."""
        return f"troubleshooting.md#check-{self.check}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Limits beyond which the doctor reports something. Ages are in seconds."""

    lock_age: float = 3600.0
    transaction_age: float = 300.0
    waiting_age: float = 60.0
    clock_warning: float = 2.0
    clock_error: float = 60.0
    dead_rows: int = 10_000
    bloat_bytes: int = 64 * 1024 * 1024
    busy_changes: int = 1_000_000


def well(check: str, summary: str) -> Finding:
    """A finding without a problem."""
    return Finding(check, "ok", summary)


def some(names: list[str], most: int = 5) -> str:
    """A few names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def size(number: int) -> str:
    """Bytes in a readable unit."""
    for unit, bytes_ in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if number >= bytes_:
            return f"{number / bytes_:.1f}".removesuffix(".0") + f" {unit}"
    return f"{number} bytes"

"""Surroundings: what the frame shows around every page, from the last sample and never from a statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .call import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A line above the page: something is paused, no worker is alive, the database does not answer."""

    text: str
    tone: Literal["warn", "bad"] = "warn"
    action: str = ""
    """The label of a button or link."""
    path: str = ""
    """Where the action goes."""
    fields: tuple[tuple[str, str], ...] = ()
    """Fields of the form; with fields the action is a POST, without it is a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Counts beside the navigation, banners, and what the dashboard itself costs."""

    failures: int | None = None
    """Error groups that need someone's attention."""
    findings: int | None = None
    """Findings of the doctor."""
    banners: tuple[Banner, ...] = ()
    statements_per_minute: float | None = None
    database_seconds_per_minute: float | None = None
    as_of: datetime | None = None
    """When the database last answered, if it does not answer now."""


def surroundings(call: Call) -> Surroundings:
    """What is known now, without asking the database."""
    return Surroundings()

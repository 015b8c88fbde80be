"""Counts and lists."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

CountKind = Literal["exact", "estimate", "at_least"]


class Count(msgspec.Struct, frozen=True):
    """A number, and how far it can be trusted."""

    value: int
    kind: CountKind = "exact"

    def __str__(self) -> str:
        if self.kind == "exact":
            return f"{self.value:,}"
        if self.kind == "at_least":
            return f"{self.value:,}+" if self.value else "–"
        return f"≈ {abbreviated(self.value)}"


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    next: str | None = None
    """The cursor of the next page (`after=`); None on the last."""
    count: Count | None = None


def abbreviated(value: float) -> str:
    """1.2 M, 34 k, 812."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= 10 * size:
            return f"{value / size:,.0f} {unit}"
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f}"

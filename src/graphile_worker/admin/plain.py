"""Pages for a terminal (`Accept: text/plain`): handlers give `Page` a function `text` that uses this.

def text() -> str:
    return plain.page("Workers", plain.table(["Worker", "Busy"], [["web-a", 3]], empty="No workers."))
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

LONGEST = 60
"""Characters of a cell."""


def page(*parts: str) -> str:
    """Parts with an empty line between them."""
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> str:
    """Columns below their names, numbers right-aligned; `empty` if there are no rows."""
    found = list(rows)
    if not found:
        return empty
    is_number = [all(isinstance(row[at], int | float | None) for row in found) for at in range(len(columns))]
    lines = [[name.upper() for name in columns], *([cell(value) for value in row] for row in found)]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            _padded(text, width, right) for text, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def fields(pairs: Iterable[tuple[str, Any]]) -> str:
    """A name and its value in each line."""
    found = list(pairs)
    width = max((len(name) for name, _ in found), default=0)
    return "\n".join(f"{name:<{width}}  {cell(value, longest=200)}".rstrip() for name, value in found)


def cell(value: Any, *, longest: int = LONGEST) -> str:
    """A value in one line that a terminal can be trusted with."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else str(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    text = " ".join(str(value)[: longest * 4].split())
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )

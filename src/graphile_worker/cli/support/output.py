"""Results for people and for programs: tables on a terminal, plain columns in a pipe, JSON when asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

MAX_CELL = 60


def print_json(value: Any) -> None:
    """One JSON document: indented on a terminal, on one line in a pipe. Times are ISO 8601 in UTC with Z."""
    text = msgspec.json.encode(_in_utc(value))
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    click.echo(text.decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "") -> None:
    """Rows under headings; `empty` is said when there are none. Numbers stand to the right."""
    if not rows:
        click.echo(empty)
        return
    cells = [[cell(value) for value in row] for row in rows]
    numeric = [
        all(isinstance(row[index], int | float | None) for row in rows) for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _rich_table(columns, cells, numeric)
    else:
        _plain_table(columns, cells, numeric)


def print_fields(fields: Mapping[str, Any]) -> None:
    """One thing, a line for each of its fields."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        lines = cell(value, longest=None).split("\n")
        click.echo(f"{name:<{width}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            click.echo(f"{'':<{width}}  {line}".rstrip())


def cell(value: Any, *, longest: int | None = MAX_CELL) -> str:
    """A value as text that is safe to show: no control characters, cut where it is too long."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        value = msgspec.json.encode(_in_utc(value)).decode()
    text = str(value)
    if longest is not None:
        text = " ".join(text.split())
        if len(text) > longest:
            text = text[: longest - 1] + "…"
    return "".join(
        sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in text
    )


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 job, 2 jobs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _plain_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def _rich_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(text) for text in line))
    Console(highlight=False).print(table)


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, Mapping):
        return {key: _in_utc(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_utc(inner) for inner in value]
    return value

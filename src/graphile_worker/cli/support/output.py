"""Prints results: tables on a terminal, plain columns in a pipe, or JSON; and the progress of long work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MAX_CELL = 60
ESTIMATE = "The table is large, so the numbers are estimates; --exact counts every job."


def print_json(value: Any) -> None:
    """Print one JSON document, indented on a terminal. Times are ISO 8601 in UTC."""
    text = msgspec.json.encode(_in_utc(value))
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    click.echo(text.decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "") -> None:
    """Print rows below a header, numbers right-aligned; without rows, print `empty`."""
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


def print_objects(
    found: Sequence[Any], columns: str, *, empty: str = "", **shown: Callable[[Any], Any]
) -> None:
    """Print objects as rows; the columns have the names of attributes, with spaces.

    `name=attribute` is a column with another name. `shown` has functions for those that are no attributes.
    """
    parts = [column.strip().partition("=") for column in columns.split(",")]
    names = [(name, attribute or name.replace(" ", "_")) for name, _, attribute in parts]
    rows = [[shown[each](one) if each in shown else getattr(one, each) for _, each in names] for one in found]
    print_table([name for name, _ in names], rows, empty=empty)


def print_fields(fields: Mapping[str, Any]) -> None:
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        lines = cell(value, longest=None).split("\n")
        click.echo(f"{name:<{width}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            click.echo(f"{'':<{width}}  {line}".rstrip())


def cell(value: Any, *, longest: int | None = MAX_CELL) -> str:
    """A value as text that is safe to print: truncated, and without control characters."""
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
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


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


class Bar:
    """Updates the bar; does nothing where none is drawn."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def show(self, detail: str, *, done: float | None = None) -> None:
        """Set the amount done, in the unit of the total, and the text next to the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, detail=detail, refresh=True)


@contextmanager
def progress_bar(label: str, *, total: float | None, wanted: bool = True) -> Iterator[Bar]:
    """A bar on standard error, if that is a terminal, that disappears at the end.

    Without a total it only shows activity.
    """
    if not wanted or not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=None)]
    if total is not None:
        columns += [TaskProgressColumn(), TimeRemainingColumn()]
    with Progress(
        *columns,
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield Bar(progress, progress.add_task(label, total=total, detail=""))

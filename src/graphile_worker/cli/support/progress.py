"""A progress bar for long work, on standard error and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """Updates the bar; does nothing where none is drawn."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def show(self, detail: str, *, done: float | None = None) -> None:
        """Set the amount done, in the unit of the total, and the text beside the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, detail=detail, refresh=True)


@contextmanager
def progress_bar(label: str, *, total: float | None, wanted: bool = True) -> Iterator[Bar]:
    """A bar that disappears at the end; without a total it only shows activity."""
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

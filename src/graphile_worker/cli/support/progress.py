"""A progress bar for work that may take long, on standard error, and only where a person sees it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """What the work calls; without anybody to see it, it does nothing."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def show(self, about: str, *, done: float | None = None) -> None:
        """So much is done, in the unit of the total; `about` is shown beside the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, about=about, refresh=True)


@contextmanager
def progress_bar(label: str, *, total: float | None, wanted: bool = True) -> Iterator[Bar]:
    """A bar that is gone when the work is; without a total it only shows that something happens."""
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
        TextColumn("{task.fields[about]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield Bar(progress, progress.add_task(label, total=total, about=""))

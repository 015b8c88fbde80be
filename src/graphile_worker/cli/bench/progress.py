"""Bars on a terminal while a benchmark runs; silence elsewhere, for the results are what is wanted there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Bars:
    """One bar for each part of the benchmark."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextmanager
    def part(self, name: str, steps: int) -> Iterator[Callable[[str], None]]:
        """The bar of one part; call what it gives before each step with what the step is about."""
        if self._progress is None:
            yield lambda about: None
            return
        progress = self._progress
        bar = progress.add_task(name, total=steps, about="")
        done = -1

        def step(about: str) -> None:
            nonlocal done
            done += 1
            progress.update(bar, completed=done, about=about)

        yield step
        progress.update(bar, completed=steps, about="")


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Bars on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield Bars(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[about]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield Bars(progress)

"""Changes all jobs that match a filter: counts them, asks, and shows the progress until Ctrl-C stops it.

`progress_bar` is for any long work. The bar is on standard error, and only if that is a terminal.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...diagnostics.json_shapes import bulk_as_json
from ...values.text import count
from .command import Output, given_command
from .job_filter import Selection
from .output import cell

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ...database.statements.bulk_changes import BulkReport

Change = Callable[..., Awaitable["BulkReport"]]
"""A method of the client, without the options of a bulk change."""

NAMED_TASKS = 5
"""Tasks that are named in a sentence."""
LONG = 5_000
"""Jobs from which there is a progress bar."""


class Words(msgspec.Struct, frozen=True):
    """How to speak of a change: `reschedule`, `rescheduled`, `rescheduling`."""

    verb: str
    done: str
    doing: str


class NotConfirmedError(click.ClickException):
    """The change was not confirmed, and there is no terminal to ask at."""

    exit_code = 2


Notes = Callable[["BulkReport"], list[str]]
"""Sentences about a report, before the change (a dry run) or after it."""


async def change_matching(
    selection: Selection, words: Words, change: Change, notes: Notes = lambda report: []
) -> Output:
    """Count the jobs, ask unless that is not wanted, then change them."""
    chosen = {"filter": selection.filter, "all": selection.is_everything}
    counted = await change(**chosen, dry_run=True)
    sentences = [*_about_running(counted), *notes(counted)]
    if counted.changed == 0:
        running = [f"Running jobs are left alone: {counted.skipped:,}."] if counted.skipped else []
        return _output(counted, [f"No jobs to {words.verb}.", *running])
    if selection.is_dry_run:
        return _output(counted, [f"This would {words.verb} {_jobs(counted)}.", *sentences])
    if not selection.is_confirmed and not _confirm(words, counted, sentences):
        return Output(None, lambda: click.echo("Nothing was changed.", err=True), status=1)
    pace = {} if selection.rate is None else {"jobs_per_second": selection.rate}
    report, stopped_by = await _run(change, words, counted, chosen | pace)
    if stopped_by is None:
        lines = [f"{words.done.capitalize()} {_jobs(report)}.", *_about_running(report)]
        return _output(report, lines, notes=notes(report))
    line = _stopped(words, report.changed, counted)
    return _output(report, [line], notes=notes(report), status=128 + stopped_by)


def _output(
    report: BulkReport, lines: Sequence[str], *, notes: Sequence[str] = (), status: int = 0
) -> Output:
    return Output(
        lambda: bulk_as_json(report),
        lambda: click.echo(" ".join(lines)),
        notes=notes,
        status=status,
        jobs=0 if report.is_dry_run else report.changed,
    )


async def _run(
    change: Change, words: Words, counted: BulkReport, options: dict[str, Any]
) -> tuple[BulkReport, int | None]:
    """The report, and the signal that stopped the change."""
    wanted = counted.changed >= LONG
    stop = asyncio.Event()
    with (
        progress_bar(f"{words.doing} jobs", total=counted.changed, wanted=wanted) as bar,
        _signals_that_stop(stop) as received,
    ):
        changed = 0

        def show(report: BulkReport, _ids: list[int]) -> None:
            nonlocal changed
            changed = report.changed
            bar.show(f"{changed:,} jobs", done=changed)

        try:
            report = await change(**options, up_to=counted.up_to, stop=stop, on_step=show)
        except Exception:
            click.echo(_stopped(words, changed, counted), err=True)
            raise
    return report, None if report.is_complete else received[0]


def _stopped(words: Words, changed: int, counted: BulkReport) -> str:
    return f"Stopped: {words.done} {changed:,} of {count(counted.changed, 'job')}."


@contextmanager
def _signals_that_stop(stop: asyncio.Event) -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM sets the event; the next one ends the process."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int) -> None:
        received.append(number)
        stop.set()
        for each in before:
            loop.remove_signal_handler(each)

    for number in before:
        loop.add_signal_handler(number, receive, number)
    try:
        yield received
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _confirm(words: Words, counted: BulkReport, sentences: Sequence[str]) -> bool:
    """Ask on the terminal. Raises NotConfirmedError where there is none."""
    if not sys.stdin.isatty():
        would = " ".join([f"This would {words.verb} {_jobs(counted)}.", *sentences])
        raise NotConfirmedError(
            f"{would} To do it without a question, add --yes:\n\n    {given_command('--yes')}"
        )
    question = " ".join([f"This will {words.verb} {_jobs(counted)}.", *sentences, "Continue?"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the event loop's handler would wait
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _jobs(report: BulkReport) -> str:
    """The number of jobs, and of which tasks they are: `5 jobs (send_email 3, report 2)`."""
    tasks = sorted(report.tasks.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [
        cell(name) if len(tasks) == 1 else f"{cell(name)} {jobs:,}" for name, jobs in tasks[:NAMED_TASKS]
    ]
    if len(tasks) > NAMED_TASKS:
        shown.append(f"{count(len(tasks) - NAMED_TASKS, 'other task')}")
    return f"{count(report.changed, 'job')} ({', '.join(shown)})" if shown else count(report.changed, "job")


def _about_running(report: BulkReport) -> list[str]:
    if not report.skipped:
        return []
    verb = "would be" if report.is_dry_run else "was" if report.skipped == 1 else "were"
    return [f"{count(report.skipped, 'running job')} {verb} left alone."]


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

"""Draws the view with rich, in 40 or more columns and never wider than the terminal."""

from __future__ import annotations

from datetime import datetime

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...values.job import Pause
from ...values.text import count, duration
from .feed import ShownError, ShownJob
from .state import ViewState, WorkerStatus

MOST_PAUSES = 5

STYLES: dict[WorkerStatus, str] = {
    "starting": "yellow",
    "running": "green",
    "restarting": "yellow",
    "waiting": "bold red",
    "stopping": "yellow",
    "stopped": "dim",
    "none": "dim",
}


def render(state: ViewState) -> RenderableType:
    """The panel below the log."""
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(style="dim", no_wrap=True, width=7)
    rows.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    rows.add_row("worker", _worker(state))
    rows.add_row("jobs", _counts(state))
    if state.status != "none":
        rows.add_row("done", _done(state))
        rows.add_row("running", _running(state.running, state.jobs))
    if state.pauses:
        rows.add_row("paused", _pauses(state.pauses))
    if state.errors:
        rows.add_row("errors", _errors(list(state.errors)))
    return Panel(
        rows,
        box=ROUNDED,
        title="[bold]graphile-worker dev[/]",
        title_align="left",
        subtitle=Text(state.database, style="dim", overflow="ellipsis"),
        subtitle_align="right",
        border_style="dim",
    )


def _line() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")


def _worker(state: ViewState) -> Text:
    line = _line().append(state.status, STYLES[state.status])
    if state.reason:
        line.append(f": {_printable(state.reason)}")
    if state.restarts:
        line.append(f"  ({count(state.restarts, 'restart')})", "dim")
    return line


def _counts(state: ViewState) -> Text:
    counts = state.counts
    if counts is None:
        return _line().append(_printable(state.count_error) or "…", "red" if state.count_error else "dim")
    about = "about " if state.is_estimate else ""
    line = _line()
    for name, number, style in (
        ("ready", counts.ready, "bold"),
        ("scheduled", counts.scheduled, ""),
        ("locked", counts.locked, ""),
        ("permanently failed", counts.failed, "red" if counts.failed else ""),
    ):
        line.append(f"{about}{number:,}", style or "default").append(f" {name}   ", "dim")
    return line


def _done(state: ViewState) -> Text:
    line = _line().append(f"{state.completed:,}", "green").append(" completed   ", "dim")
    line.append(f"{state.failed:,}", "red" if state.failed else "default").append(" failed   ", "dim")
    return line.append(f"{_speed(state.rate.per_second())}", "bold").append(" jobs/s", "dim")


def _running(total: int, jobs: list[ShownJob]) -> RenderableType:
    if not jobs:
        return _line().append("no jobs", "dim")
    lines = [
        _line().append(_printable(job.task)).append(f" #{job.id}", "dim").append(f"  {duration(job.seconds)}")
        for job in jobs
    ]
    if total > len(jobs):
        lines.append(_line().append(f"and {total - len(jobs):,} more", "dim"))
    return Group(*lines)


def _pauses(pauses: list[Pause]) -> RenderableType:
    lines = [
        _line().append(_printable(pause.what), "yellow").append(_printable(pause.terms), "dim")
        for pause in pauses[:MOST_PAUSES]
    ]
    if len(pauses) > MOST_PAUSES:
        lines.append(_line().append(f"and {len(pauses) - MOST_PAUSES:,} more", "dim"))
    return Group(*lines)


def _errors(errors: list[ShownError]) -> RenderableType:
    lines = []
    for error in reversed(errors):
        at = datetime.fromtimestamp(error.at).strftime("%H:%M:%S")
        line = (
            _line().append(f"{at} ", "dim").append(_printable(error.task)).append(f" #{error.job_id} ", "dim")
        )
        line.append(f"{error.attempt}/{error.max_attempts} ", "dim").append(_printable(error.message), "red")
        lines.append(line)
    return Group(*lines)


def _speed(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _printable(text: str) -> str:
    """Text without line breaks and control characters, which would break the panel."""
    return "".join(char if char.isprintable() else " " for char in text)

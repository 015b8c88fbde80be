"""The view of `dev`: its state, and how it is drawn.

The state comes from the worker process, the database and the reloader. The view is drawn with rich, in 40 or
more columns and never wider than the terminal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...values.job import Pause
from ...values.text import count, duration
from .feed import MOST_ERRORS, ShownError, ShownJob, Snapshot

if TYPE_CHECKING:
    from ...database.statements.inspection import JobCounts

WINDOW = 10.0  # seconds over which the rate is averaged

WorkerStatus = Literal["starting", "running", "restarting", "waiting", "stopping", "stopped", "none"]
"""`waiting`: the worker ended, and is restarted when the code changes. `none`: there never was one."""


@dataclass(slots=True)
class ViewState:
    """Everything in the view. Totals include those of earlier worker processes."""

    database: str
    """A short description."""
    status: WorkerStatus = "starting"
    reason: str = ""
    """Why it waits or restarts."""
    restarts: int = 0
    counts: JobCounts | None = None
    is_estimate: bool = False
    count_error: str = ""
    """Why there are no counts."""
    pauses: list[Pause] = field(default_factory=list)
    running: int = 0
    jobs: list[ShownJob] = field(default_factory=list)
    errors: deque[ShownError] = field(default_factory=lambda: deque(maxlen=MOST_ERRORS))
    rate: ShownRate = field(default_factory=lambda: ShownRate(WINDOW))
    _earlier: tuple[int, int] = (0, 0)
    """Completed and failed jobs of earlier worker processes."""
    _current: tuple[int, int] = (0, 0)

    @property
    def completed(self) -> int:
        return self._earlier[0] + self._current[0]

    @property
    def failed(self) -> int:
        return self._earlier[1] + self._current[1]

    def started(self) -> None:
        """A new worker process started; its totals begin at zero."""
        self._earlier, self._current = (self.completed, self.failed), (0, 0)
        self.running, self.jobs = 0, []
        self.status = "starting"

    def update(self, snapshot: Snapshot, now: float) -> None:
        """Take in a report of the worker process."""
        fresh = [error for error in snapshot.errors if error not in self.errors]
        self.errors.extend(fresh)
        self._current = (snapshot.completed, snapshot.failed)
        self.running, self.jobs = snapshot.running, snapshot.jobs
        self.rate.add(now, self.completed + self.failed)
        if self.status == "starting":
            self.status, self.reason = "running", ""

    def ended(self, status: WorkerStatus, reason: str) -> None:
        self.status, self.reason = status, reason
        self.running, self.jobs = 0, []


class ShownRate:
    """Jobs per second in a sliding window."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._totals: deque[tuple[float, int]] = deque()

    def add(self, now: float, total: int) -> None:
        self._totals.append((now, total))
        while self._totals[0][0] < now - self._window:
            self._totals.popleft()

    def per_second(self) -> float:
        """The average between the first and the last total in the window."""
        if len(self._totals) < 2:
            return 0.0
        (first, before), (last, after) = self._totals[0], self._totals[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0


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
        ("running", counts.running, ""),
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

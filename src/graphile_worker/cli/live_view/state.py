"""The state of the view, from the worker process, the database and the reloader."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .feed import MOST_ERRORS, ShownError, ShownJob, Snapshot

if TYPE_CHECKING:
    from ...database.statements.inspection import JobCounts
    from ...values.job import Pause

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
        """The worker process has ended or is about to."""
        self.status, self.reason = status, reason
        self.running, self.jobs = 0, []


class ShownRate:
    """Jobs per second in a sliding window."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._totals: deque[tuple[float, int]] = deque()

    def add(self, now: float, total: int) -> None:
        """Record the total at this time."""
        self._totals.append((now, total))
        while self._totals[0][0] < now - self._window:
            self._totals.popleft()

    def per_second(self) -> float:
        """The average between the first and the last total in the window."""
        if len(self._totals) < 2:
            return 0.0
        (first, before), (last, after) = self._totals[0], self._totals[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0

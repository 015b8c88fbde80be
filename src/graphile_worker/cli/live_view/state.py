"""What the view shows, gathered from the worker process, the database and the one who starts them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .activity import MOST_ERRORS, JobError, RunningJob, Snapshot

if TYPE_CHECKING:
    from ...queries.inspection import JobCounts

WINDOW = 10.0  # seconds over which the rate is taken

WorkerStatus = Literal["starting", "running", "restarting", "waiting", "stopping", "stopped"]
"""`waiting`: it could not run, and waits for a change of the code."""


@dataclass(slots=True)
class ViewState:
    """Everything on the screen. Totals go on when the worker is started anew."""

    database: str
    """What the database is, in a few words."""
    status: WorkerStatus = "starting"
    reason: str = ""
    """Why it waits or starts anew."""
    restarts: int = 0
    counts: JobCounts | None = None
    is_estimate: bool = False
    trouble: str = ""
    """Why there are no counts."""
    running: int = 0
    jobs: list[RunningJob] = field(default_factory=list)
    errors: deque[JobError] = field(default_factory=lambda: deque(maxlen=MOST_ERRORS))
    rate: Rate = field(default_factory=lambda: Rate(WINDOW))
    _earlier: tuple[int, int] = (0, 0)
    _now: tuple[int, int] = (0, 0)

    @property
    def completed(self) -> int:
        return self._earlier[0] + self._now[0]

    @property
    def failed(self) -> int:
        return self._earlier[1] + self._now[1]

    def started(self) -> None:
        """A new worker process, whose totals begin at zero."""
        self._earlier, self._now = (self.completed, self.failed), (0, 0)
        self.running, self.jobs = 0, []
        self.status = "starting"

    def told(self, snapshot: Snapshot, now: float) -> None:
        """The worker process told what it does."""
        fresh = [error for error in snapshot.errors if error not in self.errors]
        self.errors.extend(fresh)
        self._now = (snapshot.completed, snapshot.failed)
        self.running, self.jobs = snapshot.running, snapshot.jobs
        self.rate.note(now, self.completed + self.failed)
        if self.status == "starting":
            self.status, self.reason = "running", ""

    def ended(self, status: WorkerStatus, reason: str) -> None:
        """The worker process is gone, or about to go."""
        self.status, self.reason = status, reason
        self.running, self.jobs = 0, []


class Rate:
    """Jobs per second over the last seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, total: int) -> None:
        """So many in all at this time."""
        self._seen.append((now, total))
        while self._seen[0][0] < now - self._window:
            self._seen.popleft()

    def per_second(self) -> float:
        """How many more in each second between the first and the last note of the window."""
        if len(self._seen) < 2:
            return 0.0
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0

"""Jobs as the API and the pages show them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from ...database.statements.job_filter import JobState
from ...values.attempts import how_it_failed
from .common import Count

ListOrder = Literal["newest", "oldest", "run_order"]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list. Secrets in error and payload are redacted."""

    id: int
    task: str
    state: JobState
    queue: str | None
    priority: int
    run_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    """The first 4,000 characters."""
    created_at: datetime
    key: str | None
    flags: list[str]
    revision: int
    locked_by: str | None
    locked_at: datetime | None
    failed_at: datetime | None
    """When it failed permanently."""
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""
    queue_locked_by: str | None = None
    """The pool that has locked the queue of the job; `py:hold` if the queue is paused."""
    payload: msgspec.Raw | None = None
    """None if it was not asked for, or is longer than 64 KB."""

    @property
    def situation(self) -> str:
        """The state in more detail: a word for the chip."""
        if self.state == "scheduled" and self.attempts:
            return "retry"
        return "permanently_failed" if self.state == "failed" else self.state

    @property
    def tried(self) -> str:
        """How many attempts there were."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        return f"{self.attempts}/{self.max_attempts}"

    @property
    def note(self) -> str:
        """What a list says beside the state."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts)
        if self.state == "running":
            return f"attempt {self.attempts} of {self.max_attempts}"
        if self.queue_locked_by == "py:hold":
            return "queue paused"
        if self.state == "ready" and self.queue_locked_by is not None:
            return "queue busy"
        return f"attempt {self.attempts + 1} of {self.max_attempts}" if self.attempts else ""


class Searched(msgspec.Struct, frozen=True):
    """How far a search that no index serves has come."""

    jobs: int
    """Jobs that were read for this page."""
    of: Count
    """Jobs that there are."""
    is_complete: bool


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    items: list[JobRow]
    next: str | None = None
    """The cursor of the next page (`after=`); None on the last."""
    previous: str | None = None
    """The cursor of the previous page; None on the first, and in run order."""
    count: Count | None = None
    searched: Searched | None = None
    """Only if no index serves the filter."""
    order: ListOrder = "newest"
    is_reported: bool = False
    """Whether these are the running jobs that workers reported, and not the result of a search."""

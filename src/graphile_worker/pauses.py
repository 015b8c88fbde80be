"""Pause: what an operator has paused, for how long and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

PAUSED_BY = "py:hold"
"""`locked_by` of a paused queue, which every runtime takes for a lock."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A paused task, named queue or recurring job; with none of them, every task is paused."""

    task_identifier: str | None = None
    queue_name: str | None = None
    schedule: str | None = None
    """The identifier of a recurring job."""
    paused_at: datetime | None = None
    """None if this role may not read the table of pauses."""
    until: datetime | None = None
    """None if it does not end by itself."""
    reason: str | None = None

    @property
    def what(self) -> str:
        """What is paused, for people: `queue emails`, `schedule nightly` or `every task`."""
        if self.schedule is not None:
            return f"schedule {self.schedule}"
        if self.queue_name is not None:
            return f"queue {self.queue_name}"
        return "every task" if self.task_identifier is None else f"task {self.task_identifier}"

    @property
    def name(self) -> str | None:
        """The name of the task, queue or recurring job; None for every task."""
        if self.schedule is not None:
            return self.schedule
        return self.queue_name if self.queue_name is not None else self.task_identifier

    @property
    def terms(self) -> str:
        """How long and why, for people: ` until 2030-01-31 12:00:00 UTC (deploy)`; may be empty."""
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return until + (f" ({self.reason})" if self.reason else "")

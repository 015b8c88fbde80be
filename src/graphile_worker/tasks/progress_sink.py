"""Where the progress that tasks report goes: to the worker, once it listens."""

from __future__ import annotations

from collections.abc import Callable

from ..history.progress import ProgressReport, checked_report


class ProgressSink:
    """Shared by every job of one worker."""

    __slots__ = ("receive",)

    def __init__(self) -> None:
        self.receive: Callable[[int, ProgressReport], None] | None = None
        """Takes a job's id and its report; None if progress is not stored."""

    def connect(self, receive: Callable[[int, ProgressReport], None]) -> None:
        """Pass reports on to this from now on."""
        self.receive = receive

    def report(self, job_id: int, share: float | None, note: str | None, data: object) -> None:
        """Check a report and pass it on; may be called from any thread."""
        report = checked_report(share, note, data)
        if self.receive is not None:
            self.receive(job_id, report)

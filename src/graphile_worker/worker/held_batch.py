"""HeldBatch: jobs whose rows one open transaction has locked, and what has become of them so far."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ..db.borrowed import is_gone
from ..db.connection import Connection
from ..job import Job
from ..outcome import Completed, Finished


class HeldBatch:
    """Jobs that run while their rows are locked by a transaction of this pool."""

    __slots__ = (
        "connection",
        "ending",
        "finished",
        "ids",
        "is_being_kept",
        "is_committing",
        "is_kept",
        "is_locking",
        "is_writing",
        "jobs",
        "left",
        "released",
        "seat",
        "tasks",
        "timer",
    )

    def __init__(self, seat: int, tasks: Mapping[int, str], connection: Connection) -> None:
        self.seat = seat
        """The number of the session that has the transaction."""
        self.tasks = tasks
        """Those of the fetch, by id."""
        self.connection = connection
        self.jobs: Sequence[Job] = ()
        self.ids: set[int] = set()
        """Of all jobs that were not released, until the batch has ended."""
        self.left = 0
        """How many of the jobs have neither ended nor been released."""
        self.finished: list[Finished] = []
        """Outcomes that are not part of the end yet."""
        self.timer: asyncio.TimerHandle | None = None
        self.is_committing = False
        """Whether the commit was sent."""
        self.is_writing = False
        """Whether a statement was sent that changes rows."""
        self.is_kept = False
        """Whether another thread locks its jobs, or has locked them; see `recovery.blocked_batches`."""
        self.is_being_kept = False
        """Whether that thread is not done."""
        self.is_locking = False
        """Whether all jobs are being locked, before any has started."""
        self.ending: asyncio.Task[None] | None = None
        self.released: set[int] = set()
        """Ids of jobs that were released after the end had begun, which may lock them all the same."""

    @property
    def is_open(self) -> bool:
        """Whether the transaction is open, as far as is known."""
        return not is_gone(self.connection) and self.connection.is_in_transaction()

    def abandon(self) -> None:
        """Make sure that the transaction does not stay open: the next batch would become a part of it."""
        if self.is_open:
            self.connection.terminate()

    def take_finished(self) -> tuple[list[Finished], list[Finished]]:
        """The outcomes so far: those that need nothing but a delete, and the others."""
        finished, self.finished = self.finished, []
        completed = [each for each in finished if type(each.outcome) is Completed]
        if len(completed) == len(finished):
            return completed, []
        return completed, [each for each in finished if type(each.outcome) is not Completed]

"""HoldPolicy: whether the next fetch is a held batch, and how many jobs it has. Pure.

A held batch is worth its transaction if its jobs are short and many, and its end only has to delete most of
them. The policy learns from each batch: after one of little use the next fetches hold nothing, and after one
of which not all jobs could start the next is smaller. Nothing here waits, reads a clock or touches the
database; `HeldBatches` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

FEWEST = 50  # jobs of a batch; fewer are not worth a transaction that stays open
FIRST = 1000  # jobs of the first batch, at most
WARMING = 250  # jobs of an ordinary fetch while sessions are opened
GROWTH = 1.25  # of the next batch after one that ended in time
REGROWTH = 2.0  # the same for one that is smaller than the first: slow jobs had taken all slots
SHARE = 0.5  # of `hold` that the jobs of a batch may take: it waits for the batch before it
RUN_TIME = 0.1  # of `hold` that a job may run on average: longer ones would outlast the batch
MOST_OUTLASTING = 0.1  # of a batch; if more have to be locked, ordinary fetches cost less
FEWEST_SKIPPED, MOST_SKIPPED = 3, 50  # fetches that hold nothing after a batch that was of little use


class Workload(msgspec.Struct, frozen=True):
    """What a source knows of its jobs when it is about to fetch."""

    wanted: int
    """How many jobs the next fetch asks for."""
    run_time: float
    """Seconds, the average of the latest jobs; 0 if it is unknown."""
    asked: int
    found: int
    """How many jobs the last fetch asked for, and how many it found."""
    jobs_in: Callable[[float], int]
    """How many jobs can run in so many seconds."""
    concurrency: int = 1
    """How many jobs run at once."""
    continued: int = 0
    """How many jobs of named queues writes have locked since the last fetch."""


class HoldPolicy:
    """Decides for the held batches of one pool, and learns from how they end."""

    fewest = FEWEST
    """Jobs of a batch; with fewer it was of little use."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """How long a batch is held, at most."""
        self.is_on = seconds > 0
        """Whether anything is held at all; no longer if the database refuses the end of a batch."""
        self.most = FIRST
        """How many jobs a batch may have: fewer after one that was too large, then gradually more."""
        self._not_before = math.inf  # monotonic
        self._skip = 0  # fetches
        self._skip_next = FEWEST_SKIPPED
        self._ended = self._not_deleted = 0  # jobs, when that was last compared

    # -- the next fetch ------------------------------------------------------------------------------------

    def allow_from(self, at: float) -> None:
        """Hold jobs from this monotonic time on; nothing is held before it is called."""
        self._not_before = at

    def is_worth_it(self, workload: Workload, *, is_warming: bool) -> bool:
        """Whether jobs are short and many. The pace is asked last: most fetches find little to do."""
        return (
            0 < workload.run_time < self.seconds * RUN_TIME
            and workload.wanted >= FEWEST
            and (workload.found >= min(workload.asked, FEWEST) or workload.continued > 0)
            and self.most_of_next(workload, is_warming=is_warming) >= FEWEST
        )

    def is_allowed(self, now: float) -> bool:
        """Whether jobs may be held at this monotonic time, if that is of use."""
        return self.is_on and self._not_before <= now

    def is_due(self, now: float, ended: int, not_deleted: int) -> bool:
        """Whether the next fetch may hold its jobs; call it once for each.

        `ended`: how many jobs have ended so far; `not_deleted`: how many of them the end of a batch could not
        have written. If that were many of the latest, a batch would have to lock them.
        """
        if not self.is_on:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._not_before > now:
            return False
        ended, self._ended = ended - self._ended, ended
        not_deleted, self._not_deleted = not_deleted - self._not_deleted, not_deleted
        return not_deleted <= MOST_OUTLASTING * ended

    def most_of_next(self, workload: Workload, *, is_warming: bool) -> int:
        """How many jobs the next fetch may have: those that fit, and as the batches before it have shown.

        While sessions are opened it is an ordinary one, and must be short: the first batch should not wait.
        """
        most = WARMING if is_warming else self.most
        return min(workload.wanted, workload.jobs_in(self.seconds * SHARE), most)

    # -- what becomes of batches ---------------------------------------------------------------------------

    def hold_less(self) -> None:
        """The last batch was of little use; each further one costs more fetches."""
        if not self._skip:
            self._skip, self._skip_next = self._skip_next, min(2 * self._skip_next, MOST_SKIPPED)

    def overrun(self, started: int) -> None:
        """Time is up, and only this many jobs of a batch have started: it was too large."""
        self.most = max(started // 2, self.fewest)
        if started < self.fewest:
            self.hold_less()

    def ending(self, jobs: int, outlasting: int) -> None:
        """Call it when a batch is about to end; `outlasting` of its jobs must be locked."""
        if outlasting > MOST_OUTLASTING * jobs:
            self.hold_less()

    def ended(self, jobs: int, outlasting: int) -> None:
        """Call it when a batch has ended without releasing a job."""
        if outlasting <= MOST_OUTLASTING * jobs:
            growth = GROWTH if jobs >= FIRST else REGROWTH
            self.most = max(self.most, int(growth * jobs))
            if not outlasting:
                self._skip_next = FEWEST_SKIPPED

"""Which runs do not count: the only excuses for a second run where jobs are held.

With the default settings no fault of the plan lasts long enough for a live worker to count as dead. So there
are two reasons for a run not to count. Its process was killed before the outcome was committed. Or the
connection with the transaction that held the job was lost; then the worker must find out that the job belongs
to another one, and discard the outcome.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from chaos.cut_offs import CutOffs
from chaos.history import Fault, History, Run

HOLD = 0.15  # seconds: `hold` and the time that the end of a batch takes; a job that runs longer is locked
SEEN_WITHIN = 20.0  # seconds after a fault in which a worker starts jobs that it has lost, if it is frozen


class Loss(msgspec.Struct, frozen=True):
    """Why a run does not count, and since when others may have the job."""

    at: float
    reason: str
    is_death: bool


def kind_of(fault: Fault) -> str:
    """What was done, without how long."""
    return fault.detail.partition(" for ")[0]


class LostRuns:
    """The runs of a history that do not count."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._cut_offs = CutOffs(history)
        self._deaths: dict[str, float] = {}
        self._faults: dict[int, list[Fault]] = defaultdict(list)
        for fault in history.faults:
            if fault.kind == "kill":
                self._deaths.update(dict.fromkeys(fault.workers, fault.at))
            for session in fault.sessions:
                self._faults[session].append(fault)

    def loss(self, run: Run) -> Loss | None:
        """Why the run does not count; None if it does."""
        if run.written is not None:
            return None
        death = self._death_of(run)
        if run.discarded is not None or death is None:
            return self.lost_batch(run) or death
        return death

    def lost_batch(self, run: Run) -> Loss | None:
        """The loss of the transaction that held the job, before its end was known to be committed.

        The worker may have settled it all the same. If the commit was sent and not answered, and another
        worker has completed the job, both count it: the row is gone.
        """
        found = self._lost_batch_of(run)
        return None if found is None or (run.written is not None and run.written < found.at) else found

    def _death_of(self, run: Run) -> Loss | None:
        at = self._deaths.get(run.worker)
        limits = self._history.limits
        if at is None or (run.ended is not None and at > run.ended + limits.commit_within):
            return None
        if not run.held:
            return Loss(at + limits.grace, "killed locked", True)
        has_outlasted = run.ended is None and at > run.started + HOLD
        return Loss(at, "killed after hold" if has_outlasted else "killed in hold", True)

    def _lost_batch_of(self, run: Run) -> Loss | None:
        if run.session is None:
            return None
        for fault in self._faults.get(run.session, ()):
            is_over = run.ended is not None and fault.at > run.ended + self._history.limits.commit_within
            is_late = run.started > fault.until + SEEN_WITHIN
            if run.worker in fault.workers and not is_over and not is_late:
                return Loss(fault.at, kind_of(fault), False)
        return None

    def reason(self, first: Run, second: Run) -> str | None:
        """What excuses that the second run began although the first was going on, or had ended well."""
        is_over = first.ended is not None and first.ended <= second.started
        if first.pool == second.pool and not is_over:
            return None  # a pool never runs a job twice at once
        if (reason := self._reason(first, second.started)) is not None:
            return reason
        # The other way round: the second worker had lost the job before it started it, and did not know.
        return self._reason(second, first.started)

    def _reason(self, run: Run, moment: float) -> str | None:
        """Why another worker could have the job at this moment."""
        loss = self.loss(run) or self.lost_batch(run)
        if loss is None or loss.at > moment:
            return None
        is_settled = run.discarded is not None or (run.written is not None and moment <= run.written)
        is_known = is_settled or run.outcome == "cancelled" or run.worker in self._deaths
        return loss.reason if loss.is_death or is_known else None

    def excuse(self, first: Run, second: Run) -> bool:
        return self.reason(first, second) is not None

    def may_not_be_written(self, run: Run) -> bool:
        """Whether the worker had no chance to write how the task ended."""
        return self.loss(run) is not None

    def has_not_heard(self, run: Run) -> bool:
        return self._cut_offs.has_not_heard(run)

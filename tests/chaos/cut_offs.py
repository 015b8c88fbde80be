"""When each worker was cut off from its jobs: what excuses that one of them ran again elsewhere."""

from __future__ import annotations

import math
from functools import cached_property

from chaos.history import History, Run, Worker

STARTING = 3.0  # seconds: a process may not hold its lock for this time after its start
Window = tuple[float, float]


class CutOffs:
    """The windows of every worker, worked out once for a history."""

    def __init__(self, history: History) -> None:
        self._history = history

    @cached_property
    def windows(self) -> dict[str, list[Window]]:
        return {worker.name: self._of(worker) for worker in self._history.workers}

    def _of(self, worker: Worker) -> list[Window]:
        aftermath = self._history.limits.aftermath
        windows: list[Window] = []
        stops: list[Window] = []
        for fault in self._history.faults:
            if worker.name in fault.workers:
                # A process that is stopped keeps its connections, and with them its lock.
                is_harmless = fault.kind == "stop" and worker.shows_by == "lock"
                (stops if is_harmless else windows).append((fault.at, fault.until))
        if worker.ended is not None:
            windows.append((worker.ended, math.inf))
        windows = [(begin, end + aftermath) for begin, end in windows]
        for begin, end in sorted(stops):
            # Unless it had to reconnect just then.
            if begin < worker.started + STARTING or any(b <= end and begin <= e for b, e in windows):
                windows.append((begin, end + aftermath))
        return sorted(windows)

    def between(self, worker: str, begin: float, end: float, *, latest: float = math.inf) -> bool:
        """Whether the worker was cut off at some time from `begin` to `end`; it began by `latest`."""
        return any(
            first <= min(end, latest) and last >= begin for first, last in self.windows.get(worker, [])
        )

    def excuse(self, first: Run, second: Run) -> bool:
        """Whether the second run may have begun although the first was going on, or had ended well."""
        if first.ended is None:
            is_cut = self.between(first.worker, first.started, second.started)
        else:
            latest = first.ended + self._history.limits.write_within
            begin = min(first.ended, second.started)
            is_cut = self.between(first.worker, begin, second.started, latest=latest)
        # The other way round: the second was held by a worker that had lost it, and did not know.
        return is_cut or self.between(second.worker, second.started, second.started)

    def has_not_heard(self, run: Run) -> bool:
        """Whether the worker may not have known, when the run began, what operators had asked for."""
        if self.between(run.worker, run.started, run.started):
            return True
        limits = self._history.limits
        slack = {"partition": limits.deaf_for, "stop": limits.told_within}
        return any(
            run.worker in fault.workers
            and fault.at <= run.started <= fault.until + slack.get(fault.kind, 0.0)
            for fault in self._history.faults
        )

    def may_not_be_written(self, run: Run) -> bool:
        """Whether the worker may have had no chance to write how the task ended."""
        assert run.ended is not None
        return self.between(run.worker, run.ended, run.ended + self._history.limits.write_within)

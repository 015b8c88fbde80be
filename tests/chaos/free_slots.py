"""When each pool could have taken a job: what turns a wait into a violation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from chaos.cut_offs import STARTING, Window
from chaos.history import BLOCKING, FREE_TASKS, History, Paused, Run, Waited, Worker

AFTERWARDS = 0.5  # seconds until a pool goes on after a job has ended, or after a lock


class Free(NamedTuple):
    """A pool that had a free slot for so long, without a break."""

    worker: str
    pool: str
    seconds: float


class FreeSlots:
    """The times in which each pool could not take a job, worked out once for a history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def longest(self, waited: Waited) -> Free | None:
        """The pool that could have taken the job for longest."""
        if waited.task not in FREE_TASKS:
            return None
        paused = [self._pause(pause) for pause in self._history.pauses if _stops(pause, waited)]
        found = [
            Free(worker, pool, _longest_gap([*windows, *paused], waited.began, waited.ended))
            for (worker, pool), windows in self._windows.items()
        ]
        return max(found, key=lambda free: free.seconds, default=None)

    @cached_property
    def _windows(self) -> dict[tuple[str, str], list[Window]]:
        runs: dict[str, list[Run]] = defaultdict(list)
        for run in self._history.runs:
            runs[run.pool].append(run)
        windows: dict[tuple[str, str], list[Window]] = {}
        for worker in self._history.workers:
            away = list(self._away(worker))
            away += [
                (run.started, self._over(worker, run))
                for pool in worker.pools
                for run in runs[pool]
                if run.task == BLOCKING
            ]
            for pool, slots in zip(worker.pools, worker.slots, strict=False):
                spans = [(run.started, self._over(worker, run)) for run in runs[pool]]
                windows[worker.name, pool] = [*away, *_full(spans, slots)]
        return windows

    def _away(self, worker: Worker) -> Iterator[Window]:
        """When the process could not fetch: it was not there, was struck by a fault, or has just been."""
        yield -math.inf, worker.started + STARTING
        if worker.ended is not None:
            yield worker.ended, math.inf
        for fault in self._history.faults:
            if worker.name in fault.workers:
                yield fault.at, fault.until + self._history.limits.aftermath
            elif fault.kind == "lock":
                yield fault.at, fault.until + AFTERWARDS

    def _over(self, worker: Worker, run: Run) -> float:
        if run.ended is not None:
            return run.ended + AFTERWARDS
        return math.inf if worker.ended is None else worker.ended

    def _pause(self, pause: Paused) -> Window:
        """Longer than it was certainly in force: workers learn of its end when they look."""
        limits = self._history.limits
        return pause.began - limits.told_within, pause.ended + limits.looks_within


def _stops(pause: Paused, waited: Waited) -> bool:
    return pause.kind == "all" or (pause.kind == "task" and pause.name == waited.task)


def _full(spans: Sequence[Window], slots: int) -> Iterator[Window]:
    """When so many of these overlapped."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    running, since = 0, 0.0
    for at, change in changes:
        if running < slots <= running + change:
            since = at
        elif running + change < slots <= running:
            yield since, at
        running += change


def _longest_gap(windows: Iterable[Window], begin: float, end: float) -> float:
    """The longest time from `begin` to `end` that is in no window."""
    longest, reached = 0.0, begin
    for first, last in sorted(windows):
        if last <= reached:
            continue
        if first >= end:
            break
        longest, reached = max(longest, first - reached), last
    return max(longest, end - reached)

"""The order in which jobs run: by priority, then by run_at."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from ..job import Job

_by_priority = attrgetter("priority", "raw_run_at")


def insert_in_order(held: deque[Job], jobs: Sequence[Job]) -> None:
    """Add jobs, which are in order, to others that are.

    Jobs that come later than all others are the usual case, and cost one comparison.
    """
    if held and jobs and _by_priority(jobs[0]) < _by_priority(held[-1]):
        merged = sorted([*held, *jobs], key=_by_priority)  # linear, for two runs that are sorted
        held.clear()
        held.extend(merged)
    else:
        held.extend(jobs)

"""Putting the rows of a bulk add back into the order of the specs.

Needed for the functions that Node and Rust install; ours return them in order. Theirs return them in any
order, and may leave out a keyed job that was lost in a race. Keys are unique, so keyed
rows are matched by key; others by what they hold. Specs that hold the same are interchangeable, except that
the queue, which rows know only by number, is not compared.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence

import msgspec

from ..job import Job
from .spec_columns import SpecColumns

DEFAULT_PRIORITY = 0
DEFAULT_MAX_ATTEMPTS = 25


def match_by_content(columns: SpecColumns, jobs: Sequence[Job]) -> list[Job | None]:
    """One row per spec, None where the database returned none for it."""
    waiting: defaultdict[Hashable, deque[Job]] = defaultdict(deque)
    given_times = {time.timestamp() for time in columns.run_at if time is not None}
    for job in sorted(jobs, key=lambda job: job.id):
        waiting[_row_content(job, given_times)].append(job)
    return [
        found.popleft() if (found := waiting.get(_spec_content(columns, place))) else None
        for place in range(len(columns))
    ]


def _row_content(job: Job, given_times: set[float]) -> Hashable:
    if job.key is not None:
        return job.key
    time = job.raw_run_at if job.raw_run_at in given_times else None
    flags = None if job.raw_flags is None else frozenset(msgspec.json.decode(job.raw_flags))
    return (job.task_identifier, job.raw_payload, job.priority, job.max_attempts, time, flags)


def _spec_content(columns: SpecColumns, place: int) -> Hashable:
    if columns.job_keys and (key := columns.job_keys[place]) is not None:
        return key
    priority = columns.priorities[place] if columns.priorities else None
    most = columns.max_attempts[place] if columns.max_attempts else None
    time = columns.run_at[place] if columns.run_at else None
    flags = columns.flags[place] if columns.flags else None
    return (
        columns.identifiers[place],
        columns.payloads[place],
        DEFAULT_PRIORITY if priority is None else priority,
        DEFAULT_MAX_ATTEMPTS if most is None else most,
        None if time is None else time.timestamp(),
        None if flags is None else frozenset(flags),
    )

"""Adding jobs on a schema that Node or Rust installed.

Their functions return the jobs of a bulk add in any order, and may leave out a job whose key a worker locked
at the same moment. Ours do neither, so this module is used only where the function is not ours. Keys are
unique, so jobs with a key are matched by key and the others by content. Specs of equal content are
interchangeable, except for the queue: rows hold only its id, so it is not compared.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from hashlib import md5
from typing import NamedTuple

import msgspec

from ..errors import JobNotAddedError
from ..job import Job
from ..schema_name import SchemaName
from ..spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY
from ..sql import load
from .spec_columns import SpecColumns, as_texts
from .statement import Statement, Steps, load_statement

ADD_ATTEMPTS = 10
LOST_ADD = "GWNOR"  # the SQLSTATE of Rust's function


class Added(NamedTuple):
    """What a bulk statement returned, and whether it called our function, which keeps the order."""

    jobs: list[Job]
    is_ours: bool


def restore_order(
    schema: SchemaName,
    columns: SpecColumns,
    jobs: Sequence[Job],
    add: Callable[[SpecColumns], Steps[Added]],
) -> Steps[list[Job]]:
    """The jobs in the order of the specs. Specs that the function lost are added again by `add`."""
    found = match_by_content(columns, (yield from _with_names(schema, jobs)))
    for _ in range(ADD_ATTEMPTS):
        missing = [place for place, job in enumerate(found) if job is None]
        if not missing:
            return [job for job in found if job is not None]
        lost = columns.take(missing)
        again, _ = yield from add(lost)
        retried = match_by_content(lost, (yield from _with_names(schema, again)))
        for place, job in zip(missing, retried, strict=True):
            found[place] = job
    raise lost_add_error([key for key, job in zip(columns.job_keys, found, strict=False) if job is None])


def match_by_content(columns: SpecColumns, jobs: Sequence[Job]) -> list[Job | None]:
    """One job per spec, None where the database returned none for it."""
    unmatched: defaultdict[Hashable, deque[Job]] = defaultdict(deque)
    given_times = {time.timestamp() for time in columns.run_at if time is not None}
    for job in sorted(jobs, key=lambda job: job.id):
        unmatched[_job_content(job, given_times)].append(job)
    return [
        found.popleft() if (found := unmatched.get(_spec_content(columns, place))) else None
        for place in range(len(columns))
    ]


def lost_add_error(keys: Sequence[str | None]) -> JobNotAddedError:
    """For an add that got lost in every attempt."""
    listed = ", ".join(repr(key) for key in keys[:5]) + (", …" if len(keys) > 5 else "")
    return JobNotAddedError(
        f"the job with key {listed} could not be added in {ADD_ATTEMPTS} attempts, because a worker locked "
        "the job with that key each time; add it again"
    )


@cache
def our_function(schema: SchemaName) -> tuple[str, str]:
    """The signature of add_jobs in this schema, and the md5 of the body that this package installs."""
    body = load("migrations/functions/add_jobs", schema).split("$body$")[1]
    signature = f"{schema.quoted}.add_jobs({schema.quoted}.job_spec[],boolean)"
    return signature, md5(body.encode(), usedforsecurity=False).hexdigest()


def _with_names(schema: SchemaName, jobs: Sequence[Job]) -> Steps[list[Job]]:
    """The jobs with the identifiers of their own tasks; their order says nothing about the specs."""
    task_ids = as_texts({job.task_id for job in jobs})
    rows = yield Statement(load_statement("add/task_identifiers", schema), (task_ids,))
    names: dict[int, str] = {row[0]: row[1] for row in rows}
    return [msgspec.structs.replace(job, task_identifier=names[job.task_id]) for job in jobs]


def _job_content(job: Job, given_times: set[float]) -> Hashable:
    if job.key is not None:
        return job.key
    time = job.raw_run_at if job.raw_run_at in given_times else None
    flags = None if job.raw_flags is None else frozenset(msgspec.json.decode(job.raw_flags))
    return (job.task_identifier, job.raw_payload, job.priority, job.max_attempts, time, flags)


def _spec_content(columns: SpecColumns, place: int) -> Hashable:
    if columns.job_keys and (key := columns.job_keys[place]) is not None:
        return key
    priority = columns.priorities[place] if columns.priorities else None
    max_attempts = columns.max_attempts[place] if columns.max_attempts else None
    time = columns.run_at[place] if columns.run_at else None
    flags = columns.flags[place] if columns.flags else None
    return (
        columns.identifiers[place],
        columns.payloads[place],
        DEFAULT_PRIORITY if priority is None else priority,
        DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts,
        None if time is None else time.timestamp(),
        None if flags is None else frozenset(flags),
    )

"""Adding jobs through the functions in the database, one or many.

The functions of a schema that Node or Rust installed can lose a keyed add to a worker that takes the keyed
job at that moment: Node's returns an empty row, Rust's raises GWNOR. Such an add is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from hashlib import md5
from itertools import chain, repeat

import msgspec
from msgspec.json import decode

from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..errors import JobNotAddedError
from ..job import Job
from ..payload import encode
from ..schema_name import SchemaName
from ..spec import JobSpec
from ..sql import load
from .result_order import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, match_by_content
from .rows import job_from_values
from .spec_chunks import chunks_of
from .spec_columns import SpecColumns, array_text, as_texts, time_and_delay

ATTEMPTS = 10
LOST_ADD = "GWNOR"


async def add_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> Job:
    """Add one job; `now` takes the place of the server's clock."""
    payload = encode(spec.payload)
    run_at, delay = time_and_delay(spec.run_at, now)
    for _ in range(ATTEMPTS):
        try:
            row = await connection.fetchrow(
                load("add/add_job", schema),
                spec.identifier,
                payload,
                spec.queue_name,
                run_at,
                delay,
                spec.max_attempts,
                spec.job_key,
                spec.priority,
                None if spec.flags is None else list(spec.flags),
                spec.job_key_mode or "replace",
            )
        except Exception as error:
            # Inside a transaction the error has ended it, so only the caller can begin anew.
            if sqlstate_of(error) != LOST_ADD or connection.is_in_transaction():
                raise
            continue
        if row is not None and row[0] is not None:
            job_id, merged, *others = row
            stored = payload if merged is None else merged
            return job_from_values((job_id, stored, *others, spec.identifier))
    raise _lost([spec.job_key])


async def add_jobs(
    connection: Connection,
    schema: SchemaName,
    specs: Iterable[JobSpec],
    *,
    job_key_preserve_run_at: bool = False,
    return_jobs: bool = True,
    now: datetime | None = None,
) -> list[Job]:
    """Add many jobs, all or none; the rows come back in the order of the specs, if they are wanted."""
    # One statement is a transaction by itself; only several, or one that may be tried again, need their own.
    chunks = chunks_of(specs, job_key_preserve_run_at, now)
    first = next(chunks, None)
    if first is None:
        return []
    second = next(chunks, None)
    if second is None and not first[0].job_keys:
        jobs = await _add_chunk(connection, schema, *first)
        return jobs if return_jobs else []
    jobs = []
    async with connection.transaction():
        for chunk in chain([first], [] if second is None else [second], chunks):
            added = await _add_chunk(connection, schema, *chunk)
            if return_jobs:
                jobs += added
    return jobs


async def _add_chunk(
    connection: Connection, schema: SchemaName, columns: SpecColumns, preserve: bool
) -> list[Job]:
    jobs, is_ours = await _run(connection, schema, columns, preserve)
    if is_ours:
        return jobs
    found = match_by_content(columns, await _with_names(connection, schema, jobs))
    for _ in range(ATTEMPTS):
        missing = [place for place, job in enumerate(found) if job is None]
        if not missing:
            return [job for job in found if job is not None]
        lost = columns.take(missing)
        jobs, _ = await _run(connection, schema, lost, preserve)
        again = match_by_content(lost, await _with_names(connection, schema, jobs))
        for place, job in zip(missing, again, strict=True):
            found[place] = job
    raise _lost([key for key, job in zip(columns.job_keys, found, strict=False) if job is None])


async def _run(
    connection: Connection, schema: SchemaName, columns: SpecColumns, preserve: bool
) -> tuple[list[Job], bool]:
    """Add the specs of one chunk; the rows, and whether they are in order and so bear the right names."""
    if columns.has_keys_or_flags:
        return await _run_with_keys(connection, schema, columns, preserve)
    only_name = columns.only_identifier
    if only_name is not None and columns.has_payloads_only:
        added = await _insert(connection, schema, only_name, columns.payloads)
        if added is not None:
            return added, True
    row = await connection.fetchrow(
        load("add/add_jobs_without_keys", schema),
        columns.identifiers if only_name is None else [only_name],
        columns.payloads,
        columns.queue_names,
        as_texts(columns.run_at),
        as_texts(columns.delays),
        as_texts(columns.max_attempts),
        as_texts(columns.priorities),
        *_our_function(schema),
    )
    if row is None or row["ids"] is None:
        return [], False
    is_ours, ids, created, task_id, *lists, payloads = row
    task_ids, queue_ids, run_at, max_attempts, priorities = (text and decode(text) for text in lists)
    jobs = [
        Job(id_, payload, priority, time, 0, most, None, created, created,
            None, None, 0, None, task, queue, None, name)
        for id_, payload, priority, time, most, task, queue, name in zip(
            decode(ids),
            payloads or columns.payloads,
            priorities or repeat(DEFAULT_PRIORITY),
            run_at or repeat(created),
            max_attempts or repeat(DEFAULT_MAX_ATTEMPTS),
            task_ids or repeat(task_id),
            queue_ids or repeat(None),
            columns.identifiers,
            strict=False,
        )
    ]  # fmt: skip
    return jobs, is_ours


async def _insert(
    connection: Connection, schema: SchemaName, name: str, payloads: list[str]
) -> list[Job] | None:
    """Add jobs of which nothing but the payload is given; None if the task is new to the database."""
    row = await connection.fetchrow(load("add/insert_jobs", schema), name, payloads)
    if row is None or row[0] is None:
        return None
    ids, created, task_id = row
    return [
        Job(id_, payload, DEFAULT_PRIORITY, created, 0, DEFAULT_MAX_ATTEMPTS, None, created, created,
            None, None, 0, None, task_id, None, None, name)
        for id_, payload in zip(decode(ids), payloads, strict=True)
    ]  # fmt: skip


async def _run_with_keys(
    connection: Connection, schema: SchemaName, columns: SpecColumns, preserve: bool
) -> tuple[list[Job], bool]:
    rows = await connection.fetch(
        load("add/add_jobs", schema),
        columns.identifiers,
        columns.payloads,
        columns.queue_names,
        as_texts(columns.run_at),
        as_texts(columns.delays),
        as_texts(columns.max_attempts),
        columns.job_keys,
        as_texts(columns.priorities),
        [None if flags is None else array_text(flags) for flags in columns.flags],
        preserve,
        *_our_function(schema),
    )
    names = columns.identifiers
    jobs = [job_from_values((*tuple(row)[:-1], name)) for row, name in zip(rows, names, strict=False)]
    return jobs, bool(rows and rows[0]["is_ours"])


async def _with_names(connection: Connection, schema: SchemaName, jobs: Sequence[Job]) -> list[Job]:
    """The rows of a function that is not ours with the names of their own tasks, whatever their order."""
    task_ids = as_texts({job.task_id for job in jobs})
    rows = await connection.fetch(load("add/task_identifiers", schema), task_ids)
    names: dict[int, str] = {row["id"]: row["identifier"] for row in rows}
    return [msgspec.structs.replace(job, task_identifier=names[job.task_id]) for job in jobs]


@cache
def _our_function(schema: SchemaName) -> tuple[str, str]:
    """The signature of add_jobs in this schema, and the md5 of the body that this package would install."""
    body = load("migrations/functions/add_jobs", schema).split("$body$")[1]
    signature = f"{schema.quoted}.add_jobs({schema.quoted}.job_spec[],boolean)"
    return signature, md5(body.encode(), usedforsecurity=False).hexdigest()


def _lost(keys: Sequence[str | None]) -> JobNotAddedError:
    listed = ", ".join(repr(key) for key in keys[:5]) + (", …" if len(keys) > 5 else "")
    return JobNotAddedError(
        f"the job with key {listed} could not be added in {ATTEMPTS} tries, because workers took the job "
        "with that key each time; add it again"
    )

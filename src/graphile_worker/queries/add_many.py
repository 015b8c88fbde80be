"""Adding many jobs, in as few statements as possible and all in one transaction.

`add_many_steps` is pure: an adapter for another driver runs its statements inside one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any

from msgspec.json import decode

from ..db.connection import Connection, Row
from ..job import Job
from ..schema_name import SchemaName
from ..spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, JobSpec
from ..unique import WHILES
from .foreign_schema import Added, our_function, restore_order
from .rows import job_from_values
from .spec_chunks import Chunk, chunks_of
from .spec_columns import SpecColumns, array_text, as_texts
from .statement import Statement, Steps, load_statement, run_steps
from .unique_jobs import is_missing, missing_objects_error, unique_job


def add_many_steps(
    schema: SchemaName, specs: Iterable[JobSpec], *, now: datetime | None = None
) -> Steps[list[Job]]:
    """The statements that add these jobs, to be run in one transaction; the jobs are in the specs' order."""
    jobs: list[Job] = []
    for chunk in chunks_of(specs, now):
        jobs += yield from _add_chunk(schema, chunk)
    return jobs


async def add_jobs(
    connection: Connection,
    schema: SchemaName,
    specs: Iterable[JobSpec],
    *,
    return_jobs: bool = True,
    now: datetime | None = None,
) -> list[Job]:
    """Add many jobs, all or none. Returns them in the order of the specs, unless they are not wanted."""
    # One statement is a transaction by itself; only several, or one that may be retried, need their own.
    chunks = chunks_of(specs, now)
    first = next(chunks, None)
    if first is None:
        return []
    second = next(chunks, None)
    if second is None and not first.columns.job_keys:
        jobs = await run_steps(connection, _add_chunk(schema, first))
        return jobs if return_jobs else []
    jobs = []
    async with connection.transaction():
        for chunk in chain([first], [] if second is None else [second], chunks):
            try:
                added = await run_steps(connection, _add_chunk(schema, chunk))
            except Exception as error:
                if chunk.mode in WHILES and is_missing(error):
                    raise missing_objects_error(schema) from error
                raise
            if return_jobs:
                jobs += added
    return jobs


def _add_chunk(schema: SchemaName, chunk: Chunk) -> Steps[list[Job]]:
    if chunk.mode in WHILES:
        rows = yield _unique(schema, chunk)
        names = chunk.columns.identifiers
        return [unique_job(row, name) for row, name in zip(rows, names, strict=True)]

    def add(columns: SpecColumns) -> Steps[Added]:
        return _add(schema, columns, preserve_run_at=chunk.mode == "preserve_run_at")

    jobs, is_ours = yield from add(chunk.columns)
    return jobs if is_ours else (yield from restore_order(schema, chunk.columns, jobs, add))


def _add(schema: SchemaName, columns: SpecColumns, *, preserve_run_at: bool) -> Steps[Added]:
    """Add these specs by the fastest statement that can. It returns the jobs, in order if it is ours."""
    if columns.has_keys_or_flags:
        rows = yield _with_keys(schema, columns, preserve_run_at)
        return _jobs_with_keys(rows, columns)
    if columns.only_identifier is not None and columns.has_payloads_only:
        rows = yield Statement(
            load_statement("add/insert_jobs", schema), (columns.only_identifier, columns.payloads)
        )
        if rows[0][0] is not None:  # else the task is new to the database
            return Added(_inserted_jobs(rows[0], columns), True)
    rows = yield _without_keys(schema, columns)
    return _jobs_without_keys(rows[0], columns)


def _inserted_jobs(row: Row, columns: SpecColumns) -> list[Job]:
    ids, created, task_id = row
    name = columns.identifiers[0]
    return [
        Job(id_, payload, DEFAULT_PRIORITY, created, 0, DEFAULT_MAX_ATTEMPTS, None, created, created,
            None, None, 0, None, task_id, None, None, name)
        for id_, payload in zip(decode(ids), columns.payloads, strict=True)
    ]  # fmt: skip


def _without_keys(schema: SchemaName, columns: SpecColumns) -> Statement:
    only = columns.only_identifier
    return Statement(
        load_statement("add/add_jobs_without_keys", schema),
        (
            columns.identifiers if only is None else [only],
            columns.payloads,
            columns.queue_names,
            as_texts(columns.run_at),
            as_texts(columns.delays),
            as_texts(columns.max_attempts),
            as_texts(columns.priorities),
            *our_function(schema),
        ),
    )


def _jobs_without_keys(row: Row, columns: SpecColumns) -> Added:
    """Jobs from the lists of `add_jobs_without_keys`; a list is null where all jobs have the default."""
    is_ours, ids, created, task_id, *lists, payloads = row
    if ids is None:
        return Added([], False)
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
    return Added(jobs, is_ours)


def _unique(schema: SchemaName, chunk: Chunk) -> Statement:
    return Statement(
        load_statement("add/add_unique_jobs", schema), (*_all_columns(chunk.columns), chunk.mode)
    )


def _with_keys(schema: SchemaName, columns: SpecColumns, preserve_run_at: bool) -> Statement:
    return Statement(
        load_statement("add/add_jobs", schema),
        (*_all_columns(columns), preserve_run_at, *our_function(schema)),
    )


def _all_columns(columns: SpecColumns) -> tuple[Sequence[str | None], ...]:
    return (
        columns.identifiers,
        columns.payloads,
        columns.queue_names,
        as_texts(columns.run_at),
        as_texts(columns.delays),
        as_texts(columns.max_attempts),
        columns.job_keys,
        as_texts(columns.priorities),
        [None if flags is None else array_text(flags) for flags in columns.flags],
    )


def _jobs_with_keys(rows: Sequence[Row | Sequence[Any]], columns: SpecColumns) -> Added:
    names = columns.identifiers
    jobs = [job_from_values((*tuple(row)[:-1], name)) for row, name in zip(rows, names, strict=False)]
    return Added(jobs, bool(rows and rows[0][-1]))

"""Adding many jobs, in as few statements as possible and all in one transaction.

`chunks_of` splits a list of specs into chunks of one statement each, and rejects conflicts between specs.
`add_many_steps` is pure: an adapter for another driver runs its statements inside one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Literal, NamedTuple

from msgspec.json import decode

from ...errors import InvalidArgumentError
from ...values.job import Job
from ...values.schema_name import SchemaName
from ...values.spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, WHILES, JobSpec, While
from ..connections.connection import Connection, Row
from ..connections.statement import Statement, Steps, load_statement, run_steps
from .add import (
    LARGE_PAYLOAD,
    Added,
    SpecColumns,
    as_texts,
    columns_of,
    is_missing,
    missing_objects_error,
    our_function,
    restore_order,
    unique_job,
    warn_of_large_payloads,
)


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
        rows = yield Statement(
            load_statement("add/add_unique_jobs", schema), (*chunk.columns.arrays, chunk.mode)
        )
        names = chunk.columns.identifiers
        return [unique_job(row, name) for row, name in zip(rows, names, strict=True)]

    def add(columns: SpecColumns) -> Steps[Added]:
        return _add(schema, columns, preserve_run_at=chunk.mode == "preserve_run_at")

    jobs, is_ours = yield from add(chunk.columns)
    return jobs if is_ours else (yield from restore_order(schema, chunk.columns, jobs, add))


def _add(schema: SchemaName, columns: SpecColumns, *, preserve_run_at: bool) -> Steps[Added]:
    """Add these specs by the fastest statement that can. It returns the jobs, in order if it is ours."""
    if columns.has_keys_or_flags:
        rows = yield Statement(
            load_statement("add/add_jobs", schema), (*columns.arrays, preserve_run_at, *our_function(schema))
        )
        jobs = [
            Job(*tuple(row)[:-1], name)  # type: ignore[call-arg]
            for row, name in zip(rows, columns.identifiers, strict=False)
        ]
        return Added(jobs, bool(rows and rows[0][-1]))
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


_key_of = attrgetter("job_key")

CHUNK_SPECS = 1000
"""Specs per statement: more gains no speed and takes more memory, here and in the server."""
CHUNK_BYTES = 8 * 1024 * 1024
"""Payload bytes per statement, unless a single payload is larger."""

Mode = Literal["replace", "preserve_run_at"] | While
"""One of the job key modes, or while which a job with the key counts if all are unique."""


class Chunk(NamedTuple):
    """Specs for one statement, and what an add does if there is a job with its key."""

    columns: SpecColumns
    mode: Mode


def chunks_of(specs: Iterable[JobSpec], now: datetime | None) -> Iterator[Chunk]:
    """The specs in chunks, in order; `now` replaces the server's clock."""
    remaining = iter(specs)
    keys: set[str] = set()
    first = 0
    while chunk := list(islice(remaining, CHUNK_SPECS)):
        if _is_simple(chunk):
            parts: Iterable[tuple[list[JobSpec], Mode]] = [(chunk, "replace")]
        else:
            _check(chunk, first, keys)
            parts = _by_mode(chunk)
        for part, mode in parts:
            columns = columns_of(part, first=first, now=now)
            for piece in _by_size(columns):
                yield Chunk(piece, mode)
            first += len(part)


def _is_simple(chunk: list[JobSpec]) -> bool:
    """Whether all specs are plain JobSpecs without keys, as usual: no conflicts, and no mode matters."""
    return set(map(type, chunk)) == {JobSpec} and not any(map(_key_of, chunk))


def _by_mode(chunk: list[JobSpec]) -> Iterator[tuple[list[JobSpec], Mode]]:
    """Split where the mode changes: a statement takes one mode for all its specs."""
    part: list[JobSpec] = []
    mode: Mode | None = None
    for spec in chunk:
        own = _mode_of(spec)
        if part and own != mode and (mode in WHILES or own in WHILES or None not in (mode, own)):
            yield part, mode or "replace"
            part, mode = [], None
        part.append(spec)
        mode = own or mode
    yield part, mode or "replace"


def _mode_of(spec: JobSpec) -> Mode | None:
    """None for a job without a key, which fits any job key mode."""
    if spec.unique is not None:
        return spec.unique.while_
    if spec.job_key is None:
        return None
    return "preserve_run_at" if spec.job_key_mode == "preserve_run_at" else "replace"


def _by_size(columns: SpecColumns) -> Iterator[SpecColumns]:
    """Split where the payloads get too large for one statement."""
    total = sum(map(len, columns.payloads))
    if total > LARGE_PAYLOAD:
        warn_of_large_payloads(columns.identifiers, columns.payloads)
    if total <= CHUNK_BYTES:
        yield columns
        return
    places: list[int] = []
    size = 0
    for place, payload in enumerate(columns.payloads):
        if places and size + len(payload) > CHUNK_BYTES:
            yield columns.take(places)
            places, size = [], 0
        places.append(place)
        size += len(payload)
    yield columns.take(places)


def _check(chunk: Sequence[JobSpec], first: int, keys: set[str]) -> None:
    """Reject what is wrong only among several."""
    for place, spec in enumerate(chunk, start=first):
        if not isinstance(spec, JobSpec):
            raise InvalidArgumentError(f"specs[{place}]", f"expected a JobSpec, got {spec!r}")
        key = spec.job_key
        if key is None or spec.unique is not None:
            continue
        if spec.job_key_mode == "unsafe_dedupe":
            raise InvalidArgumentError(
                f"specs[{place}].job_key_mode", "unsafe_dedupe works with add_job only, not with add_jobs"
            )
        if key in keys:
            raise InvalidArgumentError(
                f"specs[{place}].job_key", f"{key!r} occurs twice in this call; keep only the last spec"
            )
        keys.add(key)

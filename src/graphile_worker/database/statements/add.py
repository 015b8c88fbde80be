"""Adding one job, and what it shares with adding many.

- `add_job` uses the database's function, for any job, inside or outside a transaction. `add_statement` and
  `job_from_row` are pure, so that an adapter for another driver needs nothing else:

        statement = add_statement(schema, spec)
        row = cursor.execute(*statement).fetchone()
        job = job_from_row(row, statement)

- `PlainJobs` is the fast path for a job that has neither key nor queue, outside a transaction. Without
  contention, one statement inserts the job and notifies workers. PostgreSQL commits only one notifying
  transaction at a time, including its wait for the disk. So under contention jobs are committed first, and
  the notification follows in a transaction of its own. A procedure does both in one round trip, but is slower
  than the statement when there is no contention: it is used for a while after contention was seen.
- `SpecColumns` has specs in the form that bulk statements take.
- `restore_order` and `match_by_content` are for schemas that Node or Rust installed, where the function is
  not ours. Theirs return the jobs of a bulk add in any order. And an add with a key can get lost, if a worker
  locks the job with that key at the same moment: a bulk add leaves it out, Node's `add_job` returns an empty
  row, and Rust's raises GWNOR. Such an add is retried. Keys are unique, so jobs with a key are matched by key
  and the others by content. Specs of equal content are interchangeable, except for the queue: rows hold only
  its id, so it is not compared.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from hashlib import md5
from typing import Any, NamedTuple

import msgspec

from ...errors import InvalidArgumentError, JobNotAddedError
from ...values.job import ExistingJob, Job
from ...values.payload import encode, encode_all
from ...values.schema_name import SchemaName
from ...values.spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, JobSpec
from ..connections import sqlstates
from ..connections.connection import Connection, Row
from ..connections.encoding import array_text
from ..connections.errors import server_message, sqlstate_of
from ..connections.retry import is_conflict
from ..connections.statement import Statement, Steps, load_statement
from ..sql import load

COLUMNS = len(Job.__struct_fields__) - 1  # without the task identifier

ADD_ATTEMPTS = 10

LARGE_PAYLOAD = 1_000_000
"""Characters of JSON text above which a payload is large."""

_INVALID_PAYLOAD = (
    sqlstates.INVALID_TEXT_REPRESENTATION,  # not JSON
    sqlstates.UNTRANSLATABLE_CHARACTER,  # a character, or a number, that `jsonb` cannot hold
    sqlstates.NUMERIC_VALUE_OUT_OF_RANGE,
)


def add_statement(schema: SchemaName, spec: JobSpec, *, now: datetime | None = None) -> Statement:
    """The statement that adds one job; `now` replaces the server's clock. It returns one row."""
    run_at, delay = time_and_delay(spec.run_at, now)
    payload = encode(spec.payload)
    if len(payload) > LARGE_PAYLOAD:
        warn_of_large_payload(spec.task_identifier, payload)
    flags = None if spec.flags is None else list(spec.flags)
    options = (spec.task_identifier, payload, spec.queue_name, run_at, delay, spec.max_attempts)
    if spec.job_key is None:
        return Statement(load_statement("add/add_job_without_key", schema), (*options, spec.priority, flags))
    unique = spec.unique
    return Statement(
        load_statement("add/add_job" if unique is None else "add/add_unique_job", schema),
        (
            *options,
            spec.job_key,
            spec.priority,
            flags,
            (spec.job_key_mode or "replace") if unique is None else unique.while_,
        ),
    )


def job_from_row(row: Row | Sequence[Any] | None, statement: Statement) -> Job | None:
    """The job that `add_statement` has added; None if the add got lost and has to be repeated."""
    if row is None or row[0] is None:
        return None
    arguments = statement.arguments
    if len(row) < COLUMNS:
        return _job_without_key(row, arguments)
    if len(row) > COLUMNS:
        return unique_job(row, arguments[0])
    return Job(*row, arguments[0])  # type: ignore[call-arg]


def _job_without_key(row: Row | Sequence[Any], arguments: tuple[Any, ...]) -> Job:
    id_, run_at, created_at, flags, task_id, queue_id = row
    name, payload, _, _, _, max_attempts, priority, _ = arguments
    priority = DEFAULT_PRIORITY if priority is None else priority
    max_attempts = DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts
    return Job(id_, payload, priority, run_at, 0, max_attempts, None, created_at, created_at,
               None, None, 0, flags, task_id, queue_id, None, name)  # fmt: skip


async def add_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> Job:
    """Add one job; `now` replaces the server's clock."""
    statement = add_statement(schema, spec, now=now)
    for _ in range(ADD_ATTEMPTS):
        try:
            row = await connection.fetchrow(statement.sql, *statement.arguments)
        except Exception as error:
            if spec.unique is not None and is_missing(error):
                raise missing_objects_error(schema) from error
            # Inside a transaction the error has aborted it, so only the caller can start over.
            if sqlstate_of(error) != sqlstates.ADD_WITHOUT_ROW or connection.is_in_transaction():
                raise
            continue
        job = job_from_row(row, statement)
        if job is not None:
            return job
    raise lost_add_error([spec.job_key])


def payload_error(error: Exception) -> InvalidArgumentError | None:
    """Our error, if adding failed because of a payload that only the server can judge.

    That is JSON text from the caller, and an array to be merged with another one. All other values
    are checked before.
    """
    if sqlstate_of(error) not in _INVALID_PAYLOAD:
        return None
    return InvalidArgumentError(
        "payload",
        "PostgreSQL cannot use it as JSON, or cannot append it to the payload of the waiting job with "
        f"the same key: {server_message(error)}",
    )


CONTENDED_ADDS = 200  # jobs that take the procedure after contention was seen


class PlainJobs:
    """Adds plain jobs for one client, by whichever statement is faster at the moment."""

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema
        self._contended_adds = 0
        self._may_insert = True  # until the server refuses
        self._has_procedure = True

    def forget(self) -> None:
        """Try everything again: the schema has changed."""
        self._may_insert = self._has_procedure = True

    async def add(self, connection: Connection, spec: JobSpec, now: datetime | None) -> Job | None:
        """Add a job. The connection must not be in a transaction, which would keep the lock or be ended.

        Returns None, and has added nothing, if the job needs the general statement: its task is new to the
        database, or the role may not insert. `now` replaces the server's clock.
        """
        if not self._may_insert:
            return None
        payload = encode(spec.payload)
        if len(payload) > LARGE_PAYLOAD:
            warn_of_large_payload(spec.task_identifier, payload)
        run_at, delay = (None, None) if spec.run_at is now is None else time_and_delay(spec.run_at, now)
        values = (spec.task_identifier, payload, run_at, delay, spec.max_attempts, spec.priority)
        is_contended = self._contended_adds > 0 and self._has_procedure
        try:
            if is_contended:
                self._contended_adds -= 1
                flags = None if spec.flags is None else list(spec.flags)
                row = await connection.fetchrow(
                    load_statement("add/add_plain_job", self._schema), *values, flags
                )
            else:
                text = _flags_text(spec) if spec.flags else None
                row = await connection.fetchrow(load_statement("add/insert_job", self._schema), *values, text)
        except Exception as error:
            if not self._is_unavailable(sqlstate_of(error)):
                raise
            return None
        if row is None or row[0] is None:
            return None
        if not is_contended and not row[5]:  # contention: another client is about to notify
            self._contended_adds = CONTENDED_ADDS
            try:
                await connection.fetchrow(load_statement("add/announce_job", self._schema))
            except Exception as error:
                if not is_conflict(error):  # a retry would add the committed job twice
                    raise
        return _added(row, spec, payload)

    def _is_unavailable(self, code: str | None) -> bool:
        """Whether the fast path does not exist here; then it is not tried again."""
        if code == sqlstates.UNDEFINED_FUNCTION:
            self._has_procedure = False
        elif code == sqlstates.INSUFFICIENT_PRIVILEGE:
            self._may_insert = False
        else:
            return False
        return True


def _flags_text(spec: JobSpec) -> str:
    return msgspec.json.encode(dict.fromkeys(spec.flags or (), True)).decode()


def _added(row: Row, spec: JobSpec, payload: str) -> Job:
    priority = DEFAULT_PRIORITY if spec.priority is None else spec.priority
    max_attempts = DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts
    return Job(row[0], payload, priority, row[2], 0, max_attempts, None, row[3], row[3],
               None, None, 0, row[1], row[4], None, None, spec.task_identifier)  # fmt: skip


def unique_job(row: Row | Sequence[Any], task_identifier: str) -> Job:
    """The job in a row that ends with whether it is new."""
    values = tuple(row)
    kind = Job if values[COLUMNS] else ExistingJob
    return kind(*values[:COLUMNS], task_identifier)  # type: ignore[call-arg]


def is_missing(error: Exception) -> bool:
    """Whether the database does not have the function."""
    return sqlstate_of(error) == sqlstates.UNDEFINED_FUNCTION


def missing_objects_error(schema: SchemaName) -> JobNotAddedError:
    """For an add that needs the function."""
    return JobNotAddedError(
        f"unique jobs need the Python-only objects in the schema {schema.quoted}; the owner of the schema "
        "can create them with: graphile-worker migrate"
    )


MAX_WARNED = 1000

logger = logging.getLogger("graphile_worker.client")
_warned: set[str] = set()


def warn_of_large_payload(task: str, payload: str) -> None:
    """Warn of a payload that is larger than LARGE_PAYLOAD, unless this task has been named before."""
    if task in _warned or len(_warned) >= MAX_WARNED:
        return
    _warned.add(task)
    logger.warning(
        "a job of task %s was added with a payload of %.1f MB, which the database copies at every attempt; "
        "store the data elsewhere and pass a reference (this warning appears once per task)",
        task,
        len(payload.encode()) / 1_000_000,
    )


def warn_of_large_payloads(tasks: Sequence[str], payloads: Sequence[str]) -> None:
    """The same for many jobs."""
    for task, payload in zip(tasks, payloads, strict=True):
        if len(payload) > LARGE_PAYLOAD:
            warn_of_large_payload(task, payload)


@dataclass(slots=True)
class SpecColumns:
    """The attributes of several specs. A column is empty if no spec has a value for it."""

    identifiers: list[str]
    payloads: list[str]
    queue_names: list[str | None]
    run_at: list[datetime | None]
    delays: list[float | None]
    max_attempts: list[int | None]
    job_keys: list[str | None]
    priorities: list[int | None]
    flags: list[tuple[str, ...] | None]

    def __len__(self) -> int:
        return len(self.identifiers)

    @property
    def has_keys_or_flags(self) -> bool:
        return bool(self.job_keys or self.flags)

    @property
    def has_payloads_only(self) -> bool:
        return (
            not (self.queue_names or self.run_at or self.delays or self.max_attempts or self.priorities)
            and not self.has_keys_or_flags
        )

    @property
    def only_identifier(self) -> str | None:
        """The task of all specs, if they have the same one."""
        first = self.identifiers[0]
        return first if self.identifiers.count(first) == len(self.identifiers) else None

    @property
    def arrays(self) -> tuple[Sequence[str | None], ...]:
        """All columns as arrays of texts, the only array type that asyncpg knows without a catalog query."""
        return (
            self.identifiers,
            self.payloads,
            self.queue_names,
            as_texts(self.run_at),
            as_texts(self.delays),
            as_texts(self.max_attempts),
            self.job_keys,
            as_texts(self.priorities),
            [None if flags is None else array_text(flags) for flags in self.flags],
        )

    def take(self, places: Sequence[int]) -> SpecColumns:
        """The specs at these positions."""
        columns = [getattr(self, name) for name in self.__slots__]
        return SpecColumns(*([column[place] for place in places] if column else [] for column in columns))


def columns_of(specs: Sequence[JobSpec], *, first: int = 0, now: datetime | None = None) -> SpecColumns:
    """The columns of these specs.

    `first` is the position of the first one in the caller's list, for error messages. `now` replaces the
    server's clock.
    """
    try:
        payloads = encode_all([spec.payload for spec in specs])
    except InvalidArgumentError as error:
        raise _locate_error(specs, first) or error from error
    times, delays = _split_times([spec.run_at for spec in specs], now)
    return SpecColumns(
        identifiers=[spec.task_identifier for spec in specs],
        payloads=payloads,
        queue_names=_or_empty([spec.queue_name for spec in specs]),
        run_at=times,
        delays=delays,
        max_attempts=_or_empty([spec.max_attempts for spec in specs]),
        job_keys=_or_empty([spec.job_key for spec in specs]),
        priorities=_or_empty([spec.priority for spec in specs]),
        flags=_or_empty([tuple(spec.flags) if spec.flags else None for spec in specs]),
    )


def time_and_delay(
    run_at: datetime | timedelta | None, now: datetime | None
) -> tuple[datetime | None, float | None]:
    """The two parameters for one `run_at`: a time, or seconds that the server adds to its own.

    Seconds, because an interval of days changes its length when daylight saving time begins or ends.
    """
    if isinstance(run_at, timedelta):
        return (None, run_at.total_seconds()) if now is None else (now + run_at, None)
    return (now if run_at is None else run_at), None


def as_texts(column: Iterable[object]) -> list[str | None]:
    """A column as an array of texts; see `SpecColumns.arrays`."""
    return [None if value is None else str(value) for value in column]


def _or_empty(column: list[Any]) -> list[Any]:
    return [] if column.count(None) == len(column) else column


def _split_times(
    column: list[datetime | timedelta | None], now: datetime | None
) -> tuple[list[datetime | None], list[float | None]]:
    if now is None and column.count(None) == len(column):
        return [], []
    pairs = [time_and_delay(run_at, now) for run_at in column]
    return _or_empty([time for time, _ in pairs]), _or_empty([delay for _, delay in pairs])


def _locate_error(specs: Sequence[JobSpec], first: int) -> InvalidArgumentError | None:
    """The error for the first spec whose payload cannot be encoded, with its position."""
    for place, spec in enumerate(specs, start=first):
        try:
            encode(spec.payload)
        except InvalidArgumentError as error:
            problem = str(error).removeprefix(f"{error.argument}: ")
            return InvalidArgumentError(f"specs[{place}].payload", problem)
    return None


class Added(NamedTuple):
    """What a bulk statement returned, and whether it called our function, which keeps the order."""

    jobs: list[Job]
    is_ours: bool


def restore_order(
    schema: SchemaName, columns: SpecColumns, jobs: Sequence[Job], add: Callable[[SpecColumns], Steps[Added]]
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

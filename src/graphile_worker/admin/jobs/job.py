"""One job: what is known about it, redacted; its neighbours."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ...client.job_status import JobRecord, read_record
from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.inspection import JobDetails, get_job
from ...database.statements.job_filter import JobState
from ...diagnostics.explanation.decision import GONE, explain
from ...diagnostics.explanation.values import Explanation, Tone
from ...history.records import AttemptError, FinishedJob, FinishedState
from ...history.task_reports import Progress
from ...values.schema_name import SchemaName
from ...values.text import how_it_failed
from ..answers import Problem, as_raw, not_found, shared_with
from ..database import Database
from ..security.redact import Redactor
from ..web.show import duration, one_line
from .searching import JobRow, find_these, rows_from

JobViewState = JobState | FinishedState | Literal["gone"]


class FinishedView(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended, if that was kept."""

    id: int
    task_identifier: str
    state: FinishedState
    queue_name: str | None
    key: str | None
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime
    duration: float | None
    pool_id: str | None
    payload: msgspec.Raw | None
    error: str | None
    result: msgspec.Raw | None
    """What the task returned, redacted."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. What only a row in the queue has is None once the job is gone."""

    id: int
    task_identifier: str | None
    state: JobViewState
    queue_name: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    attempts: int | None = None
    max_attempts: int | None = None
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known."""
    last_error: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    key: str | None = None
    flags: list[str] = []
    revision: int | None = None
    locked_by: str | None = None
    locked_at: datetime | None = None
    lane: str | None = None
    """In which it runs; None if its worker has one lane only."""
    failed_at: datetime | None = None
    payload: msgspec.Raw | None = None
    """Redacted. None if it is gone, or longer than 1 MB: then it is a download."""
    is_cancelled: bool = False
    cancel_reason: str | None = None
    progress: Progress | None = None
    history: list[FinishedView] = []
    """The latest first."""
    errors: list[AttemptError] = []
    """Failed attempts, redacted, the latest first."""
    problem: str | None = None
    """Why the history could not be read."""

    @property
    def is_queued(self) -> bool:
        """Whether it is in the queue, waiting, running or failed."""
        return self.revision is not None

    @property
    def tried(self) -> str | None:
        """How many attempts there were."""
        if self.state == "failed":
            return how_it_failed(self.attempts_made, self.max_attempts) or None
        return None if self.attempts is None else f"{self.attempts} of {self.max_attempts}"


MAX_PAYLOAD = 1024 * 1024
"""Characters of a payload that are laid out or sent within an answer; longer ones are a download."""
MAX_ERROR = 256 * 1024
NEIGHBOURS = 5
_PREFIX = re.compile(r".*[:/._|#-]", re.DOTALL)


class Neighbours(msgspec.Struct, frozen=True):
    """Jobs that belong together with one."""

    prefix: str = ""
    by_key: list[JobRow] = []
    before: list[JobRow] = []
    """Of its queue, those that run before it."""
    after: list[JobRow] = []


async def get_record(connection: Connection, schema: SchemaName, job_id: int) -> JobRecord:
    """All that is known; refused if that is nothing, and no such job can ever have been."""
    if not 0 < job_id < 2**63:
        raise not_found(f"job {job_id}")
    return await read_record(connection, schema, job_id)


async def get_view(database: Database, redactor: Redactor, job_id: int) -> JobView:
    """The job for the API."""
    async with database.read() as connection:
        record = await get_record(connection, database.schema, job_id)
        lane = await read_lane(connection, database.schema, record)
    if not record.is_known:
        raise not_found(f"job {job_id}, nor a trace of it")
    return view_of(record, redactor, lane)


async def explanation_of(database: Database, job_id: int) -> Explanation:
    """Why the job does not run."""
    async with database.read() as connection:
        found = await get_job(connection, database.schema, job_id)
        return GONE if found is None else await explain(connection, database.schema, found)


async def read_lane(connection: Connection, schema: SchemaName, record: JobRecord) -> str | None:
    """The lane in which a locked job runs; None if its pool has one lane only, or is not of this package."""
    job = record.job
    if job is None or job.locked_by is None:
        return None
    statement, pool, task = load("admin/lane_of_job", schema), job.locked_by, job.task_identifier
    return await if_readable(connection, lambda: connection.fetchval(statement, pool, task))


def view_of(record: JobRecord, redactor: Redactor, lane: str | None = None) -> JobView:
    """A record as the API shows it."""
    found: dict[str, Any] = {
        "state": record.state,
        "lane": lane,
        "is_cancelled": record.is_cancelled,
        "cancel_reason": redactor.optional_text(record.cancel_reason),
        "progress": _progress(record, redactor),
        "history": [_finished_view(finished, redactor) for finished in record.history],
        "errors": [_attempt(error, redactor) for error in record.errors],
        "problem": record.problem,
    }
    job, finished = record.job, record.history[0] if record.history else None
    if job is not None:
        found["flags"], found["last_error"] = sorted(job.flags or ()), _cut(redactor, job.last_error)
        found["payload"] = raw_payload(job.raw_payload, job.task_identifier, redactor)
        return shared_with(job, JobView, **found)
    if finished is None:
        task = record.errors[0].task_identifier if record.errors else None
        return JobView(id=record.job_id, task_identifier=task, **found)
    if finished.state == "failed":
        found |= {"attempts_made": finished.attempts, "failed_at": finished.finished_at}
    found["flags"], found["last_error"] = sorted(finished.flags), _cut(redactor, finished.error)
    found["payload"] = raw_payload(finished.raw_payload, finished.task_identifier, redactor)
    return shared_with(finished, JobView, id=record.job_id, **found)


def raw_payload(raw: str | None, task: str, redactor: Redactor) -> msgspec.Raw | None:
    """A payload, redacted; None if there is none, or it is too long."""
    return None if raw is None or len(raw) > MAX_PAYLOAD else as_raw(redactor.payload(raw, task))


def _cut(redactor: Redactor, text: str | None) -> str | None:
    return None if text is None else redactor.text(text[:MAX_ERROR])


def _attempt(error: AttemptError, redactor: Redactor) -> AttemptError:
    message, traceback = _cut(redactor, error.message), _cut(redactor, error.traceback)
    return replace(error, message=message, traceback=traceback)


def _finished_view(finished: FinishedJob, redactor: Redactor) -> FinishedView:
    raw = finished.raw_result
    result = None if raw is None or len(raw) > MAX_PAYLOAD else as_raw(redactor.json(raw))
    return shared_with(
        finished, FinishedView,
        id=finished.job_id,
        payload=raw_payload(finished.raw_payload, finished.task_identifier, redactor),
        error=_cut(redactor, finished.error),
        result=result,
    )  # fmt: skip


def _progress(record: JobRecord, redactor: Redactor) -> Progress | None:
    progress = record.progress
    if progress is None:
        return None
    data = progress.data
    if data is not None:
        data = as_raw(redactor.json(msgspec.json.encode(data).decode()))
    return replace(progress, note=redactor.optional_text(progress.note), data=data)


async def payload_of(database: Database, job_id: int) -> tuple[str, str]:
    """The payload as it is, and the task; of a kept job that is gone, too."""
    async with database.read() as connection:
        record = await get_record(connection, database.schema, job_id)
    if record.job is not None:
        return record.job.raw_payload, record.job.task_identifier
    for finished in record.history:
        if finished.raw_payload is not None:
            return finished.raw_payload, finished.task_identifier
    raise Problem(404, f"The payload of job {job_id} is not known", "The job is gone and was not kept.")


async def neighbours(
    connection: Connection, schema: SchemaName, job: JobDetails, redactor: Redactor
) -> Neighbours:
    """Jobs with the same beginning of the key, and those around it in its queue."""
    prefix = ""
    keyed: list[int] = []
    if job.key is not None and (found := _PREFIX.match(job.key)) is not None:
        prefix = found[0]
        rows = await connection.fetch(load("admin/neighbours_by_key", schema), job.key, prefix, NEIGHBOURS)
        keyed = [row["id"] for row in rows]
    before: list[int] = []
    after: list[int] = []
    if job.job_queue_id is not None and job.state in ("ready", "scheduled"):
        rows = await connection.fetch(
            load("admin/neighbours_in_queue", schema),
            job.job_queue_id, job.priority, job.raw_run_at, job.id, NEIGHBOURS,
        )  # fmt: skip
        before = [row["id"] for row in rows if row["is_before"]]
        after = [row["id"] for row in rows if not row["is_before"]]
    ids = [*keyed, *before, *after]
    if not ids:
        return Neighbours(prefix)
    jobs = await find_these(connection, schema, ids)
    known = {row.id: row for row in await rows_from(connection, schema, jobs, redactor)}

    def those(wanted: list[int]) -> list[JobRow]:
        return [known[one] for one in wanted if one in known]

    return Neighbours(prefix, those(keyed), those(before), those(after))


# -- timeline -----------------------------------------------------------------------------------------------


class TimelineStep(msgspec.Struct, frozen=True):
    """One thing that happened, or will."""

    at: datetime
    text: str
    note: str = ""
    tone: Tone | str = ""
    """`bad`, `ok`, `next` for what is to come, or empty."""
    worker: str | None = None


def steps_of(job: JobView, now: datetime) -> list[TimelineStep]:
    """The steps in the order of their times."""
    steps = [*_failures(job), *_finished(job)]
    if job.created_at is not None:
        key = "" if job.key is None else f"key {one_line(job.key, 60)}"
        steps.insert(0, TimelineStep(job.created_at, "Added", key))
    if job.state == "running" and job.locked_at is not None:
        text = f"Locked for attempt {job.attempts}"
        steps.append(TimelineStep(job.locked_at, text, _waited(job), "next", job.locked_by))
    elif job.state in ("ready", "scheduled") and job.run_at is not None and job.attempts is not None:
        steps.append(_next(job, job.run_at, job.attempts, now))
    return sorted(steps, key=lambda step: step.at)


def _failures(job: JobView) -> Iterator[TimelineStep]:
    """Each failed attempt, and its start where the duration is known."""
    for error in job.errors:
        attempt, kind = f"Attempt {error.attempt}", error.error_type or one_line(error.message, 60)
        if error.duration is not None:
            started = error.failed_at - timedelta(seconds=error.duration)
            yield TimelineStep(started, f"{attempt} started", error.version or "", "", error.pool_id)
        end = _after(error.duration) + (", permanently" if error.is_final else "")
        yield TimelineStep(error.failed_at, f"{attempt} failed{end}", kind, "bad")
    if not job.errors and job.state == "failed" and job.failed_at is not None:
        yield TimelineStep(job.failed_at, "Failed permanently", one_line(job.last_error, 60), "bad")


def _finished(job: JobView) -> Iterator[TimelineStep]:
    for finished in job.history:
        if finished.state == "failed" and any(error.is_final for error in job.errors):
            continue
        if finished.started_at is not None and finished.state == "completed":
            text = f"Attempt {finished.attempts} started"
            yield TimelineStep(finished.started_at, text, "", "", finished.pool_id)
        tone = {"completed": "ok", "failed": "bad"}.get(finished.state, "")
        text = f"{finished.state.capitalize()}{_after(finished.duration)}"
        yield TimelineStep(finished.finished_at, text, one_line(finished.error, 60), tone)


def _after(seconds: float | None) -> str:
    return "" if seconds is None else f" after {duration(seconds)}"


def _next(job: JobView, run_at: datetime, attempts: int, now: datetime) -> TimelineStep:
    of = f"{attempts + 1} of {job.max_attempts}"
    word = "Next attempt" if attempts else "First attempt"
    if run_at > now:
        return TimelineStep(run_at, f"{word} due", of, "next")
    return TimelineStep(max(run_at, job.created_at or run_at), f"{word} could have started", of, "next")


def _waited(job: JobView) -> str:
    if job.run_at is None or job.locked_at is None or job.attempts != 1:
        return ""
    ready = max(job.run_at, job.created_at or job.run_at)
    return f"waited {duration(max(0.0, (job.locked_at - ready).total_seconds()))}"


# -- copies -------------------------------------------------------------------------------------------------

LONGEST = 20_000
"""Characters of a payload in such a text."""


def copies_of(job: JobView, payload: str, address: str, schema: str) -> list[tuple[str, str]]:
    """Labels and texts; with the payload as the page shows it, redacted."""
    if len(payload) > LONGEST or job.task_identifier is None:
        return [("curl", _curl(job, address))]
    return [
        ("curl", _curl(job, address)),
        ("Command", _command(job, payload)),
        ("SQL", _sql(job, payload, schema)),
        ("pytest", _test(job, payload)),
    ]


def _curl(job: JobView, address: str) -> str:
    return f'curl -H "Authorization: Bearer $TOKEN" {shlex.quote(f"{address}/api/v1/jobs/{job.id}")}'


def _command(job: JobView, payload: str) -> str:
    parts = ["graphile-worker", "add", job.task_identifier or "", payload]
    if job.queue_name is not None:
        parts += ["--queue", job.queue_name]
    if job.priority:
        parts += ["--priority", str(job.priority)]
    return " ".join(shlex.quote(part) for part in parts)


def _sql(job: JobView, payload: str, schema: str) -> str:
    values = [_literal(job.task_identifier or ""), f"{_literal(payload)}::json"]
    if job.queue_name is not None:
        values.append(f"queue_name => {_literal(job.queue_name)}")
    if job.priority:
        values.append(f"priority => {job.priority}")
    is_plain = re.fullmatch(r"[a-z_][a-z0-9_]*", schema) is not None
    quoted = schema if is_plain else '"' + schema.replace('"', '""') + '"'
    return f"select {quoted}.add_job({', '.join(values)});"


def _literal(text: str) -> str:
    if "\\" in text:
        return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + text.replace("'", "''") + "'"


def _test(job: JobView, payload: str) -> str:
    """A test with the fixtures of the pytest plugin."""
    task = job.task_identifier or "task"
    name = re.sub(r"\W+", "_", task).strip("_").lower() or "task"
    return (
        "import json\n\n\n"
        f"async def test_{name}_with_the_payload_of_job_{job.id}(graphile_worker_utils, run_jobs):\n"
        f"    payload = json.loads({_python(payload)})\n"
        f"    await graphile_worker_utils.add_job({json.dumps(task)}, payload)\n"
        "    (await run_jobs()).check()\n"
    )


def _python(text: str) -> str:
    return "r" + repr(text) if "\\" in text and "'" not in text and not text.endswith("\\") else repr(text)

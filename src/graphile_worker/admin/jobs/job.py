"""One job: what is known about it, redacted; its neighbours."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ...client.job_status import JobRecord, read_record
from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.inspection import JobDetails, get_job
from ...diagnostics.explanation.decision import GONE, explain
from ...diagnostics.explanation.values import Explanation, Tone
from ...history.records import AttemptError, FinishedJob
from ...values.schema_name import SchemaName
from ..answers import Problem, not_found
from ..database import Database
from ..security.redact import Redactor
from ..web.show import one_line
from ..web.times import duration
from . import Attempt, FinishedView, JobRow, JobView, ProgressView, Revealed
from .search import find_these, rows_from

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
    history = [_finished_view(finished, redactor) for finished in record.history]
    errors = [_attempt(error, redactor) for error in record.errors]
    found = {
        "lane": lane,
        "is_cancelled": record.is_cancelled,
        "cancel_reason": redactor.optional_text(record.cancel_reason),
        "progress": _progress(record, redactor),
        "history": history,
        "errors": errors,
        "problem": record.problem,
    }
    if record.job is not None:
        return _of_row(record, record.job, redactor, found)
    return _of_history(record, redactor, found)


def _of_row(record: JobRecord, job: JobDetails, redactor: Redactor, found: dict[str, Any]) -> JobView:
    return JobView(
        id=job.id,
        state=record.state,
        task_identifier=job.task_identifier,
        queue_name=job.queue_name,
        priority=job.priority,
        run_at=job.run_at,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        attempts_made=job.attempts_made,
        last_error=_cut(redactor, job.last_error),
        created_at=job.created_at,
        updated_at=job.updated_at,
        key=job.key,
        flags=sorted(job.flags or ()),
        revision=job.revision,
        locked_by=job.locked_by,
        locked_at=job.locked_at,
        failed_at=job.failed_at,
        payload=raw_payload(job.raw_payload, job.task_identifier, redactor),
        **found,
    )


def _of_history(record: JobRecord, redactor: Redactor, found: dict[str, Any]) -> JobView:
    finished = record.history[0] if record.history else None
    named = finished or (record.errors[0] if record.errors else None)
    task = None if named is None else named.task_identifier
    if finished is None:
        return JobView(id=record.job_id, state=record.state, task_identifier=task, **found)
    return JobView(
        id=record.job_id,
        state=record.state,
        task_identifier=task,
        queue_name=finished.queue_name,
        priority=finished.priority,
        run_at=finished.run_at,
        attempts=finished.attempts,
        max_attempts=finished.max_attempts,
        attempts_made=finished.attempts if finished.state == "failed" else None,
        failed_at=finished.finished_at if finished.state == "failed" else None,
        last_error=_cut(redactor, finished.error),
        created_at=finished.created_at,
        key=finished.key,
        flags=sorted(finished.flags),
        payload=None
        if finished.raw_payload is None
        else raw_payload(finished.raw_payload, finished.task_identifier, redactor),
        **found,
    )


def raw_payload(raw: str, task: str, redactor: Redactor) -> msgspec.Raw | None:
    if len(raw) > MAX_PAYLOAD:
        return None
    return msgspec.Raw(redactor.payload(raw, task).encode("utf-8", "replace"))


def _cut(redactor: Redactor, text: str | None) -> str | None:
    return None if text is None else redactor.text(text[:MAX_ERROR])


def _attempt(error: AttemptError, redactor: Redactor) -> Attempt:
    return Attempt(
        job_id=error.job_id,
        attempt=error.attempt,
        task_identifier=error.task_identifier,
        failed_at=error.failed_at,
        duration=error.duration,
        is_final=error.is_final,
        error_type=error.error_type,
        message=redactor.text(error.message[:MAX_ERROR]),
        traceback=_cut(redactor, error.traceback),
        fingerprint=error.fingerprint,
        pool_id=error.pool_id,
        version=error.version,
    )


def _finished_view(finished: FinishedJob, redactor: Redactor) -> FinishedView:
    result, raw = None, finished.raw_payload
    if finished.raw_result is not None and len(finished.raw_result) <= MAX_PAYLOAD:
        result = msgspec.Raw(redactor.json(finished.raw_result).encode("utf-8", "replace"))
    return FinishedView(
        id=finished.job_id,
        task_identifier=finished.task_identifier,
        state=finished.state,
        queue_name=finished.queue_name,
        key=finished.key,
        priority=finished.priority,
        attempts=finished.attempts,
        max_attempts=finished.max_attempts,
        created_at=finished.created_at,
        run_at=finished.run_at,
        started_at=finished.started_at,
        finished_at=finished.finished_at,
        duration=finished.duration,
        pool_id=finished.pool_id,
        payload=None if raw is None else raw_payload(raw, finished.task_identifier, redactor),
        error=_cut(redactor, finished.error),
        result=result,
    )


def _progress(record: JobRecord, redactor: Redactor) -> ProgressView | None:
    progress = record.progress
    if progress is None:
        return None
    data = progress.data
    if data is not None:
        data = msgspec.Raw(redactor.json(msgspec.json.encode(data).decode()).encode("utf-8", "replace"))
    return ProgressView(
        share=progress.share,
        note=redactor.optional_text(progress.note),
        data=data,
        updated_at=progress.updated_at,
    )


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


def revealed(job_id: int, raw: str) -> Revealed:
    return Revealed(job_id, msgspec.Raw(raw.encode("utf-8", "replace")))


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
    steps: list[TimelineStep] = []
    if job.created_at is not None:
        steps.append(
            TimelineStep(job.created_at, "Added", "" if job.key is None else f"key {one_line(job.key, 60)}")
        )
    steps += _failures(job)
    steps += _finished(job)
    if job.state == "running" and job.locked_at is not None:
        steps.append(
            TimelineStep(
                job.locked_at, f"Locked for attempt {job.attempts}", _waited(job), "next", job.locked_by
            )
        )
    elif job.state in ("ready", "scheduled") and job.run_at is not None and job.attempts is not None:
        steps.append(_next(job, job.run_at, job.attempts, now))
    return sorted(steps, key=lambda step: step.at)


def _failures(job: JobView) -> list[TimelineStep]:
    """Each failed attempt, and its start where the duration is known."""
    steps = []
    for error in job.errors:
        kind = error.error_type or one_line(error.message, 60)
        version = f" · {error.version}" if error.version else ""
        if error.duration is not None:
            started = error.failed_at - timedelta(seconds=error.duration)
            steps.append(
                TimelineStep(
                    started, f"Attempt {error.attempt} started", version.strip(" ·"), "", error.pool_id
                )
            )
        took = f" after {duration(error.duration)}" if error.duration is not None else ""
        final = ", permanently" if error.is_final else ""
        steps.append(
            TimelineStep(error.failed_at, f"Attempt {error.attempt} failed{took}{final}", kind, "bad")
        )
    if not job.errors and job.state == "failed" and job.failed_at is not None:
        steps.append(TimelineStep(job.failed_at, "Failed permanently", one_line(job.last_error, 60), "bad"))
    return steps


def _finished(job: JobView) -> list[TimelineStep]:
    steps = []
    for finished in job.history:
        took = f" after {duration(finished.duration)}" if finished.duration is not None else ""
        tone = {"completed": "ok", "failed": "bad"}.get(finished.state, "")
        if finished.state == "failed" and any(error.is_final for error in job.errors):
            continue
        if finished.started_at is not None and finished.state == "completed":
            steps.append(
                TimelineStep(
                    finished.started_at, f"Attempt {finished.attempts} started", "", "", finished.pool_id
                )
            )
        steps.append(
            TimelineStep(
                finished.finished_at,
                f"{finished.state.capitalize()}{took}",
                one_line(finished.error, 60),
                tone,
            )
        )
    return steps


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

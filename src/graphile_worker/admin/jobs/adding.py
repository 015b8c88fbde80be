"""Adding a job, with a form that has all options; and editing the payload of one that waits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...history.audit import Actor, finalize_snapshot, record, snapshot_jobs
from ...recovery.registry.workers import list_workers, running_tasks
from ...values.job import tags_in
from ...values.job_options import WHOLE_PAYLOAD, JobOption, Kind, from_json, from_text, options_on
from ...values.payload import without_trace
from ...values.spec import JobSpec
from ..answers import Page, Problem, Redirect, not_found
from ..audit.recording import actor_of
from ..database import Database
from ..security.redact import Redactor
from ..tasks.expected import problems_of, read_notes
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import lay_out, typed_time, zone_name
from . import filters, job
from .changing import lock_jobs
from .job import JobView


class JobToAdd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of `NewJob` that is not an option."""

    task: str
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """Any JSON value; `{}` by default."""
    check: bool = True
    """Refuse a payload that the task cannot take, if workers say what it expects."""


JSON_TYPES: dict[Kind, Any] = {
    "text": str,
    "number": int,
    "time": str,
    "period": float | str,
    "names": list[str],
    "switch": bool,
    "keep": bool | float | str,
    "unique": bool | list[str],
}

NewJob: type[JobToAdd] = msgspec.defstruct(  # type: ignore[assignment]
    "NewJob",
    [
        (option.short, (Literal[option.choices] if option.choices else JSON_TYPES[option.kind]) | None, None)
        for option in options_on("dashboard")
    ],
    bases=(JobToAdd,),
    namespace={"__doc__": "A job to add; the options have their short names, as in JSON lines."},
    module=__name__,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)


class JobEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new payload for a job that has not changed since it was read."""

    payload: msgspec.Raw
    revision: int
    check: bool = True
    """Refuse a payload that the task cannot take, if workers say what it expects."""


MAX_PAYLOAD = 256 * 1024
"""Bytes of a payload in a form or in the API."""
MISFIT = "The payload is not what"
"""How the title of that problem begins."""


def checked_payload(text: bytes | str) -> str:
    """A JSON text as it was written, or a problem that says where it is wrong."""
    raw = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if len(raw.encode("utf-8", "replace")) > MAX_PAYLOAD:
        raise Problem(413, "The payload is too long", f"At most {MAX_PAYLOAD:,} bytes are accepted.")
    try:
        json.loads(raw, parse_constant=_refuse_constant)
        raw.encode("utf-8")
    except json.JSONDecodeError as error:
        raise Problem(
            400, "The payload is not JSON", f"Line {error.lineno}, column {error.colno}: {error.msg}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise Problem(400, "The payload is not JSON", str(error)) from None
    return raw


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


async def insert_job(database: Database, actor: Actor, new: JobToAdd, options: Mapping[str, Any]) -> int:
    """Add the job with these options of JobSpec and record it; returns its id."""
    payload = checked_payload(bytes(new.payload))
    spec = JobSpec(new.task, msgspec.Raw(payload.encode()), **options)
    async with database.write() as connection:
        if new.check:
            await _check_fits(connection, database, new.task, payload)
        job = await database.utils.add_job(spec, connection=connection)
        await record(
            connection, database.schema, actor, "add_job", target=f"job {job.id}, {new.task}",
            jobs=1, job_ids=[job.id], details={"task": new.task},
        )  # fmt: skip
    return job.id


def options_in(new: JobToAdd) -> dict[str, Any]:
    """The options of JobSpec that the body of a request sets; an empty text is none."""
    values: dict[str, Any] = {}
    for option in options_on("dashboard"):
        value = getattr(new, option.short)
        try:
            values[option.name] = from_json(option, None if value in ("", []) else value)
        except ValueError as error:
            raise Problem(400, f"{option.short} is not valid", f"{error}.") from None
    return values


async def edit_payload(database: Database, actor: Actor, job_id: int, edit: JobEdit) -> None:
    """Replace the payload of a job that is not running and has not changed since it was read."""
    payload, schema = checked_payload(bytes(edit.payload)), database.schema
    async with database.write() as connection:
        if edit.check and (current := await database.utils.jobs.get(job_id, connection=connection)):
            await _check_fits(connection, database, current.task_identifier, payload)
        task = await _lock_unchanged(connection, database, job_id, edit.revision)
        audit_id = await record(
            connection, schema, actor, "edit_payload", target=f"job {job_id}, {task}", jobs=1,
            job_ids=[job_id], details={"task": task, "revision": edit.revision},
        )  # fmt: skip
        if audit_id is not None:
            await snapshot_jobs(connection, schema, audit_id, [job_id])
        statement = load("admin/edit_payload", schema)
        if await connection.fetchval(statement, job_id, edit.revision, payload) is None:
            raise _changed("It was changed meanwhile", {})
        if audit_id is not None:
            await finalize_snapshot(connection, schema, audit_id, [job_id], [job_id])


async def _check_fits(connection: Connection, database: Database, task: str, payload: str) -> None:
    """Refuse a payload that the task cannot take, as far as workers say what it expects."""
    problems = problems_of(await read_notes(connection, database.schema, task, Redactor()), payload)
    if problems:
        raise Problem(400, f"{MISFIT} {task[:80]} expects", " ".join(problems))


async def _lock_unchanged(connection: Connection, database: Database, job_id: int, revision: int) -> str:
    """Lock a job that is not running and has this revision; returns its task."""
    locked, busy = await lock_jobs(connection, database.schema, [job_id])
    if job_id in busy:
        raise _changed("A worker or another transaction has locked its row at the moment", {})
    before = await database.utils.jobs.get(job_id, connection=connection)
    if job_id not in locked or before is None:
        raise not_found(f"job {job_id}: it has completed, or was deleted")
    if before.locked_at is not None:
        raise _changed("It is running", {"locked_by": before.locked_by})
    if before.revision != revision:
        raise _changed("It was changed meanwhile", {"revision": before.revision})
    return before.task_identifier


def _changed(why: str, current: dict[str, Any]) -> Problem:
    return Problem(
        409, f"The payload was not changed: {why[0].lower()}{why[1:]}",
        "Read the job again, then decide.", current=current,
    )  # fmt: skip


async def registered_tasks(database: Database, connection: Connection) -> tuple[list[str], bool]:
    """Tasks for the form, and whether workers that run now have them; otherwise those of earlier ones.

    Names that someone once added a job for are not among them, because they may be misspelt.
    """

    async def read() -> list[str]:
        workers = await list_workers(connection, database.schema)
        return sorted((await running_tasks(connection, database.schema, workers)).tasks)

    if running := await if_readable(connection, read):
        return running, True
    statement = load("names/registered_task_names", database.schema)
    rows = await if_readable(connection, lambda: connection.fetch(statement))
    return sorted(row["identifier"] for row in rows or ()), False


# -- the form ------------------------------------------------------------------------------------------------

Text = Annotated[str, msgspec.Meta(max_length=600)]
HINTS = {
    "queue": "Jobs of one queue run one after another.",
    "run_at": "In {zone}; empty for now.",
    "priority": "Lower numbers run first; 0 by default.",
    "max_attempts": "25 by default.",
    "key": "A unique name. A waiting job with the same key is replaced.",
    "unique": f"Names of members, separated by spaces; {WHOLE_PAYLOAD} for the whole payload.",
    "tags": "Separated by spaces.",
    "flags": "Separated by spaces. A worker skips jobs with a flag that it forbids.",
    "timeout": "Of one attempt, such as 30s or 5m.",
    "expires": "The job is deleted unless it starts within this time, such as 2h.",
    "keep": "yes, or for how long, such as 30d.",
}
"""What to write into a field, if the help of the option does not say it."""
BOUNDS = {"priority": (-32768, 32767), "max_attempts": (1, 32767)}


class NewJobQuery(msgspec.Struct, kw_only=True):
    """What to fill in."""

    job: int | None = None
    """Another job."""
    task: Text = ""
    queue: Text = ""


class JobForm(msgspec.Struct, kw_only=True):
    """The part of `NewJobForm` that is not an option."""

    task: Text = ""
    payload: str = "{}"
    anyway: Literal["", "yes"] = ""
    """Add it although the payload is not what the task expects."""


NewJobForm: type[JobForm] = msgspec.defstruct(  # type: ignore[assignment]
    "NewJobForm",
    [(option.short, Text, "") for option in options_on("dashboard")],
    bases=(JobForm,),
    namespace={"__doc__": "The fields as they were sent."},
    module=__name__,
    kw_only=True,
)


async def form_page(call: Call, asked: NewJobQuery) -> Page:
    form = _filled(task=asked.task, queue=asked.queue)
    if asked.job is not None:
        form = await _like(call, asked.job)
    return await _page(call, form)


async def _like(call: Call, job_id: int) -> JobForm:
    """The values of another job, without its key. Its payload as the person may see it."""
    view = await job.get_view(call.database, call.redactor, job_id)
    payload = "{}" if view.payload is None else lay_out(without_trace(bytes(view.payload).decode())).text
    return _filled(
        task=view.task_identifier or "",
        payload=payload,
        queue=view.queue_name or "",
        max_attempts="" if view.max_attempts is None else str(view.max_attempts),
        priority=str(view.priority) if view.priority else "",
        tags=" ".join(tags_in(view.flags)),
        flags=" ".join(flag for flag in view.flags if not flag.startswith("py:")),
    )


def _filled(**fields: str) -> JobForm:
    make: Any = NewJobForm
    form: JobForm = make(**fields)
    return form


async def _page(call: Call, form: JobForm, problem: Problem | None = None) -> Page:
    async with call.database.read() as connection:
        tasks, are_running = await registered_tasks(call.database, connection)
        queues = await filters.names(connection, call.database.schema, "queue", most=100)
        notes = await read_notes(connection, call.database.schema, form.task.strip(), call.redactor)
    values = {
        "form": form, "problem": problem, "tasks": tasks, "fields": list(_fields(call, form, queues)),
        "is_unknown": bool(form.task and tasks and form.task not in tasks), "are_running": are_running,
        "has_redacted": "[redacted]" in form.payload, "notes": notes,
        "is_misfit": problem is not None and problem.title.startswith(MISFIT),
    }  # fmt: skip
    status = 200 if problem is None else problem.status
    return Page("new_job.html", "Add a job", here="jobs", values=values, status=status)


def _fields(call: Call, form: JobForm, queues: list[str]) -> Iterator[dict[str, Any]]:
    """What the form shows of each option."""
    for option in options_on("dashboard"):
        least, most = BOUNDS.get(option.name, ("", ""))
        types = {"number": "number", "run_at": "datetime-local"}
        yield {
            "name": option.short, "label": option.label, "value": getattr(form, option.short),
            "hint": HINTS.get(option.short, option.help).format(zone=zone_name(call.zone)),
            "type": types.get(option.name) or types.get(option.kind, "text"), "min": least, "max": most,
            "maxlength": option.longest or "", "list": queues if option.name == "queue_name" else [],
            "choices": _choices(option),
        }  # fmt: skip


def _choices(option: JobOption) -> list[tuple[str, str]] | None:
    if option.kind == "switch":
        return [("", "no"), ("yes", "yes")]
    if option.choices:
        return [("", f"{option.default} (the default)"), *((each, each) for each in option.choices)]
    return None


async def add_job(call: Call, new: JobToAdd) -> JobView:
    job_id = await insert_job(call.database, actor_of(call), new, options_in(new))
    return await job.get_view(call.database, call.redactor, job_id)


async def add_from_form(call: Call, form: JobForm) -> Page | Redirect:
    try:
        if not form.task.strip():
            raise Problem(400, "The task is missing", "Every job has one.")
        payload = msgspec.Raw(checked_payload(form.payload or "{}").encode())
        new = JobToAdd(task=form.task.strip(), payload=payload, check=not form.anyway)
        job_id = await insert_job(call.database, actor_of(call), new, _options(call, form))
    except Problem as problem:
        if problem.status not in (400, 409, 413):
            raise
        return await _page(call, form, problem)
    return Redirect(f"/jobs/{job_id}", notice=f"Job {job_id} was added.")


def _options(call: Call, form: JobForm) -> dict[str, Any]:
    """The options of JobSpec that the fields set."""
    values: dict[str, Any] = {}
    for option in options_on("dashboard"):
        text = getattr(form, option.short).strip()
        if not text:
            continue
        if option.name == "run_at":
            values[option.name] = typed_time(text, call.zone)
            continue
        try:
            values[option.name] = from_text(option, text)
        except ValueError as error:
            raise Problem(400, f"{option.label} is not valid", f"{error}.") from None
    return values


ROUTES = [
    Route("/jobs/new", form_page, "jobs.add", "Add a job"),
    Route("/jobs/new", add_from_form, "jobs.add", "Add a job", method="POST", body=NewJobForm),
    Route(
        f"{API}/jobs", add_job, "jobs.add", "Add a job", method="POST", body=NewJob, answer=JobView,
        status=201,
    ),
]  # fmt: skip

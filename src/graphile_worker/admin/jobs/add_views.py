"""Add a job: a form with all options, filled in from another job if asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from ...values.job import tags_in
from ...values.job_options import WHOLE_PAYLOAD, JobOption, from_text, options_on
from ...values.payload import without_trace
from ..answers import Page, Problem, Redirect
from ..audit.recording import actor_of
from ..tasks.expected import read_notes
from ..web.call import Call
from ..web.routes import Route
from ..web.show import lay_out
from ..web.times import zone_name
from . import JobToAdd, adding, filters, job
from .action_views import local_time
from .api import redactor_of

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


async def form_page(call: Call) -> Page:
    asked = call.query(NewJobQuery)
    form = _filled(task=asked.task, queue=asked.queue)
    if asked.job is not None:
        form = await _like(call, asked.job)
    return await _page(call, form)


async def _like(call: Call, job_id: int) -> JobForm:
    """The values of another job, without its key. Its payload as the person may see it."""
    view = await job.get_view(call.database, redactor_of(call), job_id)
    payload = "{}" if view.payload is None else lay_out(without_trace(bytes(view.payload).decode())).text
    return _filled(
        task=view.task or "",
        payload=payload,
        queue=view.queue or "",
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
        tasks, are_running = await adding.registered_tasks(call.database, connection)
        queues = await filters.names(connection, call.database.schema, "queue", most=100)
        notes = await read_notes(connection, call.database.schema, form.task.strip(), redactor_of(call))
    values = {
        "form": form, "problem": problem, "tasks": tasks, "fields": list(_fields(call, form, queues)),
        "is_unknown": bool(form.task and tasks and form.task not in tasks), "are_running": are_running,
        "has_redacted": "[redacted]" in form.payload, "notes": notes,
        "is_misfit": problem is not None and problem.title.startswith(adding.MISFIT),
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


async def add_job(call: Call) -> Page | Redirect:
    form: JobForm = await call.form(NewJobForm)
    try:
        if not form.task.strip():
            raise Problem(400, "The task is missing", "Every job has one.")
        payload = msgspec.Raw(adding.checked_payload(form.payload or "{}").encode())
        new = JobToAdd(task=form.task.strip(), payload=payload, check=not form.anyway)
        added = await adding.add_job(call.database, actor_of(call), new, _options(call, form))
    except Problem as problem:
        if problem.status not in (400, 409, 413):
            raise
        return await _page(call, form, problem)
    return Redirect(f"/jobs/{added.id}", notice=f"Job {added.id} was added.")


def _options(call: Call, form: JobForm) -> dict[str, Any]:
    """The options of JobSpec that the fields set."""
    values: dict[str, Any] = {}
    for option in options_on("dashboard"):
        text = getattr(form, option.short).strip()
        if not text:
            continue
        if option.name == "run_at":
            values[option.name] = local_time(call, text)
            continue
        try:
            values[option.name] = from_text(option, text)
        except ValueError as error:
            raise Problem(400, f"{option.label} is not valid", f"{error}.") from None
    return values


ROUTES = [
    Route(
        method="GET", path="/jobs/new", handler=form_page, permission="jobs.add", query=NewJobQuery,
        summary="Add a job",
    ),
    Route(
        method="POST", path="/jobs/new", handler=add_job, permission="jobs.add", body=NewJobForm,
        summary="Add a job",
    ),
]  # fmt: skip

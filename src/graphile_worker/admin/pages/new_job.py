"""Add a job: a form with all options, filled in from another job if asked."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ...values.payload import without_trace
from ..answers import Page, Problem, Redirect
from ..api.jobs import redactor_of
from ..audit import actor_of
from ..call import Call
from ..models.job import NewJob
from ..routes import Route
from ..service import add, completion, job
from ..service.expected import read_notes
from ..show import lay_out
from .actions import local_time

MODES = (
    ("", "replace (the default)"),
    ("preserve_run_at", "preserve_run_at"),
    ("unsafe_dedupe", "unsafe_dedupe"),
)
Text = Annotated[str, msgspec.Meta(max_length=600)]


class NewJobQuery(msgspec.Struct, kw_only=True):
    """What to fill in."""

    job: int | None = None
    """Another job."""
    task: Text = ""
    queue: Text = ""


class NewJobForm(msgspec.Struct, kw_only=True):
    """The fields as they were sent."""

    task: Text = ""
    payload: str = "{}"
    queue: Text = ""
    run_at: Text = ""
    max_attempts: Text = ""
    job_key: Text = ""
    job_key_mode: Literal["", "replace", "preserve_run_at", "unsafe_dedupe"] = ""
    priority: Text = ""
    flags: Text = ""
    anyway: Literal["", "yes"] = ""
    """Add it although the payload is not what the task expects."""


async def form_page(call: Call) -> Page:
    asked = call.query(NewJobQuery)
    form = NewJobForm(task=asked.task, queue=asked.queue)
    if asked.job is not None:
        form = await _like(call, asked.job)
    return await _page(call, form)


async def _like(call: Call, job_id: int) -> NewJobForm:
    """The values of another job, without its key. Its payload as the person may see it."""
    view = await job.get_view(call.database, redactor_of(call), job_id)
    payload = "{}" if view.payload is None else lay_out(without_trace(bytes(view.payload).decode())).text
    return NewJobForm(
        task=view.task or "",
        payload=payload,
        queue=view.queue or "",
        max_attempts="" if view.max_attempts is None else str(view.max_attempts),
        priority=str(view.priority) if view.priority else "",
        flags=" ".join(flag for flag in view.flags if not flag.startswith("py:")),
    )


async def _page(call: Call, form: NewJobForm, problem: Problem | None = None) -> Page:
    async with call.database.read() as connection:
        tasks, are_running = await add.registered_tasks(call.database, connection)
        queues = await completion.names(connection, call.database.schema, "queue", most=100)
        notes = await read_notes(connection, call.database.schema, form.task.strip())
    values = {
        "form": form, "problem": problem, "tasks": tasks, "queues": queues, "modes": MODES,
        "is_unknown": bool(form.task and tasks and form.task not in tasks), "are_running": are_running,
        "has_redacted": "[redacted]" in form.payload, "notes": notes,
        "is_misfit": problem is not None and problem.title.startswith(add.MISFIT),
    }  # fmt: skip
    status = 200 if problem is None else problem.status
    return Page("new_job.html", "Add a job", here="jobs", values=values, status=status)


async def add_job(call: Call) -> Page | Redirect:
    form = await call.form(NewJobForm)
    try:
        added = await add.add_job(call.database, actor_of(call), _new(call, form))
    except Problem as problem:
        if problem.status not in (400, 409, 413):
            raise
        return await _page(call, form, problem)
    return Redirect(f"/jobs/{added.id}", notice=f"Job {added.id} was added.")


def _new(call: Call, form: NewJobForm) -> NewJob:
    if not form.task.strip():
        raise Problem(400, "The task is missing", "Every job has one.")
    return NewJob(
        task=form.task.strip(),
        payload=msgspec.Raw(add.checked_payload(form.payload or "{}").encode()),
        queue=form.queue or None,
        run_at=local_time(call, form.run_at.strip()),
        max_attempts=_number("Attempts", form.max_attempts),
        job_key=form.job_key or None,
        job_key_mode=form.job_key_mode or None,
        priority=_number("The priority", form.priority),
        flags=form.flags.split() or None,
        check=not form.anyway,
    )


def _number(what: str, text: str) -> int | None:
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise Problem(400, f"{what} must be a whole number", f"It is {text[:40]!r}.") from None


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

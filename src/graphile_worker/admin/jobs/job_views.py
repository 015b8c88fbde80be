"""Job: one job with its explanation, payload, error, attempts and neighbours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

import msgspec

from ...client.job_status import JobRecord
from ...diagnostics.explanation.decision import explain
from ...diagnostics.explanation.values import Explanation, Remedy
from ...values.payload import traces_in, without_trace
from ..answers import Page, Problem, Redirect
from ..audit import queries
from ..audit import recording as audit_records
from ..audit.recording import actor_of
from ..security.identity import Permission
from ..tasks.expected import read_notes
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import lay_out, lay_out_error, one_line, visible
from . import JobEdit, JobView, adding, job
from .api import redactor_of
from .job_api import download, get_stack, job_id_of

MAX_TRACES = 20
IN_HEAD = ("retry", "run_now", "cancel")
"""Actions that have buttons at the top of the page."""
REMEDIES: dict[str, tuple[str, Permission]] = {
    "resume_queue": ("/queues/resume", "queues.pause"),
    "resume_task": ("/tasks/resume", "tasks.pause"),
    "resume_all": ("/tasks/resume", "tasks.pause"),
    "unlock_queue": ("/queues/unlock", "workers.unlock"),
    "unlock_worker": ("/workers/unlock", "workers.unlock"),
}
"""Where the actions of an explanation go, and what they need."""


class EditForm(msgspec.Struct, kw_only=True):
    payload: str = ""
    revision: int
    anyway: Literal["", "yes"] = ""


class RevealGrant(msgspec.Struct, frozen=True):
    """What the address of a job's page says after a reveal: who may see the payload as it is, until when."""

    who: str
    job_id: int
    database: str
    until: float


REVEALED_FOR = 300.0
"""Seconds for which a page that was revealed can be loaded again, and refreshes itself."""


async def job_page(call: Call) -> Page:
    job_id = job_id_of(call)
    text = call.request.query_params.get("revealed", "")
    found = call.app.signer.read("revealed", text, RevealGrant) if text else None
    asked = (call.identity.name, job_id, call.database.name)
    if found is None or (found.who, found.job_id, found.database) != asked or found.until < time.time():
        return await _page(call)
    call.require("payload.read")
    raw, _ = await job.payload_of(call.database, job_id)
    return await _page(call, revealed=raw)


async def reveal(call: Call) -> Redirect:
    """To the same page with the payload as it is; recorded."""
    job_id = job_id_of(call)
    _, task = await job.payload_of(call.database, job_id)
    await audit_records.record_alone(
        call.database,
        actor_of(call),
        "reveal_payload",
        target=f"job {job_id}, {task}",
        details={"job": job_id},
    )
    grant = RevealGrant(call.identity.name, job_id, call.database.name, time.time() + REVEALED_FOR)
    return Redirect(f"/jobs/{job_id}?revealed={call.app.signer.sign('revealed', grant)}")


async def _page(call: Call, revealed: str | None = None) -> Page:
    job_id, redactor, schema = job_id_of(call), redactor_of(call), call.database.schema
    async with call.database.read() as connection:
        record = await job.get_record(connection, schema, job_id)
        explanation, near = None, job.Neighbours()
        if record.job is not None:
            explanation = await explain(connection, schema, record.job)
            near = await job.neighbours(connection, schema, record.job, redactor)
        view = job.view_of(record, redactor, await job.read_lane(connection, schema, record))
        notes = await read_notes(connection, schema, view.task)
        entries = await queries.of_job(call.database, connection, job_id) if call.may("audit.read") else []
    if not record.is_known and not entries:
        raise Problem(
            404, f"There is no job {job_id}, and nothing is known of one",
            "Completed jobs are deleted, unless their task keeps them.",
        )  # fmt: skip
    payload = None if view.payload is None else bytes(view.payload).decode()
    shown = revealed if revealed is not None else payload
    traces = [] if shown is None else traces_in(shown)
    values = {
        "job": view, "explanation": explanation, "near": near, "entries": entries,
        "payload": None if shown is None else lay_out(without_trace(shown)),
        "traces": traces[:MAX_TRACES], "more_traces": len(traces[MAX_TRACES:]),
        "is_revealed": revealed is not None,
        "is_redacted": revealed is None and _is_redacted(record, payload),
        "errors": _errors(view), "steps": job.steps_of(view, datetime.now(UTC)),
        "copies": job.copies_of(view, without_trace(payload or "{}"), _address(call), schema.name),
        "links": links_of(call, view, traces), "remedies": _remedies(call, explanation, view),
        "one_line": one_line, "visible": visible, "words_for": queries.words_for,
        "result": _result(view), "headline": _headline(explanation), "notes": notes,
    }  # fmt: skip
    return Page("job.html", f"Job {job_id}", here="jobs", values=values)


def _headline(explanation: Explanation | None) -> str:
    """The explanation as the end of "Why it is not running: …"."""
    if explanation is None or explanation.kind.startswith("running") or explanation.kind == "prefetched":
        return "" if explanation is None else explanation.headline
    text = explanation.headline
    return text if explanation.kind == "held" else text[0].lower() + text[1:]  # that begins with a name


def _is_redacted(record: JobRecord, shown: str | None) -> bool:
    """Whether the payload differs from what is shown, so that there is something to reveal."""
    raw = record.job.raw_payload if record.job is not None else None
    for finished in record.history if raw is None else ():
        raw = raw or finished.raw_payload
    return raw is not None and shown is not None and raw != shown


def _errors(view: JobView) -> list[dict[str, object]]:
    """The errors to show, the latest first, laid out; the newest from the row if the history has none."""
    found: list[dict[str, object]] = [
        {
            "title": f"Attempt {error.attempt}",
            "at": error.failed_at,
            "text": error.traceback or error.message,
            "frames": lay_out_error(error.traceback or error.message),
            "fingerprint": error.fingerprint,
            "worker": error.worker,
        }
        for error in view.failed_attempts[:20]
    ]
    if not found and view.last_error:
        found = [
            {
                "title": "Last error", "at": view.failed_at, "text": view.last_error,
                "frames": lay_out_error(view.last_error), "fingerprint": "", "worker": None,
            }
        ]  # fmt: skip
    return found


def _result(view: JobView) -> object:
    for finished in view.history:
        if finished.result is not None:
            return lay_out(bytes(finished.result).decode())
    return None


def _address(call: Call) -> str:
    return str(call.request.base_url).rstrip("/")


def links_of(call: Call, view: JobView, traces: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """The links of `job_links`, with the values of the job; only http and https.

    A link to a trace is shown for jobs that have one.
    """
    values = {
        "job_id": str(view.id), "task": view.task or "", "queue": view.queue or "", "key": view.key or "",
    }  # fmt: skip
    found = []
    if traces:
        values["trace_id"] = traces[0]["trace_id"]
    for label, pattern in call.app.settings.job_links.items():
        if "{trace_id}" in pattern and not traces:
            continue
        address = pattern
        for name, value in values.items():
            address = address.replace(f"{{{name}}}", quote(value, safe=""))
        if address.startswith(("https://", "http://")):
            found.append((label, address))
    return found


def _remedies(call: Call, explanation: Explanation | None, view: JobView) -> list[dict[str, object]]:
    """What helps, as buttons that the person may press and links."""
    found: list[dict[str, object]] = []
    for remedy in explanation.remedies if explanation is not None else ():
        if remedy.page:
            found.append({"label": remedy.label, "href": _page_of(call, remedy)})
            continue
        if remedy.action in IN_HEAD:
            continue
        path, permission = REMEDIES[remedy.action]
        if call.may(permission) and not call.database.is_read_only:
            found.append({"label": remedy.label, "path": path, "fields": _fields(remedy, view)})
    return found


def _page_of(call: Call, remedy: Remedy) -> str:
    return call.url(remedy.page, name=remedy.name or None)


def _fields(remedy: Remedy, view: JobView) -> dict[str, object]:
    back: dict[str, object] = {"back": f"/jobs/{view.id}"}
    name = "id" if remedy.action == "unlock_worker" else "name"
    return back if remedy.action == "resume_all" else {name: remedy.name, **back}


async def edit_page(call: Call) -> Page:
    """The form to edit a payload. It shows the payload as it is, so it needs the right to see it."""
    call.require("payload.read")
    job_id = job_id_of(call)
    async with call.database.read() as connection:
        record = await job.get_record(connection, call.database.schema, job_id)
    if record.job is None:
        raise Problem(404, f"Job {job_id} is not in the queue", "Only jobs that wait can be edited.")
    raw = record.job.raw_payload
    if len(raw) > adding.MAX_PAYLOAD:
        raise Problem(
            413,
            "The payload is too long for the form",
            "Use PATCH of the API, or SQL, for payloads above 256 KB.",
        )
    if call.request.method == "GET":
        await audit_records.record_alone(
            call.database, actor_of(call), "reveal_payload", target=f"job {job_id}, to edit it",
            details={"job": job_id},
        )  # fmt: skip
    text = lay_out(raw).text if len(raw) < 60_000 else raw
    return await _edit_form(call, job_id, text, record.job.revision)


async def _edit_form(
    call: Call, job_id: int, text: str, revision: int, problem: Problem | None = None
) -> Page:
    async with call.database.read() as connection:
        current = await call.database.utils.jobs.get(job_id, connection=connection)
        task = None if current is None else current.task_identifier
        notes = await read_notes(connection, call.database.schema, task)
    values = {
        "job_id": job_id, "text": text, "revision": revision, "problem": problem, "notes": notes,
        "is_misfit": problem is not None and problem.title.startswith(adding.MISFIT),
    }  # fmt: skip
    status = 200 if problem is None else problem.status
    return Page("edit_job.html", f"Edit job {job_id}", here="jobs", values=values, status=status)


async def edit(call: Call) -> Page | Redirect:
    job_id = job_id_of(call)
    form = await call.form(EditForm)
    change = JobEdit(
        payload=msgspec.Raw(form.payload.encode("utf-8", "replace")),
        revision=form.revision,
        check=not form.anyway,
    )
    try:
        await adding.edit_payload(call.database, actor_of(call), job_id, change)
    except Problem as problem:
        if problem.status not in (400, 409, 413):
            raise
        return await _edit_form(call, job_id, form.payload, form.revision, problem)
    return Redirect(f"/jobs/{job_id}", notice=f"The payload of job {job_id} was changed.")


async def stack_page(call: Call) -> Page:
    """Where a running job is now."""
    found = await get_stack(call)
    values = {"found": found, "frames": lay_out_error(found.stack)}
    return Page("stack.html", f"Stack of job {found.id}", here="jobs", values=values)


ONE = "/jobs/{id:int}"
ROUTES = [
    Route(
        method="GET", path=ONE, handler=job_page, permission="jobs.read", summary="Job",
        json_of=f"{API}/jobs/{{id:int}}",
    ),
    Route(
        method="POST", path=f"{ONE}/reveal", handler=reveal, permission="payload.read",
        summary="Job with its payload as it is", changes_nothing=True,
    ),
    Route(
        method="GET", path=f"{ONE}/payload", handler=download, permission="jobs.read",
        summary="The payload of a job as a file",
    ),
    Route(
        method="GET", path=f"{ONE}/edit", handler=edit_page, permission="jobs.edit", summary="Edit a payload",
    ),
    Route(
        method="POST", path=f"{ONE}/edit", handler=edit, permission="jobs.edit", body=EditForm,
        summary="Replace a payload",
    ),
    Route(
        method="POST", path=f"{ONE}/stack", handler=stack_page, permission="jobs.read",
        summary="Where a running job is now",
    ),
]  # fmt: skip

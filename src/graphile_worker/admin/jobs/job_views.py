"""One job: its page, its payload, its stack; and actions on jobs, with a question where one is due."""

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
from ...errors import StackUnavailableError
from ...history.records import AttemptError
from ...values.payload import traces_in, without_trace
from ..answers import Download, Page, Problem, Redirect, as_raw, confirmation
from ..audit import queries, recording
from ..audit.recording import actor_of
from ..database import REQUESTS
from ..security.identity import PERMISSION_FOR, Permission
from ..tasks.expected import read_notes
from ..web.call import Call, return_url
from ..web.routes import API, Route
from ..web.show import instant, lay_out, lay_out_error, one_line, visible, words_for, zone_name
from . import adding, changing, job
from .adding import JobEdit
from .changing import ACTIONS, ANY_ACTION, ActionAnswer, ActionRequest
from .job import JobView


class Revealed(msgspec.Struct, frozen=True):
    """A payload without redaction."""

    id: int
    payload: msgspec.Raw


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


class FailedAttempts(msgspec.Struct, frozen=True):
    """Failed attempts, the latest first."""

    items: list[AttemptError]


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running job is: the calls it is in, the outermost first."""

    id: int
    worker: str
    kind: str
    """`coroutine` waits at the last line, `thread` runs it."""
    stack: str
    running_for: float | None
    place: str | None = None
    """Where an executor runs the job, such as `process 4711`; null for the worker itself."""


def job_id_of(call: Call) -> int:
    return int(call.path_values["id"])


class EditForm(msgspec.Struct, kw_only=True):
    """A new payload, from the form."""

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


async def get_job(call: Call) -> Page | JobView:
    if call.is_api:
        return await _view(call)
    job_id = job_id_of(call)
    text = call.request.query_params.get("revealed", "")
    found = call.app.signer.read("revealed", text, RevealGrant) if text else None
    asked = (call.identity.name, job_id, call.database.name)
    if found is None or (found.who, found.job_id, found.database) != asked or found.until < time.time():
        return await _page(call)
    call.require("payload.read")
    raw, _ = await job.payload_of(call.database, job_id)
    return await _page(call, revealed=raw)


async def _view(call: Call) -> JobView:
    return await job.get_view(call.database, call.redactor, job_id_of(call))


async def list_attempts(call: Call) -> FailedAttempts:
    return FailedAttempts((await _view(call)).errors)


async def get_explanation(call: Call) -> Explanation:
    return await job.explanation_of(call.database, (await _view(call)).id)


async def reveal(call: Call) -> Redirect | Revealed:
    """The payload as it is; recorded. A page leads to itself, with a grant to load it again for a while."""
    job_id = job_id_of(call)
    raw, task = await job.payload_of(call.database, job_id)
    await recording.record_alone(
        call.database, actor_of(call), "reveal_payload", target=f"job {job_id}, {task}",
        details={"job": job_id},
    )  # fmt: skip
    if call.is_api:
        return Revealed(job_id, as_raw(raw))
    grant = RevealGrant(call.identity.name, job_id, call.database.name, time.time() + REVEALED_FOR)
    return Redirect(f"/jobs/{job_id}?revealed={call.app.signer.sign('revealed', grant)}")


async def download(call: Call) -> Download:
    """The payload as a file, redacted."""
    job_id = job_id_of(call)
    raw, task = await job.payload_of(call.database, job_id)
    content = call.redactor.payload(raw, task).encode("utf-8", "replace")
    return Download(content, f"job-{job_id}.json", "application/json")


async def _page(call: Call, revealed: str | None = None) -> Page:
    job_id, redactor, schema = job_id_of(call), call.redactor, call.database.schema
    async with call.database.read() as connection:
        record = await job.get_record(connection, schema, job_id)
        explanation, near = None, job.Neighbours()
        if record.job is not None:
            explanation = await explain(connection, schema, record.job)
            near = await job.neighbours(connection, schema, record.job, redactor)
        view = job.view_of(record, redactor, await job.read_lane(connection, schema, record))
        notes = await read_notes(connection, schema, view.task_identifier, redactor)
        entries = await queries.of_job(call.database, connection, job_id) if call.may("audit.read") else []
    if not record.is_known and not entries:
        raise Problem(
            404, f"There is no job {job_id}, and no record of one",
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
        "one_line": one_line, "visible": visible, "words_for": words_for,
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
            "worker": error.pool_id,
        }
        for error in view.errors[:20]
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
        "job_id": str(view.id), "task": view.task_identifier or "", "queue": view.queue_name or "",
        "key": view.key or "",
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
        await recording.record_alone(
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
        notes = await read_notes(connection, call.database.schema, task, call.redactor)
    values = {
        "job_id": job_id, "text": text, "revision": revision, "problem": problem, "notes": notes,
        "is_misfit": problem is not None and problem.title.startswith(adding.MISFIT),
    }  # fmt: skip
    status = 200 if problem is None else problem.status
    return Page("edit_job.html", f"Edit job {job_id}", here="jobs", values=values, status=status)


async def edit(call: Call, change: JobEdit) -> JobView:
    await adding.edit_payload(call.database, actor_of(call), job_id_of(call), change)
    return await _view(call)


async def edit_from_form(call: Call, form: EditForm) -> Page | Redirect:
    job_id = job_id_of(call)
    change = JobEdit(payload=as_raw(form.payload), revision=form.revision, check=not form.anyway)
    try:
        await adding.edit_payload(call.database, actor_of(call), job_id, change)
    except Problem as problem:
        if problem.status not in (400, 409, 413):
            raise
        return await _edit_form(call, job_id, form.payload, form.revision, problem)
    return Redirect(f"/jobs/{job_id}", notice=f"The payload of job {job_id} was changed.")


async def get_stack(call: Call) -> Page:
    """Where a running job is now. Its worker is asked; it answers within seconds, or says nothing."""
    await call.database.open()
    try:
        found = await call.database.utils.jobs.get_stack(job_id_of(call))
    except StackUnavailableError as error:
        raise Problem(409, "The stack is unavailable", str(error)) from None
    stack = Stack(
        id=found.job_id, worker=found.worker_id, kind=found.kind, running_for=found.running_for,
        stack=call.redactor.text(found.stack), place=found.place,
    )  # fmt: skip
    values = {"found": stack, "frames": lay_out_error(stack.stack)}
    return Page("stack.html", f"Stack of job {stack.id}", here="jobs", values=values, answer=stack)


# -- actions ------------------------------------------------------------------------------------------------

FEW = 20
"""Jobs that an action may change without a question, if it needs none."""
MOST_ANNOUNCED = 20


async def ask(call: Call, wanted: ActionRequest) -> Page:
    """The question, for links."""
    call.require(PERMISSION_FOR[wanted.action])
    return _question(call, wanted)


async def act(call: Call, wanted: ActionRequest) -> Page | Redirect:
    call.require(PERMISSION_FOR[wanted.action])
    if not wanted.ids:
        if call.is_api:
            raise Problem(400, "No job is selected", "Give the ids of one to 200 jobs.")
        return Redirect(_back(call, wanted), "No job is selected.")
    is_small = ACTIONS[wanted.action].is_at_once and len(wanted.ids) <= FEW
    if not is_small and not await call.is_confirmed():
        return _question(call, wanted)
    may_delete = call.may("jobs.delete")
    answer = await changing.act(call.database, actor_of(call), wanted, may_delete=may_delete)
    if answer.changed:
        jobs = [f"job:{job_id}" for job_id in answer.changed[:MOST_ANNOUNCED]]
        call.hub.publish("jobs", "failures", "audit", *jobs)
    return Redirect(_back(call, wanted, answer), notice_of(answer), undo=answer.undo or "", answer=answer)


def notice_of(answer: ActionAnswer) -> str:
    """The sentence, and for a few jobs why each was skipped."""
    if len(answer.skipped) > 3:
        return answer.message
    reasons = [f"{job.id}: {job.why}{', ' + job.detail if job.detail else ''}" for job in answer.skipped]
    return " ".join([answer.message, *(f"Job {reason}." for reason in reasons)])


def _question(call: Call, wanted: ActionRequest) -> Page:
    if not wanted.ids:
        raise Problem(400, "No job is selected", "Go back and select at least one.")
    title = f"{words_for(wanted.action)} {changing.ids_in_words(wanted.ids)}?"
    fields, action = _fields_of(wanted), ACTIONS[wanted.action]
    if wanted.action == "reschedule":
        if wanted.changes:
            return _check_reschedule(call, wanted, title)
        values = {"fields": fields, "zone": zone_name(call.zone), "back": _back(call, wanted)}
        return Page("reschedule.html", title.rstrip("?"), here="jobs", values=values)
    return confirmation(
        title,
        f"{action.question} {action.undo}".strip(),
        path="/jobs/actions",
        fields=fields,
        submit=words_for(wanted.action),
        back=_back(call, wanted),
        tone="danger" if action.is_danger else "primary",
        asks_reason=action.asks_reason,
        here="jobs",
    )


def _check_reschedule(call: Call, wanted: ActionRequest, title: str) -> Page:
    """The new values once more, with the time in UTC as well."""
    points = []
    if wanted.run_at is not None:
        points.append(f"Run at {instant(wanted.run_at, call.zone)}, which is {instant(wanted.run_at, UTC)}")
    points += [
        f"{label}: {value}"
        for label, value in (
            ("Priority", wanted.priority),
            ("Attempts used", wanted.attempts),
            ("Maximum attempts", wanted.max_attempts),
        )
        if value is not None
    ]  # fmt: skip
    return confirmation(
        title, path="/jobs/actions", fields=_fields_of(wanted), submit="Reschedule", back=_back(call, wanted),
        tone="primary", points=points, here="jobs",
    )  # fmt: skip


def _fields_of(wanted: ActionRequest) -> list[tuple[str, object]]:
    """The form once more, for hidden fields."""
    names = ("action", "back", "state", "priority", "attempts", "max_attempts")
    given: list[tuple[str, object]] = [(name, getattr(wanted, name)) for name in names]
    if wanted.run_at is not None:
        given.append(("run_at", wanted.run_at.isoformat()))
    if wanted.one_more:
        given.append(("one_more", "true"))
    shown = [(name, value) for name, value in given if value not in (None, "")]
    return [*shown, *(("ids", job_id) for job_id in wanted.ids)]


def _back(call: Call, wanted: ActionRequest, answer: ActionAnswer | None = None) -> str:
    if answer is not None and len(answer.added) == 1:
        return f"/jobs/{answer.added[0]}"
    return return_url(call, wanted.back, f"/jobs/{wanted.ids[0]}" if len(wanted.ids) == 1 else "/jobs")


ONE = "/jobs/{id:int}"
ROUTES = [
    Route("/jobs/actions", ask, ANY_ACTION, "Ask before an action"),
    Route(
        "/jobs/actions", act, ANY_ACTION,
        "Run now, retry, reschedule, give up, delete, cancel or add again up to 200 jobs", method="POST",
        api=True, answer=ActionAnswer,
    ),
    Route(ONE, get_job, "jobs.read", "A job, or what is known of one that is gone", api=True, answer=JobView),
    Route(
        API + ONE, edit, "jobs.edit", "Replace the payload of a job that waits and has this revision",
        method="PATCH", answer=JobView,
    ),
    Route(
        f"{API}{ONE}/attempts", list_attempts, "jobs.read", "Failed attempts of a job", answer=FailedAttempts,
    ),
    Route(
        f"{API}{ONE}/explanation", get_explanation, "jobs.read", "Why a job does not run", answer=Explanation,
    ),
    Route(
        f"{ONE}/reveal", reveal, "payload.read",
        "The payload of a job without redaction; recorded in the audit", method="POST", api=True,
        answer=Revealed, changes_nothing=True,
    ),
    Route(f"{ONE}/payload", download, "jobs.read", "The payload of a job as a file"),
    Route(
        f"{API}{ONE}/payload", download, "jobs.read", "The payload of a job as a file, redacted",
        answer=msgspec.Raw,
    ),
    Route(f"{ONE}/edit", edit_page, "jobs.edit", "Edit a payload", own_pages_only=True),
    Route(f"{ONE}/edit", edit_from_form, "jobs.edit", "Replace a payload", method="POST"),
    Route(
        f"{ONE}/stack", get_stack, "jobs.read", "Where a running job is now: its worker is asked",
        method="POST", api=True, needs=REQUESTS, answer=Stack,
    ),
]  # fmt: skip

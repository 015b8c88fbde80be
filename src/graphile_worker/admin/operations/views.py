"""Operations: changes to all jobs that match a filter, from the question to the end; and undo."""

from __future__ import annotations

from typing import get_args

import msgspec

from ..answers import Listing, Page, Problem, Redirect, confirmation
from ..audit.queries import RESUMES, Entry, permission_for
from ..audit.recording import actor_of
from ..database import OPERATIONS
from ..jobs.changing import ACTIONS, ANY_ACTION
from ..jobs.filters import Filter
from ..jobs.views import job_filter_of
from ..security.identity import PERMISSION_FOR, Permission
from ..web.call import Call, return_url
from ..web.routes import Route
from ..web.show import words_for, zone_name
from . import queries, undo
from .choosing import Chosen
from .queries import DryRun, Operation, OperationForm, OperationRequest, OperationsQuery
from .undo import UndoAnswer, permission_to_stop

STAGES = {
    "canary": "Retrying the first job",
    "watching": "Waiting for the first job",
    "rest": "Retrying the others",
    "settling": "Waiting for the last jobs",
}


def announce_to(call: Call) -> None:
    """Let live pages know of progress."""
    hub = call.hub
    call.database.operations.on_change = lambda operation_id: hub.publish(
        f"operation:{operation_id}", "operations", "failures"
    )


async def ask(call: Call, wanted: OperationForm) -> Page:
    """What would happen, for links."""
    return await _question(call, wanted)


async def start(call: Call, request: OperationRequest) -> Redirect:
    call.require(PERMISSION_FOR[request.action])
    chosen = _chosen(call, request)
    if request.dry_run:
        found = await queries.dry_run(call.database, request, chosen, call.app.environment)
        return Redirect("", answer=found)
    announce_to(call)
    begun = await queries.start(call.database, actor_of(call), request, chosen, call.app.environment)
    return Redirect(f"/operations/{begun.id}", answer=begun)


async def start_from_form(call: Call, form: OperationForm) -> Page | Redirect:
    if not await call.is_confirmed():
        return await _question(call, form)
    return await start(call, _of_form(form))


def _of_form(form: OperationForm) -> OperationForm:
    return msgspec.structs.replace(form, filter=form.q)


async def _question(call: Call, form: OperationForm) -> Page:
    call.require(PERMISSION_FOR[form.action])
    request = msgspec.structs.replace(_of_form(form), **_anything(form))
    found = await queries.dry_run(call.database, request, _chosen(call, request), call.app.environment)
    word = words_for(form.action)
    values = {
        "form": form, "found": found, "zone": zone_name(call.zone), "submit": f"{word} {found.count} jobs",
        "path": "/operations/new", "action": ACTIONS[form.action],
        "text": f"{ACTIONS[form.action].question} Jobs that are added later are left out.".strip(),
        "back": return_url(call, form.back, call.url("/jobs", q=form.q)[len(call.url("")) :]),
        "fields": {
            "action": form.action, "q": form.q, "everything": 1 if form.everything else "",
            "confirmed": "yes", "back": form.back,
        },
    }  # fmt: skip
    return Page("change_many.html", f"{word} all that match?", here="jobs", values=values)


def _chosen(call: Call, request: OperationRequest) -> Chosen:
    """The jobs that a request names; refused if the person may not search what it searches."""
    job_filter_of(call, Filter.parse(request.filter))
    return queries.chosen_by(
        request, call.redactor, hides_secrets=not call.may("payload.read"),
        may_delete=call.may("jobs.delete"),
    )  # fmt: skip


def _anything(form: OperationForm) -> dict[str, object]:
    """The question may be asked before the new values are known."""
    return {"priority": 0} if form.action == "reschedule" and form.priority is None else {}


async def list_operations(call: Call, query: OperationsQuery) -> Page:
    found = await queries.latest(call.database, before=query.after, limit=query.limit + 1)
    items = (found or [])[: query.limit]
    has_more = len(found or []) > query.limit
    next_page = call.url("/operations", after=items[-1].id) if has_more else ""
    values = {"found": found, "items": items, "next": next_page, "words_for": title_of}
    answer = Listing(items, next=str(items[-1].id) if has_more else None)
    return Page("operations.html", "Operations", here="operations", values=values, answer=answer)


async def get_operation(call: Call) -> Page:
    announce_to(call)
    found = await queries.get(call.database, id_of(call))
    values = {
        "found": found, "title_of": title_of, "stages": STAGES,
        "may_stop": not call.database.is_read_only
        and call.may(await permission_to_stop(call.database, found)),
        "filter_url": _jobs_url(call, found),
    }  # fmt: skip
    title = f"{title_of(found)}: operation {found.id}"
    return Page("operation.html", title, here="operations", values=values, answer=found)


async def stop(call: Call) -> Redirect:
    found = await queries.get(call.database, id_of(call))
    call.require(await permission_to_stop(call.database, found))
    announce_to(call)
    answer = await queries.stop(call.database, actor_of(call), found.id)
    return Redirect(f"/operations/{found.id}", answer=answer)


def id_of(call: Call) -> int:
    """The id in the path."""
    return int(call.path_values["id"])


def title_of(found: Operation) -> str:
    """The action in words."""
    return words_for("retry_carefully" if found.is_careful else found.action)


def _jobs_url(call: Call, found: Operation) -> str:
    if found.chosen.fingerprint is not None:
        return call.url(f"/failures/{found.chosen.fingerprint}")
    return call.url("/jobs", q=found.chosen.filter) if found.chosen.filter else ""


# -- undo ---------------------------------------------------------------------------------------------------

UNDOING: tuple[Permission, ...] = tuple(
    permission for permission in get_args(Permission) if not permission.endswith(".read")
)


async def ask_undo(call: Call) -> Page:
    """The question, for links."""
    return await _undo_question(call, await undo.find_entry(call.database, id_of(call)))


async def undo_entry(call: Call) -> Redirect:
    entry = await undo.find_entry(call.database, id_of(call))
    call.require(permission_for(entry.action))
    announce_to(call)
    answer = await undo.undo(call.database, actor_of(call), entry)
    if answer.operation_id is not None:
        return Redirect(f"/operations/{answer.operation_id}", answer=answer)
    back = "/audit"
    if len(answer.restored) == 1:
        back = f"/jobs/{answer.restored[0].new_id or answer.restored[0].id}"
    reasons = " ".join(f"Job {job.id}: {job.detail or job.why}." for job in answer.left[:3])
    return Redirect(back, f"{answer.message} {reasons}".strip(), answer=answer)


async def _undo_question(call: Call, entry: Entry) -> Page:
    call.require(permission_for(entry.action))
    if not entry.can_undo:
        raise Problem(409, "This cannot be undone", "It was undone, or is older than 24 hours.")
    means = "Jobs that have not changed since are restored. Deleted jobs come back with new ids."
    if entry.action in RESUMES:
        means = "The pause ends, and waiting jobs start."
    return confirmation(
        f"Undo “{words_for(entry.action)}: {entry.target}”?",
        means,
        path=f"/audit/{entry.id}/undo", submit="Undo", back="/audit", tone="primary", here="audit",
    )  # fmt: skip


ROUTES = [
    Route(
        "/operations", list_operations, "jobs.read", "Changes to many jobs, the latest first", api=True,
        answer=Listing[Operation],
    ),
    Route("/operations/new", ask, ANY_ACTION, "What an operation would do", needs=OPERATIONS),
    Route(
        "/operations/new", start_from_form, ANY_ACTION, "Start an operation", method="POST", needs=OPERATIONS,
    ),
    Route(
        "/api/v1/operations", start, ANY_ACTION,
        "Change all jobs that match a filter, in steps; or only say what would happen", method="POST",
        answer=Operation | DryRun,
    ),
    Route(
        "/operations/{id:int}", get_operation, "jobs.read", "How far an operation is", api=True,
        answer=Operation,
    ),
    Route(
        "/operations/{id:int}/stop", stop, ANY_ACTION, "Stop an operation after the current step",
        method="POST", api=True, answer=Operation,
    ),
    Route("/audit/{id:int}/undo", ask_undo, UNDOING, "Ask before an undo"),
    Route(
        "/audit/{id:int}/undo", undo_entry, UNDOING, "Undo an action, for jobs that are unchanged since",
        method="POST", api=True, answer=UndoAnswer,
    ),
]  # fmt: skip

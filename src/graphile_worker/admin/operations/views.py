"""`/operations`: changes to all jobs that match a filter, from the question to the end."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..answers import Page, Redirect
from ..audit.queries import words_for
from ..audit.recording import actor_of
from ..jobs import PERMISSION_FOR, ActionName, Attempts, Reason, Smallint
from ..jobs.action_views import local_time
from ..jobs.filters import Filter
from ..web.call import Call, return_url
from ..web.routes import API, Route
from ..web.times import zone_name
from . import Operation, OperationRequest, Rate, queries
from .api import ANY_ACTION, OperationsQuery, announce_to, chosen_of, id_of
from .undo import permission_to_stop

STAGES = {
    "canary": "Retrying the first job",
    "watching": "Waiting for the first job",
    "rest": "Retrying the others",
    "settling": "Waiting for the last jobs",
}


class NewForm(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the form that starts an operation."""

    action: ActionName = "retry"
    q: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    everything: str = ""
    back: str = ""
    confirmed: str = ""
    typed: str = ""
    reason: Reason = ""
    one_more: str = ""
    rate: Rate | None = None
    run_at: str = ""
    priority: Smallint | None = None
    attempts: Attempts | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=32767)] | None = None


async def ask(call: Call) -> Page:
    """What would happen, for links."""
    return await _question(call, call.query(NewForm))


async def start(call: Call) -> Page | Redirect:
    form = await call.form(NewForm)
    if not form.confirmed:
        return await _question(call, form)
    call.require(PERMISSION_FOR[form.action])
    request = _request(call, form)
    announce_to(call)
    begun = await queries.start(
        call.database, actor_of(call), request, chosen_of(call, request), call.app.environment
    )
    return Redirect(f"/operations/{begun.id}", f"{words_for(form.action)} has started.")


async def _question(call: Call, form: NewForm) -> Page:
    call.require(PERMISSION_FOR[form.action])
    request = msgspec.structs.replace(_request(call, form), **_anything(form))
    found = await queries.dry_run(call.database, request, chosen_of(call, request), call.app.environment)
    values = {
        "form": form, "found": found, "zone": zone_name(call.zone),
        "word": words_for(form.action), "filter": Filter.parse(form.q).text,
        "back": return_url(call, form.back, call.url("/jobs", q=form.q)[len(call.url("")) :]),
        "typed": str(found.count.value) if found.needs_confirmation else "",
    }  # fmt: skip
    return Page("operation_new.html", f"{words_for(form.action)} all that match?", here="jobs", values=values)


def _anything(form: NewForm) -> dict[str, object]:
    """The question may be asked before the new values are known."""
    return {"priority": 0} if form.action == "reschedule" and form.priority is None else {}


def _request(call: Call, form: NewForm) -> OperationRequest:
    digits = form.typed.replace(",", "").replace(".", "").strip()
    return OperationRequest(
        action=form.action, filter=form.q, everything=bool(form.everything), rate=form.rate,
        confirm=int(digits) if digits.isdecimal() and len(digits) <= 15 else None,
        reason=form.reason, one_more=bool(form.one_more), run_at=local_time(call, form.run_at),
        priority=form.priority, attempts=form.attempts, max_attempts=form.max_attempts,
    )  # fmt: skip


async def list_page(call: Call) -> Page:
    query = call.query(OperationsQuery)
    found = await queries.latest(call.database, before=query.after, limit=query.limit + 1)
    items = (found or [])[: query.limit]
    next_page = call.url("/operations", after=items[-1].id) if found and len(found) > query.limit else ""
    values = {"found": found, "items": items, "next": next_page, "words_for": title_of}
    return Page("operations.html", "Operations", here="operations", values=values)


async def page(call: Call) -> Page:
    announce_to(call)
    found = await queries.get(call.database, id_of(call))
    values = {
        "found": found, "title_of": title_of, "stages": STAGES,
        "may_stop": not call.database.is_read_only
        and call.may(await permission_to_stop(call.database, found)),
        "filter_url": _jobs_url(call, found),
    }  # fmt: skip
    return Page(
        "operation.html", f"{title_of(found)}: operation {found.id}", here="operations", values=values,
    )  # fmt: skip


async def stop(call: Call) -> Redirect:
    found = await queries.get(call.database, id_of(call))
    call.require(await permission_to_stop(call.database, found))
    announce_to(call)
    await queries.stop(call.database, actor_of(call), found.id)
    return Redirect(f"/operations/{found.id}", "The operation stops after the current step.")


def title_of(found: Operation) -> str:
    """The action in words."""
    return words_for("retry_carefully" if found.is_careful else found.action)


def _jobs_url(call: Call, found: Operation) -> str:
    if found.chosen.fingerprint is not None:
        return call.url(f"/failures/{found.chosen.fingerprint}")
    return call.url("/jobs", q=found.chosen.filter) if found.chosen.filter else ""


ROUTES = [
    Route(
        method="GET", path="/operations", handler=list_page, permission="jobs.read", query=OperationsQuery,
        summary="Operations", json_of=f"{API}/operations",
    ),
    Route(
        method="GET", path="/operations/new", handler=ask, permission=ANY_ACTION, query=NewForm,
        summary="What an operation would do",
    ),
    Route(
        method="POST", path="/operations/new", handler=start, permission=ANY_ACTION, body=NewForm,
        summary="Start an operation",
    ),
    Route(
        method="GET", path="/operations/{id:int}", handler=page, permission="jobs.read",
        summary="How far an operation is", json_of=f"{API}/operations/{{id:int}}",
    ),
    Route(
        method="POST", path="/operations/{id:int}/stop", handler=stop, permission=ANY_ACTION,
        summary="Stop an operation",
    ),
]  # fmt: skip

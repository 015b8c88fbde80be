"""Failures: error groups, and one of them with what can be done about it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from .. import charts
from ..answers import Page, Redirect
from ..audit.queries import words_for
from ..audit.recording import actor_of
from ..jobs import PERMISSION_FOR, ActionValues, Attempts, Reason, Smallint
from ..operations import CarefulRequest, Operation, Rate
from ..operations import queries as operations
from ..operations.api import announce_to
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import lay_out_error, one_line
from ..web.times import optional_time, zone_name
from . import PERIODS, FailuresQuery, queries
from .api import ON_GROUPS, fingerprint_of

PERIOD_WORDS = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days"}
QUESTIONS = {
    "retry": "All of them can start at once, with all their attempts.",
    "reschedule": "",
    "give_up": "They fail permanently and stay in the list of failed jobs.",
    "delete": "They are deleted without being run.",
    "carefully": "One job first. When it has succeeded, the others; the first new failure stops it.",
}


class GroupForm(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of the forms for a group."""

    action: Literal["carefully", "retry", "reschedule", "give_up", "delete"] = "carefully"
    confirmed: str = ""
    typed: str = ""
    canary: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    rate: Rate | None = None
    reason: Reason = ""
    run_at: str = ""
    priority: Smallint | None = None
    attempts: Attempts | None = None


class MuteForm(msgspec.Struct, frozen=True):
    """Fields of the form that mutes a group."""

    reason: Reason = ""


async def list_page(call: Call) -> Page:
    query = call.query(FailuresQuery)
    found = await queries.list_failures(call.database, query, call.redactor)
    task = query.task or None
    values = {
        "found": found, "query": query, "charts": charts, "one_line": one_line,
        "period": PERIOD_WORDS[query.period],
        "periods": [
            (PERIOD_WORDS[name], call.url("/failures", period=name, task=task), name == query.period)
            for name in PERIODS
        ],
        "next": call.url("/failures", period=query.period, task=task, after=found.next) if found.next else "",
    }  # fmt: skip
    return Page("failures.html", "Failures", here="failures", values=values)


async def page(call: Call) -> Page:
    found = await queries.get_failure(call.database, fingerprint_of(call), call.redactor)
    values = {
        "found": found, "group": found.group, "charts": charts, "one_line": one_line,
        "frames": lay_out_error(found.error),
        "ids": [("ids", job.id) for job in found.jobs],
    }  # fmt: skip
    title = one_line(found.group.title, 80) or "Error group"
    return Page("failure.html", title, here="failures", values=values)


async def ask(call: Call) -> Page:
    """The question, for links."""
    return await _question(call, call.query(GroupForm))


async def act(call: Call) -> Page | Redirect:
    form = await call.form(GroupForm)
    if not form.confirmed:
        return await _question(call, form)
    call.require(_permission(form))
    begun = await _begin(call, form)
    return Redirect(f"/operations/{begun.id}", f"{_word(form)} has started.")


async def _begin(call: Call, form: GroupForm) -> Operation:
    announce_to(call)
    digits = form.typed.replace(",", "").strip()
    confirm = int(digits) if digits.isdecimal() and len(digits) <= 15 else None
    fingerprint, environment = fingerprint_of(call), call.app.environment
    if form.action == "carefully":
        request = CarefulRequest(canary=form.canary, rate=form.rate or 50.0, confirm=confirm)
        return await queries.retry_carefully(call.database, actor_of(call), fingerprint, request, environment)
    values = ActionValues(
        reason=form.reason, run_at=optional_time(form.run_at, call.zone), priority=form.priority,
        attempts=form.attempts,
    )  # fmt: skip
    return await queries.change_group(
        call.database, actor_of(call), fingerprint, form.action, values,
        rate=form.rate, confirm=confirm, environment=environment,
    )  # fmt: skip


async def _question(call: Call, form: GroupForm) -> Page:
    call.require(_permission(form))
    action = "retry" if form.action == "carefully" else form.action
    await operations.require_tables(call.database)
    found = await queries.dry_run(
        call.database, fingerprint_of(call), action, form.rate, call.app.environment
    )
    values = {
        "form": form, "found": found, "word": _word(form), "text": QUESTIONS[form.action],
        "path": f"/failures/{fingerprint_of(call)}", "zone": zone_name(call.zone),
        "typed": str(found.count.value) if found.needs_confirmation else "",
    }  # fmt: skip
    return Page("failure_action.html", f"{_word(form)}?", here="failures", values=values)


def _permission(form: GroupForm) -> Literal["jobs.retry", "jobs.reschedule", "jobs.cancel", "jobs.delete"]:
    permission = "jobs.retry" if form.action == "carefully" else PERMISSION_FOR[form.action]
    return permission  # type: ignore[return-value]


def _word(form: GroupForm) -> str:
    return words_for("retry_carefully" if form.action == "carefully" else form.action)


async def mute(call: Call) -> Redirect:
    form = await call.form(MuteForm)
    muted = await queries.mute(call.database, actor_of(call), fingerprint_of(call), form.reason)
    until = f"until a version other than {muted.version}" if muted.version else "for a day"
    return Redirect("/failures", f"The error group is muted {until}.")


async def unmute(call: Call) -> Redirect:
    await queries.unmute(call.database, actor_of(call), fingerprint_of(call))
    return Redirect(f"/failures/{fingerprint_of(call)}", "The error group is shown again.")


GROUP = "/failures/{fingerprint}"
ROUTES = [
    Route(
        method="GET", path="/failures", handler=list_page, permission="jobs.read", query=FailuresQuery,
        summary="Failures", json_of=f"{API}/failures",
    ),
    Route(
        method="GET", path=GROUP, handler=page, permission="jobs.read", summary="An error group",
        json_of=f"{API}/failures/{{fingerprint}}",
    ),
    Route(
        method="GET", path=f"{GROUP}/actions", handler=ask, permission=ON_GROUPS, query=GroupForm,
        summary="Ask before an action on a group",
    ),
    Route(
        method="POST", path=f"{GROUP}/actions", handler=act, permission=ON_GROUPS, body=GroupForm,
        summary="Act on all jobs of a group",
    ),
    Route(
        method="POST", path=f"{GROUP}/mute", handler=mute, permission="jobs.retry", body=MuteForm,
        summary="Mute a group",
    ),
    Route(
        method="POST", path=f"{GROUP}/unmute", handler=unmute, permission="jobs.retry",
        summary="Show a group again",
    ),
]  # fmt: skip

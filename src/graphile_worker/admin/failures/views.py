"""Failures: error groups, and one of them with what can be done about it."""

from __future__ import annotations

import re
from functools import partial

from .. import charts
from ..answers import Page, Redirect, Sorting, not_found
from ..audit.recording import actor_of
from ..database import ERRORS
from ..jobs.changing import ACTIONS
from ..operations import queries as operations
from ..operations.queries import CarefulRequest, DryRun, Operation
from ..operations.views import announce_to
from ..security.identity import PERMISSION_FOR, Permission
from ..web.call import Call
from ..web.routes import Route
from ..web.show import lay_out_error, one_line, words_for, zone_name
from . import changing, plain_groups, queries
from .changing import GroupQuestion, GroupRequest, Muted, MuteRequest
from .queries import PERIODS, FailureDetails, FailureList, FailuresQuery

ON_GROUPS: tuple[Permission, ...] = ("jobs.retry", "jobs.reschedule", "jobs.cancel", "jobs.delete")
PERIOD_WORDS = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days"}
CAREFULLY = "One job first. When it has succeeded, the others; the first new failure stops it."
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


async def list_failures(call: Call, query: FailuresQuery) -> Page:
    if await call.database.missing(ERRORS):
        found = await plain_groups.list_failures(call.database, query, call.redactor)
    else:
        found = await queries.list_failures(call.hub, query, call.redactor)
    page = partial(call.url, "/failures", task=query.task or None)
    order = None if query.order == "last" else query.order
    values = {
        "found": found, "query": query, "charts": charts, "one_line": one_line,
        "period": PERIOD_WORDS[query.period],
        "periods": [
            (PERIOD_WORDS[name], page(period=name, order=order), name == query.period)
            for name in PERIODS
        ],
        "next": page(period=query.period, order=order, after=found.next) if found.next else "",
        "sort": Sorting(query.order, partial(page, period=query.period)),
    }  # fmt: skip
    return Page("failures.html", "Failures", here="failures", values=values, answer=found)


async def get_failure(call: Call) -> Page:
    if await call.database.missing(ERRORS):
        found = await plain_groups.get_failure(call.database, fingerprint_of(call), call.redactor)
    else:
        found = await queries.get_failure(call.hub, fingerprint_of(call), call.redactor)
    values = {
        "found": found, "group": found.group, "charts": charts, "one_line": one_line,
        "frames": lay_out_error(found.error),
        "ids": [("ids", job.id) for job in found.jobs],
    }  # fmt: skip
    title = one_line(found.group.title, 80) or "Error group"
    return Page("failure.html", title, here="failures", values=values, answer=found)


async def ask(call: Call, wanted: GroupQuestion) -> Page:
    """The question, for links."""
    return await _question(call, wanted)


async def act(call: Call, request: GroupRequest) -> Page | Redirect:
    if not await call.is_confirmed():
        return await _question(call, request)
    call.require(PERMISSION_FOR[request.change])
    return await _begun(call, request)


async def retry(call: Call, asked: CarefulRequest) -> Redirect:
    """A careful retry, for programs."""
    request = GroupRequest(
        action="carefully", canary=asked.canary, rate=asked.rate, confirm=asked.confirm, dry_run=asked.dry_run
    )
    return await _begun(call, request)


async def _begun(call: Call, request: GroupRequest) -> Redirect:
    fingerprint, environment = fingerprint_of(call), call.app.environment
    if request.dry_run:
        return Redirect("", answer=await changing.dry_run(call.hub, fingerprint, request, environment))
    announce_to(call)
    begun = await changing.change_group(call.hub, actor_of(call), fingerprint, request, environment)
    return Redirect(f"/operations/{begun.id}", answer=begun)


async def _question(call: Call, request: GroupRequest) -> Page:
    call.require(PERMISSION_FOR[request.change])
    await operations.require_tables(call.database)
    found = await changing.dry_run(call.hub, fingerprint_of(call), request, call.app.environment)
    word = words_for("retry_carefully" if request.is_careful else request.action)
    path = f"/failures/{fingerprint_of(call)}"
    values = {
        "form": request, "found": found, "zone": zone_name(call.zone), "submit": word, "back": path,
        "path": f"{path}/actions", "action": ACTIONS[request.change],
        "text": CAREFULLY if request.is_careful else ACTIONS[request.change].question,
        "fields": {"action": request.action, "confirmed": "yes"},
    }  # fmt: skip
    return Page("change_many.html", f"{word}?", here="failures", values=values)


async def mute(call: Call, request: MuteRequest) -> Redirect:
    muted = await changing.mute(call.database, actor_of(call), fingerprint_of(call), request.reason)
    until = f"until a version other than {muted.version}" if muted.version else "for a day"
    return Redirect("/failures", f"The error group is muted {until}.", answer=muted)


async def unmute(call: Call) -> Redirect:
    muted = await changing.unmute(call.database, actor_of(call), fingerprint_of(call))
    return Redirect(f"/failures/{muted.fingerprint}", "The error group is shown again.", answer=muted)


def fingerprint_of(call: Call) -> str:
    """The fingerprint in the path."""
    text = str(call.path_values["fingerprint"])
    if not _FINGERPRINT.fullmatch(text):
        raise not_found("such error group")
    return text


GROUP = "/failures/{fingerprint}"
ROUTES = [
    Route("/failures", list_failures, "jobs.read", "Error groups", api=True, answer=FailureList),
    Route(
        GROUP, get_failure, "jobs.read",
        "An error group: the latest error, what its jobs share, and the jobs", api=True,
        answer=FailureDetails,
    ),
    Route(
        f"/api/v1{GROUP}/retry", retry, "jobs.retry",
        "Retry the jobs of a group carefully: some first, then the others until one fails", method="POST",
        answer=Operation | DryRun,
    ),
    Route(f"{GROUP}/actions", ask, ON_GROUPS, "Ask before an action on a group"),
    Route(
        f"{GROUP}/actions", act, ON_GROUPS, "Retry, reschedule, give up or delete all jobs of a group",
        method="POST", api=True, answer=Operation | DryRun,
    ),
    Route(
        f"{GROUP}/mute", mute, "jobs.retry", "Hide a group until it occurs in a newer version", method="POST",
        api=True, answer=Muted,
    ),
    Route(
        f"{GROUP}/unmute", unmute, "jobs.retry", "Show a group again", method="POST", api=True, answer=Muted,
    ),
]  # fmt: skip

"""`/audit`: who did what, and undo."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..answers import Page, Problem, Redirect, confirmation
from ..operations import undo
from ..operations.api import announce_to, id_of
from ..web.call import Call
from ..web.routes import API, Route
from ..web.times import optional_time
from . import AuditQuery, Entry, queries
from .api import UNDOING
from .recording import actor_of

MAX_DETAIL = 300


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of the page; days are in the viewer's zone."""

    who: Annotated[str, msgspec.Meta(max_length=200)] = ""
    action: Annotated[str, msgspec.Meta(max_length=200)] = ""
    job: int | None = None
    since: Annotated[str, msgspec.Meta(max_length=40)] = ""
    until: Annotated[str, msgspec.Meta(max_length=40)] = ""
    after: int | None = None


async def list_page(call: Call) -> Page:
    asked = call.query(PageQuery)
    query = AuditQuery(
        who=asked.who, action=asked.action, job=asked.job, after=asked.after,
        since=optional_time(asked.since, call.zone), until=optional_time(asked.until, call.zone),
    )  # fmt: skip
    found = await queries.list_entries(call.database, query)
    names, actions = await queries.names_and_actions(call.database)
    given = {name: value or None for name, value in msgspec.to_builtins(asked).items()}
    values = {
        "found": found, "query": asked, "names": names, "words_for": queries.words_for,
        "actions": [("", "Any action"), *((name, queries.words_for(name)) for name in actions)],
        "next": call.url("/audit", **{**given, "after": found.next}) if found and found.next else "",
        "may_undo": lambda entry: _may_undo(call, entry), "details_of": details_of,
    }  # fmt: skip
    return Page("audit.html", "Audit", here="audit", values=values)


async def ask_undo(call: Call) -> Page:
    """The question, for links."""
    return await _question(call, await undo.find_entry(call.database, id_of(call)))


async def undo_entry(call: Call) -> Page | Redirect:
    entry = await undo.find_entry(call.database, id_of(call))
    call.require(undo.permission_for(entry.action))
    announce_to(call)
    answer = await undo.undo(call.database, actor_of(call), entry)
    if answer.operation_id is not None:
        return Redirect(f"/operations/{answer.operation_id}", answer.message)
    back = "/audit"
    if len(answer.restored) == 1:
        back = f"/jobs/{answer.restored[0].new_id or answer.restored[0].id}"
    reasons = " ".join(f"Job {job.id}: {job.detail or job.why}." for job in answer.left[:3])
    return Redirect(back, f"{answer.message} {reasons}".strip())


async def _question(call: Call, entry: Entry) -> Page:
    call.require(undo.permission_for(entry.action))
    if not entry.can_undo:
        raise Problem(409, "This cannot be undone", "It was undone, or is older than 24 hours.")
    means = "Jobs that are unchanged since become what they were. Deleted jobs come back with new ids."
    if entry.action in undo.RESUMES:
        means = "The pause ends, and waiting jobs start."
    return confirmation(
        f"Undo “{queries.words_for(entry.action)}: {entry.target}”?",
        means,
        path=f"/audit/{entry.id}/undo", submit="Undo", back="/audit", tone="primary", here="audit",
    )  # fmt: skip


def details_of(entry: Entry) -> str:
    """The values that were given, in one line."""
    parts = [
        f"{name.replace('_', ' ')}: {value}" for name, value in entry.details.items() if value is not None
    ]
    text = ", ".join(parts)
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"


def _may_undo(call: Call, entry: Entry) -> bool:
    if not entry.can_undo or call.database.is_read_only:
        return False
    return call.may(undo.permission_for(entry.action))


ROUTES = [
    Route(
        method="GET", path="/audit", handler=list_page, permission="audit.read", query=PageQuery,
        summary="Audit", json_of=f"{API}/audit",
    ),
    Route(
        method="GET", path="/audit/{id:int}/undo", handler=ask_undo, permission=UNDOING,
        summary="Ask before an undo",
    ),
    Route(
        method="POST", path="/audit/{id:int}/undo", handler=undo_entry, permission=UNDOING,
        summary="Undo an action",
    ),
]  # fmt: skip

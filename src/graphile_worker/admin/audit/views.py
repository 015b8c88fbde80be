"""`/audit`: who did what, and undo."""

from __future__ import annotations

from typing import get_args

from ..answers import Listing, Page, Problem, Redirect, confirmation
from ..operations import undo
from ..operations.views import announce_to, id_of
from ..security.identity import Permission
from ..web.call import Call
from ..web.routes import Route
from . import AuditQuery, Entry, UndoAnswer, queries
from .recording import actor_of

MAX_DETAIL = 300
UNDOING: tuple[Permission, ...] = tuple(
    permission for permission in get_args(Permission) if not permission.endswith(".read")
)


async def list_entries(call: Call) -> Page:
    """Days without a zone are the viewer's."""
    query = call.query(AuditQuery)
    found = await queries.list_entries(call.database, query)
    names, actions = ([], []) if call.is_api else await queries.names_and_actions(call.database)
    given = dict(call.request.query_params)
    values = {
        "found": found, "query": query, "names": names, "words_for": queries.words_for,
        "since": given.get("since", ""), "until": given.get("until", ""),
        "actions": [("", "Any action"), *((name, queries.words_for(name)) for name in actions)],
        "next": call.url("/audit", **{**given, "after": found.next}) if found and found.next else "",
        "may_undo": lambda entry: _may_undo(call, entry), "details_of": details_of,
    }  # fmt: skip
    return Page("audit.html", "Audit", here="audit", values=values, answer=found or Listing([]))


async def ask_undo(call: Call) -> Page:
    """The question, for links."""
    return await _question(call, await undo.find_entry(call.database, id_of(call)))


async def undo_entry(call: Call) -> Redirect:
    entry = await undo.find_entry(call.database, id_of(call))
    call.require(undo.permission_for(entry.action))
    announce_to(call)
    answer = await undo.undo(call.database, actor_of(call), entry)
    if answer.operation_id is not None:
        return Redirect(f"/operations/{answer.operation_id}", answer=answer)
    back = "/audit"
    if len(answer.restored) == 1:
        back = f"/jobs/{answer.restored[0].new_id or answer.restored[0].id}"
    reasons = " ".join(f"Job {job.id}: {job.detail or job.why}." for job in answer.left[:3])
    return Redirect(back, f"{answer.message} {reasons}".strip(), answer=answer)


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
        method="GET", path="/audit", api="/audit", handler=list_entries, permission="audit.read",
        query=AuditQuery, answer=Listing[Entry], summary="Who did what, the latest first",
    ),
    Route(
        method="GET", path="/audit/{id:int}/undo", handler=ask_undo, permission=UNDOING,
        summary="Ask before an undo",
    ),
    Route(
        method="POST", path="/audit/{id:int}/undo", api="/audit/{id:int}/undo", handler=undo_entry,
        permission=UNDOING, answer=UndoAnswer,
        summary="Undo an action, for jobs that are unchanged since",
    ),
]  # fmt: skip

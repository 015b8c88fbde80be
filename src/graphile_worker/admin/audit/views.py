"""`/audit`: who did what."""

from __future__ import annotations

from ..answers import Listing, Page
from ..web.call import Call
from ..web.routes import Route
from ..web.show import words_for
from . import queries
from .queries import AuditQuery, Entry

MAX_DETAIL = 300


async def list_entries(call: Call, query: AuditQuery) -> Page:
    """Days without a zone are the viewer's."""
    found = await queries.list_entries(call.database, query)
    names, actions = ([], []) if call.is_api else await queries.names_and_actions(call.database)
    given = dict(call.request.query_params)
    values = {
        "found": found, "query": query, "names": names, "words_for": words_for,
        "since": given.get("since", ""), "until": given.get("until", ""),
        "actions": [("", "Any action"), *((name, words_for(name)) for name in actions)],
        "next": call.url("/audit", **{**given, "after": found.next}) if found and found.next else "",
        "may_undo": lambda entry: _may_undo(call, entry), "details_of": details_of,
    }  # fmt: skip
    return Page("audit.html", "Audit", here="audit", values=values, answer=found or Listing([]))


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
    return call.may(queries.permission_for(entry.action))


ROUTES = [
    Route(
        "/audit", list_entries, "audit.read", "Who did what, the latest first", api=True,
        answer=Listing[Entry],
    ),
]  # fmt: skip

"""`/api/v1/audit`: who did what, and undo."""

from __future__ import annotations

from typing import get_args

from ..answers import Listing
from ..operations import undo
from ..operations.api import announce_to, id_of
from ..security.identity import Permission
from ..web.call import Call
from ..web.routes import API, Route
from . import AuditQuery, Entry, UndoAnswer, queries
from .recording import actor_of

UNDOING: tuple[Permission, ...] = tuple(
    permission for permission in get_args(Permission) if not permission.endswith(".read")
)


async def listing(call: Call) -> Listing[Entry]:
    return await queries.list_entries(call.database, call.query(AuditQuery)) or Listing([])


async def undo_entry(call: Call) -> UndoAnswer:
    entry = await undo.find_entry(call.database, id_of(call))
    call.require(undo.permission_for(entry.action))
    announce_to(call)
    return await undo.undo(call.database, actor_of(call), entry)


ROUTES = [
    Route(
        method="GET", path=f"{API}/audit", handler=listing, permission="audit.read", query=AuditQuery,
        answer=Listing[Entry], summary="Who did what, the latest first",
    ),
    Route(
        method="POST", path=f"{API}/audit/{{id:int}}/undo", handler=undo_entry, permission=UNDOING,
        answer=UndoAnswer, summary="Undo an action, for jobs that are unchanged since",
    ),
]  # fmt: skip

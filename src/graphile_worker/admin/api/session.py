"""`/api/v1/session`: who is signed in."""

from __future__ import annotations

import msgspec

from ...values import __version__
from ..call import Call
from ..routes import API, Route


class SessionInfo(msgspec.Struct, frozen=True):
    """The identity behind a request."""

    user: str
    permissions: list[str]
    read_only: bool
    databases: list[str]
    schema: str
    version: str


async def session(call: Call) -> SessionInfo:
    return SessionInfo(
        user=call.identity.name,
        permissions=sorted(call.identity.permissions),
        read_only=call.database.is_read_only,
        databases=[database.name for database in call.app.databases],
        schema=call.database.schema.name,
        version=__version__,
    )


ROUTES = [
    Route(
        method="GET", path=f"{API}/session", handler=session, permission="signed_in", answer=SessionInfo,
        summary="Who is signed in, and what they may do",
    ),
]  # fmt: skip

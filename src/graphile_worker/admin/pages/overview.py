"""Overview: the state of everything in one sentence, then in figures."""

from __future__ import annotations

from ..answers import Page
from ..call import Call
from ..routes import Route


async def overview(call: Call) -> Page:
    async with call.database.read() as connection:
        found = await call.database.utils.statistics(connection=connection)
    return Page("overview.html", "Overview", here="overview", values={"found": found})


ROUTES = [Route(method="GET", path="/", handler=overview, permission="jobs.read", summary="Overview")]

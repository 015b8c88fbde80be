"""Incident summary: the last hours, to copy into a chat or a post-mortem."""

from __future__ import annotations

from ..answers import Page
from ..api.overview import SummaryQuery
from ..call import Call
from ..render import zone_of
from ..routes import API, Route
from ..service.summary import summary
from ..times import zone_name

HOURS = (1, 3, 6, 12, 24, 48)


async def page(call: Call) -> Page:
    wanted = call.query(SummaryQuery)
    zone = wanted.zone or zone_name(zone_of(call))
    text = await summary(call.hub, hours=wanted.hours, zone=zone, may_audit=call.may("audit.read"))
    values = {"text": text, "hours": wanted.hours, "choices": HOURS}
    return Page("summary.html", "Incident summary", here="overview", values=values)


ROUTES = [
    Route(
        method="GET", path="/summary", handler=page, permission="jobs.read", query=SummaryQuery,
        summary="The last hours in Markdown", json_of=f"{API}/summary",
    ),
]  # fmt: skip

"""Incident summary: the last hours, to copy into a chat or a post-mortem."""

from __future__ import annotations

from ..answers import Page
from ..web.call import Call
from ..web.routes import API, Route
from ..web.times import zone_name
from .api import SummaryQuery
from .summary import summary

HOURS = (1, 3, 6, 12, 24, 48)


async def page(call: Call) -> Page:
    wanted = call.query(SummaryQuery)
    zone = wanted.zone or zone_name(call.zone)
    text = await summary(call.hub, hours=wanted.hours, zone=zone, may_audit=call.may("audit.read"))
    values = {"text": text, "hours": wanted.hours, "choices": HOURS}
    return Page("summary.html", "Incident summary", here="overview", values=values)


ROUTES = [
    Route(
        method="GET", path="/summary", handler=page, permission="jobs.read", query=SummaryQuery,
        summary="The last hours in Markdown", json_of=f"{API}/summary",
    ),
]  # fmt: skip

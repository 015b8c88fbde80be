"""Overview: the state of everything in one sentence, then in statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

import msgspec

from .. import charts
from ..answers import Page, Points, RangeName
from ..web.call import Call
from ..web.routes import API, Route
from ..web.times import duration
from . import Overview
from .queries import OverviewPage, read_overview
from .series import RANGES, Timeline, shown_to

COLOURS: tuple[charts.Colour, ...] = ("c1", "c2", "c4", "c5")
"""Of the tasks with the most jobs; the others share one."""


class OverviewQuery(msgspec.Struct):
    """What the chart shows."""

    range: RangeName = "1h"
    by: str = ""
    """`task` for an area for each of the busiest tasks."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with its meaning."""

    name: str
    label: str
    value: str
    note: str
    trend: Points
    colour: charts.Colour
    path: str
    query: dict[str, str]


async def overview(call: Call) -> Page:
    wanted = call.query(OverviewQuery)
    found = await read_overview(call.hub, wanted.range)
    values = {
        "found": found.overview,
        "finding": found.overview.findings[0],
        "tiles": tiles(found),
        "timeline": found.timeline,
        "series": series_of(found.timeline, by_task=wanted.by == "task"),
        "markers": [
            charts.ChartMarker(each.at, each.text, each.kind)
            for each in shown_to(found.markers, may_audit=call.may("audit.read"))
        ],
        "ranges": list(RANGES.values()),
        "range": wanted.range,
        "is_down": call.hub.down_since is not None,
        "zone_info": call.zone,
        "began": lambda finding: began(finding.since, call.zone),
        "by": wanted.by if wanted.by == "task" else "",
        "longest_p95": max((task.run_time.p95 or 0.0 for task in found.overview.tasks), default=0.0),
    }
    return Page("overview.html", "Overview", here="overview", values=values)


def tiles(page: OverviewPage) -> list[Tile]:
    """Ready, running, completed, failed attempts, oldest wait."""
    found, hour = page.overview, page.hour
    backlog = hour.backlog
    return [
        Tile("ready", "Ready", str(found.ready), _ready_note(found), backlog.ready if backlog else [], "c1",
             "/jobs", {"q": "state:ready"}),
        Tile("running", "Running", _running(found), _running_note(found), list(hour.busy), "c2", "/jobs",
             {"q": "state:running"}),
        Tile("completed", "Completed", rate(found.rates.completed), before(found.rates.completed_before),
             backlog.deleted if backlog else list(hour.completed), "c1", "/tasks", {}),
        Tile("failing", "Failed attempts", rate(found.rates.failed), _failed_note(found), list(hour.failed),
             "c-fail", "/failures", {}),
        Tile("oldest_wait", "Oldest wait", duration(found.oldest_wait), _wait_note(found),
             backlog.oldest_wait if backlog else [], "c3", "/jobs", {"q": "state:ready"}),
    ]  # fmt: skip


def rate(value: float | None) -> str:
    """`264 /min`; small rates by the hour."""
    if value is None:
        return "—"
    if value >= 10:
        return f"{value:,.0f} /min"
    if value >= 1 or not value:
        return f"{value:.1f} /min".replace(".0 ", " ")
    return f"{value * 60:,.0f} /h" if value * 60 >= 1 else "< 1 /h"


def before(value: float | None) -> str:
    return "" if value is None else f"{rate(value)} an hour ago"


def _ready_note(found: Overview) -> str:
    if found.forecast is None:
        return f"{found.scheduled} scheduled"
    return f"{found.forecast.text} · {found.scheduled} scheduled"


def _running(found: Overview) -> str:
    return f"{found.running} of {found.slots:,}" if found.slots else str(found.running)


def _running_note(found: Overview) -> str:
    if not found.slots:
        return "no Python worker is alive" if found.slots == 0 else "slots of other runtimes are unknown"
    free = max(found.slots - found.running.value, 0)
    return f"{free:,} slots free" if free != 1 else "1 slot free"


def _failed_note(found: Overview) -> str:
    told = before(found.rates.failed_before)
    kept = f"{found.failed} permanently failed"
    return f"{told} · {kept}" if told else kept


def _wait_note(found: Overview) -> str:
    usual = found.usual_wait
    return "" if usual is None else f"usually under {duration(max(usual, 1), units=1)}"


def series_of(timeline: Timeline, *, by_task: bool) -> list[charts.ChartSeries]:
    """What the large chart draws, from the bottom: completed, other runtimes, failed."""
    parts = _by_task(timeline) if by_task else [charts.ChartSeries("completed", timeline.completed, "c1")]
    others = timeline.others
    if others is not None:
        parts.append(charts.ChartSeries("other runtimes", others, "c-idle"))
    parts.append(charts.ChartSeries("failed", timeline.failed, "c-fail"))
    return parts


def _by_task(timeline: Timeline) -> list[charts.ChartSeries]:
    names = list(timeline.tasks)
    shown, rest = names[: len(COLOURS)], names[len(COLOURS) :]
    parts = [
        charts.ChartSeries(name[:60], timeline.tasks[name].completed, colour)
        for name, colour in zip(shown, COLOURS, strict=False)
    ]
    if rest:
        parts.append(
            charts.ChartSeries("other tasks", _sum([timeline.tasks[name].completed for name in rest]), "c6")
        )
    return parts or [charts.ChartSeries("completed", timeline.completed, "c1")]


def _sum(parts: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) for values in zip(*parts, strict=True)]


def share(value: float | None) -> str:
    """A share in per cent; small ones are not rounded to nothing."""
    if value is None:
        return "—"
    return f"{value:.0%}" if value == 0 or value >= 0.01 else "< 1%"


def began(since: datetime | None, zone: tzinfo) -> str:
    """The end of a sentence: when it began, to the minute."""
    return "" if since is None else f", began at {since.astimezone(zone):%H:%M}"


def _sentence(title: str, since: datetime | None, detail: str) -> str:
    suffix = f"{began(since, UTC)} UTC" if since is not None else ""
    return f"{title}{suffix}\n{detail}".rstrip()


ROUTES = [
    Route(
        method="GET", path="/", handler=overview, permission="jobs.read", summary="Overview",
        query=OverviewQuery, json_of=f"{API}/overview",
    ),
]  # fmt: skip

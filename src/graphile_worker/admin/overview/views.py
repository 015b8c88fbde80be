"""Overview: the state of everything in one sentence, then in statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.responses import PlainTextResponse

from .. import charts
from ..answers import Marker, Page, Points, Problem, RangeName, Series
from ..tasks.series import (
    RANGES,
    TaskSeries,
    Timeline,
    added_up,
    read_markers,
    read_percentiles,
    read_timeline,
    shown_to,
)
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import duration, zone_name
from .queries import RECENT, Overview, OverviewPage, read_overview
from .summary import summary

COLOURS: tuple[charts.Colour, ...] = ("c1", "c2", "c4", "c5")
"""Of the tasks with the most jobs; the others share one."""
FEW = 10
"""Attempts in the last minutes that make no rate."""
HOURS = (1, 3, 6, 12, 24, 48)
"""Of the incident summary."""
METRICS = ("completed", "failed", "added", "backlog", "oldest_wait", "busy", "run_p95", "wait_p95")
OF_TASKS = ("completed", "failed", "busy")
OF_ALL = {"added": "added", "backlog": "ready", "oldest_wait": "oldest_wait"}
"""Metrics of the whole jobs table, which are not known by task, with their names in the samples."""
ALL = "all"


class OverviewQuery(msgspec.Struct):
    """What the chart shows."""

    range: RangeName = "1h"
    by: str = ""
    """`task` for an area for each of the busiest tasks."""


class SeriesQuery(msgspec.Struct):
    """What is asked for."""

    metric: str = "completed,failed"
    """Separated by commas: `completed`, `failed`, `added`, `backlog`, `oldest_wait`, `busy`, `run_p95`,
    `wait_p95`."""
    by: str = ""
    """`task` for values of each task."""
    task: str = ""
    """Only this task."""
    range: RangeName = "1h"


class SummaryQuery(msgspec.Struct):
    """How far back it goes."""

    hours: Annotated[int, msgspec.Meta(ge=1, le=48)] = 3
    zone: str = ""
    """The time zone of its times, such as `Europe/Berlin`; UTC if it is left out."""


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
    share: float | None = None
    """A bar in place of the trend."""


async def overview(call: Call, wanted: OverviewQuery) -> Page:
    found = await read_overview(call.hub, wanted.range)
    values = {
        "found": found.overview,
        "finding": found.overview.findings[0],
        "tiles": tiles(found),
        "timeline": found.timeline,
        "series": series_of(found.timeline, by_task=wanted.by == "task"),
        "markers": shown_to(found.markers, may_audit=call.may("audit.read")),
        "ranges": list(RANGES.values()),
        "range": wanted.range,
        "is_down": call.hub.down_since is not None,
        "began": lambda finding: began(finding.since, call.zone),
        "by": wanted.by if wanted.by == "task" else "",
        "longest_p95": max((task.run_time.p95 or 0.0 for task in found.overview.tasks), default=0.0),
    }
    since = call.hub.down_since  # it may have gone down since then
    answer = replace(found.overview, down_since=None if since is None else datetime.fromtimestamp(since, UTC))
    return Page("overview.html", "Overview", here="overview", values=values, answer=answer)


def tiles(page: OverviewPage) -> list[Tile]:
    """Ready, running, completed, failed attempts, oldest wait."""
    found, hour = page.overview, page.hour
    backlog = hour.backlog
    return [
        Tile("ready", "Ready", str(found.ready), _ready_note(found), backlog.ready if backlog else [], "c1",
             "/jobs", {"q": "state:ready"}),
        Tile("running", "Running", _running(found), _running_note(found), [], "c2", "/jobs",
             {"q": "state:running"}, share=found.running.value / found.slots if found.slots else None),
        Tile("completed", "Completed", rate_or_number(found.rates.completed, hour.completed),
             before(found.rates.completed_before),
             backlog.deleted if backlog else list(hour.completed), "c1", "/tasks", {}),
        Tile("failing", "Failed attempts", rate_or_number(found.rates.failed, page.failed),
             _failed_note(found), list(hour.failed), "c-fail", "/failures", {}),
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


def rate_or_number(value: float | None, hour: Sequence[float]) -> str:
    """A rate; of few attempts, how many there were in the last hour."""
    if value is None or value * RECENT >= FEW or not hour:
        return rate(value)
    return f"{max(sum(hour), value * RECENT):,.0f} in 1 h"


def before(value: float | None) -> str:
    """The rate of ten minutes an hour ago; empty if there were too few attempts for one."""
    return "" if value is None or 0 < value * 10 < FEW else f"{rate(value)} an hour ago"


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
            charts.ChartSeries(
                "other tasks", added_up([timeline.tasks[name].completed for name in rest]), "c6"
            )
        )
    return parts or [charts.ChartSeries("completed", timeline.completed, "c1")]


def began(since: datetime | None, zone: tzinfo) -> str:
    """The end of a sentence: when it began, to the minute."""
    return "" if since is None else f", began at {since.astimezone(zone):%H:%M}"


# -- values over time ---------------------------------------------------------------------------------------


async def series(call: Call, wanted: SeriesQuery) -> Series:
    metrics = _metrics(wanted.metric)
    hub, now, task = call.hub, datetime.now(UTC), wanted.task or None
    await hub.current()
    async with call.database.read() as connection:
        timeline = await read_timeline(
            connection, call.database.schema, RANGES[wanted.range], now,
            tables=hub.sampler.tables, task_identifier=task, samples=hub.sampler.samples,
        )  # fmt: skip
        markers = await read_markers(
            connection, call.database.schema, timeline.start, tables=hub.sampler.tables
        )
        times = {}
        if {"run_p95", "wait_p95"} & set(metrics):
            times = await read_percentiles(
                connection, call.database.schema, timeline, tables=hub.sampler.tables, task_identifier=task
            )
    by_task = wanted.by == "task" or task is not None
    shown = shown_to(markers, may_audit=call.may("audit.read"))
    return _series(timeline, metrics, times, shown, by_task)


def _metrics(text: str) -> list[str]:
    metrics = [metric for metric in text.split(",") if metric]
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics:
        raise Problem(400, "A metric is not known", f"Metrics are {', '.join(METRICS)}.")
    return metrics


def _series(
    timeline: Timeline,
    metrics: list[str],
    times: dict[str, dict[str, Points]],
    markers: list[Marker],
    by_task: bool,
) -> Series:
    def chosen(counted: TaskSeries | Timeline, name: str) -> dict[str, Points]:
        """Metrics of a task, or of all of them, which have no name."""
        found = {metric: list(getattr(counted, metric)) for metric in metrics if metric in OF_TASKS}
        return found | {metric: of for metric, of in times.get(name, {}).items() if metric in metrics}

    points: dict[str, dict[str, Points]] = {}
    if by_task:
        points = {name: chosen(counted, name) for name, counted in timeline.tasks.items()}
    whole = {} if by_task else chosen(timeline, "")
    if timeline.backlog is not None:
        whole |= {metric: getattr(timeline.backlog, OF_ALL[metric]) for metric in metrics if metric in OF_ALL}
    if whole:
        points[ALL] = whole
    return Series(
        start=timeline.start, step=timeline.range.step, points=points, markers=markers,
        is_recorded=timeline.is_recorded,
    )  # fmt: skip


# -- the incident summary -----------------------------------------------------------------------------------


async def read_summary(call: Call, wanted: SummaryQuery) -> Page | PlainTextResponse:
    zone = wanted.zone or ("" if call.is_api else zone_name(call.zone))
    text = await summary(call.hub, hours=wanted.hours, zone=zone, may_audit=call.may("audit.read"))
    if call.is_api:
        return PlainTextResponse(text, media_type="text/markdown; charset=utf-8")
    values = {"text": text, "hours": wanted.hours, "choices": HOURS}
    return Page("summary.html", "Incident summary", here="overview", values=values)


ROUTES = [
    Route(
        "/", overview, "jobs.read", "The state of everything: counts, rates, findings", api="/overview",
        answer=Overview,
    ),
    Route(f"{API}/series", series, "jobs.read", "Values over time, by task or in all", answer=Series),
    Route(
        "/summary", read_summary, "jobs.read", "The last hours in Markdown, for a chat or a post-mortem",
        api=True, media_type="text/markdown",
    ),
]  # fmt: skip

"""`/api/v1/overview`, `/series` and `/summary`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.responses import PlainTextResponse

from ..answers import Marker, Points, Problem, RangeName, Series
from ..web.call import Call
from ..web.routes import API, Route
from . import Overview
from .queries import read_overview
from .series import RANGES, TaskSeries, Timeline, read_markers, read_percentiles, read_timeline, shown_to
from .summary import summary

METRICS = ("completed", "failed", "added", "backlog", "oldest_wait", "busy", "run_p95", "wait_p95")
OF_ALL = ("added", "backlog", "oldest_wait")
"""Metrics of the whole jobs table, which are not known by task."""
ALL = "all"


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


async def overview(call: Call) -> Overview:
    found = (await read_overview(call.hub)).overview
    since = call.hub.down_since  # it may have gone down since then
    return replace(found, down_since=None if since is None else datetime.fromtimestamp(since, UTC))


async def series(call: Call) -> Series:
    wanted = call.query(SeriesQuery)
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
    return _series(timeline, metrics, times if by_task else {"": times.get("", {})}, shown, by_task)


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
    points: dict[str, dict[str, Points]] = {}
    if by_task:
        for name, values in timeline.tasks.items():
            points[name] = _of_task(values, metrics) | _chosen(times.get(name, {}), metrics)
    whole = {metric: _of_all(timeline, metric) for metric in metrics}
    kept = {
        metric: values
        for metric, values in whole.items()
        if values is not None and (not by_task or metric in OF_ALL)
    } | ({} if by_task else _chosen(times.get("", {}), metrics))
    if kept:
        points[ALL] = kept
    return Series(
        start=timeline.start, step=timeline.range.step, points=points, markers=markers,
        is_recorded=timeline.is_recorded,
    )  # fmt: skip


def _of_task(values: TaskSeries, metrics: list[str]) -> dict[str, Points]:
    known: dict[str, Points] = {
        "completed": list(values.completed), "failed": list(values.failed), "busy": list(values.busy)
    }  # fmt: skip
    return _chosen(known, metrics)


def _of_all(timeline: Timeline, metric: str) -> Points | None:
    backlog = timeline.backlog
    found: dict[str, Points | None] = {
        "completed": list(timeline.completed),
        "failed": list(timeline.failed),
        "busy": list(timeline.busy),
        "added": backlog.added if backlog else None,
        "backlog": backlog.ready if backlog else None,
        "oldest_wait": backlog.oldest_wait if backlog else None,
    }
    return found.get(metric)


def _chosen(values: dict[str, Points], metrics: list[str]) -> dict[str, Points]:
    return {metric: values[metric] for metric in metrics if metric in values}


async def read_summary(call: Call) -> PlainTextResponse:
    wanted = call.query(SummaryQuery)
    text = await summary(call.hub, hours=wanted.hours, zone=wanted.zone, may_audit=call.may("audit.read"))
    return PlainTextResponse(text, media_type="text/markdown; charset=utf-8")


ROUTES = [
    Route(
        method="GET", path=f"{API}/overview", handler=overview, permission="jobs.read", answer=Overview,
        summary="The state of everything: counts, rates, findings",
    ),
    Route(
        method="GET", path=f"{API}/series", handler=series, permission="jobs.read", query=SeriesQuery,
        answer=Series, summary="Values over time, by task or in all",
    ),
    Route(
        method="GET", path=f"{API}/summary", handler=read_summary, permission="jobs.read",
        query=SummaryQuery, media_type="text/markdown",
        summary="The last hours in Markdown, for a chat or a post-mortem",
    ),
]  # fmt: skip

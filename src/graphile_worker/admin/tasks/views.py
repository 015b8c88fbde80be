"""Tasks: what each one does, the page of one; pause, resume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from ...history.error_groups import ErrorGroup, list_error_groups
from ...values.job import Pause
from .. import answers, charts
from ..answers import Count, Listing, Page, Points, Redirect, Sorting, address, in_order, not_found
from ..audit.recording import record
from ..database import ERRORS, PAUSES
from ..live.hub import Hub
from ..web.call import Call
from ..web.routes import Route
from ..web.show import error_title
from .queries import (
    Resumed,
    TaskDetails,
    TaskFacts,
    TaskPauseRequest,
    TaskQuery,
    TaskResumeRequest,
    TaskRow,
    TasksQuery,
    read_task,
    read_tasks,
)
from .series import RANGES, nothing, read_markers, read_percentiles, read_timeline, shown_to

TOPICS = ("tasks", "overview", "banners", "audit")
DAY = timedelta(days=1)
ERROR_GROUPS = 5
CHARTS_FOR = 60.0
"""Seconds for which charts are not made again: their steps are minutes."""
OF_ONE = (
    "Python workers start no more jobs of this task. Running jobs finish. Node and Rust workers that have "
    "the task do not know of the pause: to stop those too, pause a queue."
)
OF_ALL = (
    "Python workers start no more jobs at all. Running jobs finish. Node and Rust workers do not know of the "
    "pause."
)


async def list_tasks(call: Call, wanted: TasksQuery) -> Page:
    facts = await _all_tasks(call)
    rows = in_order(_matching(facts.rows, wanted.q), wanted.order, VALUES)
    every = next((each for each in facts.pauses if each.name is None), None)
    values = {
        "rows": rows,
        "total": len(facts.rows),
        "q": wanted.q,
        "sort": Sorting(wanted.order, partial(call.url, "/tasks", q=wanted.q or None)),
        "every": every,
        "is_recorded": facts.hour.is_recorded,
    }
    answer = Listing(rows, count=Count(len(rows)))
    return Page("tasks.html", "Tasks", here="tasks", values=values, answer=answer)


async def get_task(call: Call, wanted: TaskQuery) -> Page:
    found = await read_task(call.hub, await _all_tasks(call), wanted.name)
    if found is None:
        raise not_found("task of this name")
    title = wanted.name[:80]
    if call.is_api:
        return Page("task.html", title, answer=found)
    shown = await call.hub.shared(
        f"task {wanted.name} {wanted.range}", lambda: _charts(call.hub, wanted), max_age=CHARTS_FOR
    )
    markers = shown_to(shown["markers"], may_audit=call.may("audit.read"))
    values = {
        **shown,
        "found": found,
        "task": found.task,
        "quoted": msgspec.json.encode(wanted.name).decode(),
        "range": wanted.range,
        "ranges": list(RANGES.values()),
        "zone_info": call.zone,
        "error_title": lambda group: error_title(group, call.hub.redactor),
        "markers": markers,
    }
    return Page("task.html", title, here="tasks", values=values)


async def _all_tasks(call: Call) -> TaskFacts:
    """Everything about tasks; those who ask at once share it."""
    hub = call.hub

    async def read() -> TaskFacts:
        await hub.current()
        async with call.database.read() as connection:
            return await read_tasks(connection, hub, datetime.now(UTC))

    return await hub.shared("tasks", read, max_age=hub.pause * 0.9, topic="banners")


VALUES: dict[str, Callable[[TaskRow], Any]] = {
    "name": lambda row: row.name,
    "waiting": lambda row: row.waiting.value,
    "running": lambda row: row.running,
    "rate": lambda row: row.completed_per_minute,
    "failing": lambda row: row.failure_share,
    "p95": lambda row: row.run_time.p95,
    "wait": lambda row: row.wait_time.p95,
    "workers": lambda row: row.workers,
}


def _matching(rows: list[TaskRow], text: str) -> list[TaskRow]:
    """The tasks with this text in their name."""
    wanted = text.strip()[:200].casefold()
    return [row for row in rows if wanted in row.name.casefold()]


async def _charts(hub: Hub, wanted: TaskQuery) -> dict[str, Any]:
    """One task over time, for everyone who looks at it."""
    schema, tables, now = hub.database.schema, hub.sampler.tables, datetime.now(UTC)
    async with hub.database.read() as connection:
        timeline = await read_timeline(
            connection, schema, RANGES[wanted.range], now, tables=tables, task_identifier=wanted.name
        )
        times = await read_percentiles(
            connection, schema, timeline, tables=tables, task_identifier=wanted.name
        )
        groups: list[ErrorGroup] = []
        if tables >= ERRORS:
            groups = await list_error_groups(
                connection, schema, since=now - 14 * DAY, task_identifier=wanted.name, limit=ERROR_GROUPS
            )
        markers = await read_markers(connection, schema, timeline.start, tables=tables)
    of = timeline.tasks.get(wanted.name) or nothing(timeline.range.count)
    unknown: Points = [None] * timeline.range.count
    percentiles = times.get("", {"run_p95": unknown, "wait_p95": unknown})
    return {
        "timeline": timeline,
        "series": [
            charts.ChartSeries("completed", of.completed, "c1"),
            charts.ChartSeries("failed", of.failed, "c-fail"),
        ],
        "times": [
            charts.ChartSeries("run time, p95", percentiles["run_p95"], "c2"),
            charts.ChartSeries("wait time, p95", percentiles["wait_p95"], "c3"),
        ],
        "groups": groups,
        "markers": markers,
    }


async def pause_form(call: Call, wanted: TaskResumeRequest) -> Page:
    name = wanted.name
    return answers.pause_form(
        name or "every task", OF_ONE if name else OF_ALL,
        path="/tasks/pause", fields={"name": name}, back=_page_of(name), here="tasks",
    )  # fmt: skip


async def pause_task(call: Call, wanted: TaskPauseRequest) -> Redirect:
    """Start no more jobs of a task in Python workers; of every task if the name is empty."""
    async with call.database.write() as connection:
        found = await call.database.utils.pause(
            task=wanted.name or None, all=not wanted.name, until=wanted.end, reason=wanted.reason or None,
            connection=connection,
        )  # fmt: skip
        details = {"reason": wanted.reason, "until": found.until}
        await record(call, connection, "pause_task", target=found.what, details=details)
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(wanted.name), notice=f"Paused: {found.what}.", answer=found)


async def resume_task(call: Call, wanted: TaskResumeRequest) -> Redirect:
    name = wanted.name
    async with call.database.write() as connection:
        was_paused = await call.database.utils.resume(task=name or None, all=not name, connection=connection)
        if was_paused:
            what = f"task {name}" if name else "every task"
            await record(call, connection, "resume_task", target=what)
    call.hub.publish(*TOPICS)
    notice = "Resumed." if was_paused else "It was not paused."
    return Redirect(_page_of(name), notice=notice, answer=Resumed(was_paused))


def _page_of(name: str) -> str:
    return address("/task", name=name) if name else "/tasks"


ROUTES = [
    Route(
        "/tasks", list_tasks, "jobs.read", "Tasks: waiting, running, rates, failures, times", api=True,
        answer=Listing[TaskRow],
    ),
    Route(
        "/task", get_task, "jobs.read", "One task, with histograms and its slowest runs", api=True,
        answer=TaskDetails,
    ),
    Route("/tasks/pause", pause_form, "tasks.pause", "Pause a task", needs=PAUSES),
    Route(
        "/tasks/pause", pause_task, "tasks.pause", "Pause a task in Python workers, or all tasks",
        method="POST", needs=PAUSES, api=True, answer=Pause,
    ),
    Route(
        "/tasks/resume", resume_task, "tasks.pause", "End the pause of a task, or of all tasks",
        method="POST", needs=PAUSES, api=True, answer=Resumed,
    ),
]  # fmt: skip

"""Tasks: what each one does, and the page of one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from ...history.error_groups import ErrorGroup, list_error_groups
from .. import charts
from ..answers import Page, Period, RangeName, Redirect
from ..audit.recording import actor_of
from ..database import ERRORS
from ..overview.queries import error_title
from ..overview.series import RANGES, TaskSeries, read_markers, read_percentiles, read_timeline, shown_to
from ..web.call import Call
from ..web.routes import API, Route
from ..web.times import PERIODS, end_of_pause
from .api import TOPICS, ResumeTask, TaskQuery, TasksQuery, all_tasks, matching, one_task
from .queries import pause, resume

DAY = timedelta(days=1)
ERROR_GROUPS = 5
OF_ONE = (
    "Python workers start no more jobs of this task. Jobs that run go on. Node and Rust workers that have "
    "the task do not know of the pause: to stop those too, pause a queue."
)
OF_ALL = (
    "Python workers start no more jobs at all. Jobs that run go on. Node and Rust workers do not know of the "
    "pause."
)


class TaskPageQuery(TaskQuery):
    """Which task, and what its charts show."""

    range: RangeName = "1h"


class PauseForm(msgspec.Struct):
    """The fields of the form that pauses a task."""

    name: str = ""
    until: datetime | None = None
    period: Period | None = None
    reason: str = ""
    back: str = ""


async def tasks(call: Call) -> Page:
    wanted = call.query(TasksQuery)
    facts = await all_tasks(call)
    rows = matching(facts.rows, wanted.q)
    every = next((each for each in facts.pauses if each.name is None), None)
    values = {
        "rows": rows,
        "total": len(facts.rows),
        "q": wanted.q,
        "every": every,
        "is_recorded": facts.hour.is_recorded,
    }
    return Page("tasks.html", "Tasks", here="tasks", values=values)


async def task(call: Call) -> Page:
    wanted = call.query(TaskPageQuery)
    found = await one_task(call, wanted.name)
    values = {
        "found": found,
        "task": found.task,
        "quoted": msgspec.json.encode(wanted.name).decode(),
        "range": wanted.range,
        "ranges": list(RANGES.values()),
        "zone_info": call.zone,
        **await _charts(call, wanted),
    }
    title = wanted.name[:80]
    return Page("task.html", title, here="tasks", values=values)


async def _charts(call: Call, wanted: TaskPageQuery) -> dict[str, object]:
    hub, schema, now = call.hub, call.database.schema, datetime.now(UTC)
    async with call.database.read() as connection:
        timeline = await read_timeline(
            connection, schema, RANGES[wanted.range], now,
            tables=hub.sampler.tables, task_identifier=wanted.name,
        )  # fmt: skip
        times = await read_percentiles(
            connection, schema, timeline, tables=hub.sampler.tables, task_identifier=wanted.name
        )
        groups: list[ErrorGroup] = []
        if hub.sampler.tables >= ERRORS:
            groups = await list_error_groups(
                connection, schema, since=now - 14 * DAY, task_identifier=wanted.name, limit=ERROR_GROUPS
            )
        found = await read_markers(connection, schema, timeline.start, tables=hub.sampler.tables)
        markers = shown_to(found, may_audit=call.may("audit.read"))
    count = timeline.range.count
    of = timeline.tasks.get(wanted.name, TaskSeries([0.0] * count, [0.0] * count, [0.0] * count))
    unknown: list[float | None] = [None] * count
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
        "error_title": lambda group: error_title(group, hub.redactor),
        "markers": [charts.ChartMarker(each.at, each.text, each.kind) for each in markers],
    }


async def pause_form(call: Call) -> Page:
    name = call.query(ResumeTask).name
    title = f"Pause {name[:80]}" if name else "Pause every task"
    values = {
        "title": title, "text": OF_ONE if name else OF_ALL, "path": "/tasks/pause", "fields": {"name": name},
        "periods": PERIODS, "back": _page_of(name),
    }  # fmt: skip
    return Page("pause.html", title, here="tasks", values=values)


async def pause_posted(call: Call) -> Redirect:
    form = await call.form(PauseForm)
    until = end_of_pause(form.until, form.period)
    found = await pause(call.database, actor_of(call), form.name, until, form.reason)
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(form.name), notice=f"Paused: {found.what}.")


async def resume_posted(call: Call) -> Redirect:
    form = await call.form(ResumeTask)
    was_paused = await resume(call.database, actor_of(call), form.name)
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(form.name), notice="Resumed." if was_paused else "It was not paused.")


def _page_of(name: str) -> str:
    from urllib.parse import urlencode

    return f"/task?{urlencode({'name': name})}" if name else "/tasks"


ROUTES = [
    Route(
        method="GET", path="/tasks", handler=tasks, permission="jobs.read", summary="Tasks",
        query=TasksQuery, json_of=f"{API}/tasks",
    ),
    Route(
        method="GET", path="/task", handler=task, permission="jobs.read", summary="One task",
        query=TaskPageQuery, json_of=f"{API}/task",
    ),
    Route(
        method="GET", path="/tasks/pause", handler=pause_form, permission="tasks.pause",
        summary="Pause a task", query=ResumeTask,
    ),
    Route(
        method="POST", path="/tasks/pause", handler=pause_posted, permission="tasks.pause",
        summary="Pause a task", body=PauseForm,
    ),
    Route(
        method="POST", path="/tasks/resume", handler=resume_posted, permission="tasks.pause",
        summary="Resume a task", body=ResumeTask,
    ),
]  # fmt: skip

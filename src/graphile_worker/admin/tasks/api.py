"""`/api/v1/tasks` and `/api/v1/task`: what each task does, pausing and resuming."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from ...diagnostics.json_shapes import pause_as_json
from ..answers import Count, Listing, not_found
from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from . import TaskDetails, TaskRow
from .queries import TaskFacts, pause, read_task, read_tasks, resume

TOPICS = ("tasks", "overview", "banners", "audit")


class TasksQuery(msgspec.Struct):
    """Which tasks."""

    q: str = ""
    """Only tasks with this text in their name."""


class TaskQuery(msgspec.Struct):
    """Which task."""

    name: str


class PauseTask(msgspec.Struct):
    """What to pause, how long and why."""

    name: str = ""
    """Empty for every task."""
    until: datetime | None = None
    """None until it is resumed."""
    reason: str = ""


class ResumeTask(msgspec.Struct):
    """What to resume."""

    name: str = ""
    """Empty for what a pause of every task began."""


class Resumed(msgspec.Struct, frozen=True):
    """Whether there was a pause."""

    was_paused: bool


async def all_tasks(call: Call) -> TaskFacts:
    """Everything about tasks; those who ask at once share it."""
    hub = call.hub

    async def read() -> TaskFacts:
        await hub.current()
        async with call.database.read() as connection:
            return await read_tasks(connection, hub, datetime.now(UTC))

    return await hub.shared("tasks", read, max_age=hub.pause * 0.9, topic="banners")


def matching(rows: list[TaskRow], text: str) -> list[TaskRow]:
    """The tasks with this text in their name."""
    wanted = text.strip()[:200].casefold()
    return [row for row in rows if wanted in row.name.casefold()]


async def one_task(call: Call, name: str) -> TaskDetails:
    await call.hub.current()
    async with call.database.read() as connection:
        found = await read_task(connection, call.hub, name, datetime.now(UTC))
    if found is None:
        raise not_found("task of this name")
    return found


async def list_tasks(call: Call) -> Listing[TaskRow]:
    rows = matching((await all_tasks(call)).rows, call.query(TasksQuery).q)
    return Listing(rows, count=Count(len(rows)))


async def get_task(call: Call) -> TaskDetails:
    return await one_task(call, call.query(TaskQuery).name)


async def pause_task(call: Call) -> dict[str, object]:
    wanted = await call.json(PauseTask)
    found = await pause(call.database, actor_of(call), wanted.name, wanted.until, wanted.reason)
    call.hub.publish(*TOPICS)
    return pause_as_json(found)


async def resume_task(call: Call) -> Resumed:
    wanted = await call.json(ResumeTask)
    was_paused = await resume(call.database, actor_of(call), wanted.name)
    call.hub.publish(*TOPICS)
    return Resumed(was_paused)


ROUTES = [
    Route(
        method="GET", path=f"{API}/tasks", handler=list_tasks, permission="jobs.read", query=TasksQuery,
        answer=Listing[TaskRow], summary="Tasks: waiting, running, rates, failures, times",
    ),
    Route(
        method="GET", path=f"{API}/task", handler=get_task, permission="jobs.read", query=TaskQuery,
        answer=TaskDetails, summary="One task, with histograms and its slowest runs",
    ),
    Route(
        method="POST", path=f"{API}/tasks/pause", handler=pause_task, permission="tasks.pause",
        body=PauseTask, answer=dict[str, object], summary="Pause a task in Python workers, or all tasks",
    ),
    Route(
        method="POST", path=f"{API}/tasks/resume", handler=resume_task, permission="tasks.pause",
        body=ResumeTask, answer=Resumed, summary="End the pause of a task, or of all tasks",
    ),
]  # fmt: skip

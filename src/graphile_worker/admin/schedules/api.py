"""`/api/v1/schedules` and `/api/v1/schedule`: recurring jobs; run now, pause, resume."""

from __future__ import annotations

from ..audit.recording import actor_of
from ..security.redact import Redactor
from ..web.call import Call
from ..web.routes import API, Route
from . import (
    ScheduleAnswer,
    ScheduleListing,
    ScheduleListQuery,
    SchedulePauseRequest,
    ScheduleQuery,
    ScheduleView,
    queries,
)

TOPICS = ("schedules", "overview", "banners", "audit")


async def list_schedules(call: Call) -> ScheduleListing:
    wanted = call.query(ScheduleListQuery)
    return await queries.list_schedules(call.database, redactor_of(call), wanted.after, wanted.limit)


async def get_schedule(call: Call) -> ScheduleView:
    wanted = call.query(ScheduleQuery)
    return await queries.get_schedule(call.database, redactor_of(call), wanted.identifier)


async def run(call: Call) -> ScheduleAnswer:
    wanted = await call.json(ScheduleQuery)
    found = await queries.run_now(call.database, actor_of(call), wanted.identifier)
    call.hub.publish(*TOPICS, "jobs")
    return found


async def pause(call: Call) -> ScheduleAnswer:
    wanted = await call.json(SchedulePauseRequest)
    found = await queries.pause(
        call.database, actor_of(call), wanted.identifier, until=wanted.until, reason=wanted.reason
    )
    call.hub.publish(*TOPICS)
    return found


async def resume(call: Call) -> ScheduleAnswer:
    wanted = await call.json(ScheduleQuery)
    found = await queries.resume(call.database, actor_of(call), wanted.identifier)
    call.hub.publish(*TOPICS)
    return found


def redactor_of(call: Call) -> Redactor:
    return Redactor.of(call.app.settings)


ROUTES = [
    Route(
        method="GET", path=f"{API}/schedules", handler=list_schedules, permission="jobs.read",
        query=ScheduleListQuery, answer=ScheduleListing,
        summary="Recurring jobs: next runs, last run, pauses, workers",
    ),
    Route(
        method="GET", path=f"{API}/schedule", handler=get_schedule, permission="jobs.read",
        query=ScheduleQuery, answer=ScheduleView, summary="One recurring job, with its last runs",
    ),
    Route(
        method="POST", path=f"{API}/schedules/run", handler=run, permission="schedules.run",
        body=ScheduleQuery, answer=ScheduleAnswer, summary="Add the job of a recurring job now",
    ),
    Route(
        method="POST", path=f"{API}/schedules/pause", handler=pause, permission="schedules.pause",
        body=SchedulePauseRequest, answer=ScheduleAnswer, summary="Pause a recurring job in Python workers",
    ),
    Route(
        method="POST", path=f"{API}/schedules/resume", handler=resume, permission="schedules.pause",
        body=ScheduleQuery, answer=ScheduleAnswer, summary="End the pause of a recurring job",
    ),
]  # fmt: skip

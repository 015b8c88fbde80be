"""`/api/v1/schedules` and `/api/v1/schedule`: recurring jobs; run now, pause, resume."""

from __future__ import annotations

from ..audit import actor_of
from ..call import Call
from ..models.schedules import (
    ScheduleAnswer,
    ScheduleListing,
    ScheduleListQuery,
    SchedulePauseRequest,
    ScheduleQuery,
    ScheduleView,
)
from ..redact import Redactor
from ..routes import API, Route
from ..service import schedules

TOPICS = ("schedules", "overview", "banners", "audit")


async def list_schedules(call: Call) -> ScheduleListing:
    wanted = call.query(ScheduleListQuery)
    return await schedules.list_schedules(call.database, redactor_of(call), wanted.after, wanted.limit)


async def get_schedule(call: Call) -> ScheduleView:
    wanted = call.query(ScheduleQuery)
    return await schedules.get_schedule(call.database, redactor_of(call), wanted.identifier)


async def run(call: Call) -> ScheduleAnswer:
    wanted = await call.json(ScheduleQuery)
    found = await schedules.run_now(call.database, actor_of(call), wanted.identifier)
    call.hub.publish(*TOPICS, "jobs")
    return found


async def pause(call: Call) -> ScheduleAnswer:
    wanted = await call.json(SchedulePauseRequest)
    found = await schedules.pause(
        call.database, actor_of(call), wanted.identifier, until=wanted.until, reason=wanted.reason
    )
    call.hub.publish(*TOPICS)
    return found


async def resume(call: Call) -> ScheduleAnswer:
    wanted = await call.json(ScheduleQuery)
    found = await schedules.resume(call.database, actor_of(call), wanted.identifier)
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

"""Schedules: recurring jobs, when they run, what became of the last run; run now, pause, resume."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..database import SCHEDULE_PAUSES
from ..web.call import Call
from ..web.routes import Route
from ..web.show import lay_out
from ..web.times import PERIODS, end_of_pause, zone_named
from . import (
    ScheduleAnswer,
    ScheduleListing,
    ScheduleListQuery,
    SchedulePauseRequest,
    ScheduleQuery,
    ScheduleView,
    queries,
)

REGISTERED = frozenset({queries.TABLE})
PAUSED = frozenset({SCHEDULE_PAUSES})
TOPICS = ("schedules", "overview", "banners", "audit", "jobs")


async def list_schedules(call: Call) -> Page:
    wanted = call.query(ScheduleListQuery)
    found = await queries.list_schedules(call.database, call.redactor, wanted.after, wanted.limit)
    values = {"found": found, "is_first": wanted.after is None}
    return Page("schedules.html", "Schedules", here="schedules", values=values, answer=found)


async def get_schedule(call: Call) -> Page:
    found = await queries.get_schedule(call.database, call.redactor, call.query(ScheduleQuery).identifier)
    values = {
        "schedule": found,
        "payload": None if found.payload is None else lay_out(msgspec.json.encode(found.payload).decode()),
        "item_zone": zone_named(found.zone or "UTC"),
    }
    return Page("schedule.html", found.identifier[:80], here="schedules", values=values, answer=found)


async def pause_form(call: Call) -> Page:
    wanted = call.query(ScheduleQuery)
    values = {
        "title": f"Pause {wanted.identifier[:80]}",
        "text": "Python workers add none of its jobs. Runs that become due meanwhile are skipped, and "
        "not made up for. Node workers do not know of the pause.",
        "path": "/schedules/pause", "fields": {"identifier": wanted.identifier}, "periods": PERIODS,
        "back": _page_of(wanted.identifier),
    }  # fmt: skip
    return Page("pause.html", f"Pause {wanted.identifier[:80]}", here="schedules", values=values)


async def pause(call: Call) -> Redirect:
    wanted = await call.body(SchedulePauseRequest)
    answer = await queries.pause(
        call.database, actor_of(call), wanted.identifier,
        until=end_of_pause(wanted.until, wanted.period), reason=wanted.reason,
    )  # fmt: skip
    return _done(call, answer)


async def resume(call: Call) -> Redirect:
    wanted = await call.body(ScheduleQuery)
    answer = await queries.resume(call.database, actor_of(call), wanted.identifier)
    return _done(call, answer)


async def run(call: Call) -> Page | Redirect:
    wanted = await call.body(ScheduleQuery)
    if not await call.is_confirmed():
        found = await queries.get_schedule(call.database, call.redactor, wanted.identifier)
        payload = msgspec.json.encode(found.payload).decode() if found.payload else "{}"
        points = [f"Task: {(found.task_identifier or '')[:200]}", f"Payload: {payload[:500]}"]
        if key := found.options.get("job_key"):
            points.append(f"A waiting job with the key {str(key)[:200]} is replaced.")
        return confirmation(
            f"Run {wanted.identifier[:80]} now?",
            "This adds its job once more. The next regular run is not affected.",
            path="/schedules/run",
        fields={"identifier": wanted.identifier}, submit="Run now",
            back=_page_of(wanted.identifier), tone="primary", points=points, here="schedules",
        )  # fmt: skip
    answer = await queries.run_now(call.database, actor_of(call), wanted.identifier)
    return _done(call, answer)


def _done(call: Call, answer: ScheduleAnswer) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(answer.identifier), notice=answer.done, answer=answer)


def _page_of(identifier: str) -> str:
    return "/schedule?" + urlencode({"identifier": identifier})


ROUTES = [
    Route(
        method="GET", path="/schedules", api="/schedules", handler=list_schedules, permission="jobs.read",
        query=ScheduleListQuery, answer=ScheduleListing,
        summary="Recurring jobs: next runs, last run, pauses, workers",
    ),
    Route(
        method="GET", path="/schedule", api="/schedule", handler=get_schedule, permission="jobs.read",
        query=ScheduleQuery, answer=ScheduleView, summary="One recurring job, with its last runs",
    ),
    Route(
        method="GET", path="/schedules/pause", needs=PAUSED, handler=pause_form, permission="schedules.pause",
        summary="Pause a recurring job", query=ScheduleQuery,
    ),
    Route(
        method="POST", path="/schedules/pause", needs=PAUSED, api="/schedules/pause", handler=pause,
        permission="schedules.pause", body=SchedulePauseRequest, answer=ScheduleAnswer,
        summary="Pause a recurring job in Python workers",
    ),
    Route(
        method="POST", path="/schedules/resume", needs=PAUSED, api="/schedules/resume", handler=resume,
        permission="schedules.pause", body=ScheduleQuery, answer=ScheduleAnswer,
        summary="End the pause of a recurring job",
    ),
    Route(
        method="POST", path="/schedules/run", needs=REGISTERED,
        api="/schedules/run", handler=run, permission="schedules.run",
        body=ScheduleQuery, answer=ScheduleAnswer, summary="Add the job of a recurring job now",
    ),
]  # fmt: skip

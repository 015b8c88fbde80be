"""Schedules: recurring jobs, when they run, what became of the last run; run now, pause, resume."""

from __future__ import annotations

import msgspec

from .. import answers
from ..answers import Page, Redirect, address, confirmation
from ..audit.recording import because, record
from ..database import SCHEDULE_PAUSES
from ..web.call import Call
from ..web.routes import Route
from ..web.show import lay_out, zone_named
from . import queries
from .queries import (
    ScheduleAnswer,
    ScheduleListing,
    ScheduleListQuery,
    SchedulePauseRequest,
    ScheduleQuery,
    ScheduleView,
)

REGISTERED = frozenset({queries.TABLE})
PAUSED = frozenset({SCHEDULE_PAUSES})
TOPICS = ("schedules", "overview", "banners", "audit", "jobs")


async def list_schedules(call: Call, wanted: ScheduleListQuery) -> Page:
    found = await queries.list_schedules(call.database, call.redactor, wanted.after, wanted.limit)
    values = {"found": found, "is_first": wanted.after is None}
    return Page("schedules.html", "Schedules", here="schedules", values=values, answer=found)


async def get_schedule(call: Call, wanted: ScheduleQuery) -> Page:
    found = await queries.get_schedule(call.database, call.redactor, wanted.identifier)
    values = {
        "schedule": found,
        "payload": None if found.payload is None else lay_out(msgspec.json.encode(found.payload).decode()),
        "item_zone": zone_named(found.zone or "UTC"),
    }
    return Page("schedule.html", found.identifier[:80], here="schedules", values=values, answer=found)


async def pause_form(call: Call, wanted: ScheduleQuery) -> Page:
    identifier = wanted.identifier
    return answers.pause_form(
        identifier,
        "Python workers add none of its jobs. Runs that come due meanwhile are skipped, and not "
        "backfilled. Node workers do not know of the pause.",
        path="/schedules/pause", fields={"identifier": identifier}, back=_page_of(identifier),
        here="schedules",
    )  # fmt: skip


async def pause(call: Call, wanted: SchedulePauseRequest) -> Redirect:
    identifier = wanted.identifier
    async with call.database.write() as connection:
        if not await call.database.utils.schedules.list(identifier, connection=connection):
            raise queries.unknown(identifier)
        found = await call.database.utils.schedules.pause(
            identifier, until=wanted.end, reason=because(call, wanted.reason), connection=connection
        )
        details = {"reason": wanted.reason, "until": found.until}
        await record(call, connection, "pause_schedule", target=identifier, details=details)
    return _done(call, identifier, f"Paused {identifier}{found.terms}.")


async def resume(call: Call, wanted: ScheduleQuery) -> Redirect:
    identifier = wanted.identifier
    async with call.database.write() as connection:
        was_paused = await call.database.utils.schedules.resume(identifier, connection=connection)
        if was_paused:
            await record(call, connection, "resume_schedule", target=identifier)
    done = f"Resumed {identifier}." if was_paused else f"{identifier} was not paused."
    return _done(call, identifier, done)


async def run(call: Call, wanted: ScheduleQuery) -> Page | Redirect:
    if not await call.is_confirmed():
        found = await queries.get_schedule(call.database, call.redactor, wanted.identifier)
        payload = msgspec.json.encode(found.payload).decode() if found.payload else "{}"
        points = [f"Task: {(found.task_identifier or '')[:200]}", f"Payload: {payload[:500]}"]
        if key := found.options.get("job_key"):
            points.append(f"A waiting job with the key {str(key)[:200]} is replaced.")
        return confirmation(
            f"Run {wanted.identifier[:80]} now?",
            "This adds its job once more. The next regular run is not affected.",
            path="/schedules/run", fields={"identifier": wanted.identifier}, submit="Run now",
            back=_page_of(wanted.identifier), tone="primary", points=points, here="schedules",
        )  # fmt: skip
    identifier = wanted.identifier
    async with call.database.write() as connection:
        job = await call.database.utils.schedules.run_now(identifier, connection=connection)
        await record(call, connection, "run_schedule", target=identifier, jobs=1, job_ids=[job.id])
    return _done(call, identifier, f"Added job {job.id}.", job.id)


def _done(call: Call, identifier: str, done: str, job_id: int | None = None) -> Redirect:
    call.hub.publish(*TOPICS)
    answer = ScheduleAnswer(identifier=identifier, done=done, job_id=job_id)
    return Redirect(_page_of(identifier), notice=done, answer=answer)


def _page_of(identifier: str) -> str:
    return address("/schedule", identifier=identifier)


ROUTES = [
    Route(
        "/schedules", list_schedules, "jobs.read", "Recurring jobs: next runs, last run, pauses, workers",
        api=True, answer=ScheduleListing,
    ),
    Route(
        "/schedule", get_schedule, "jobs.read", "One recurring job, with its last runs", api=True,
        answer=ScheduleView,
    ),
    Route("/schedules/pause", pause_form, "schedules.pause", "Pause a recurring job", needs=PAUSED),
    Route(
        "/schedules/pause", pause, "schedules.pause", "Pause a recurring job in Python workers",
        method="POST", needs=PAUSED, api=True, answer=ScheduleAnswer,
    ),
    Route(
        "/schedules/resume", resume, "schedules.pause", "End the pause of a recurring job", method="POST",
        needs=PAUSED, api=True, answer=ScheduleAnswer,
    ),
    Route(
        "/schedules/run", run, "schedules.run", "Add the job of a recurring job now", method="POST",
        needs=REGISTERED, api=True, answer=ScheduleAnswer,
    ),
]  # fmt: skip

"""Schedules: recurring jobs, when they run, what became of the last run; run now, pause, resume."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from ..web.show import lay_out
from ..web.times import PERIODS, end_of_pause, zone_named
from . import ScheduleForm, ScheduleListQuery, ScheduleQuery, ScheduleView, queries
from .api import TOPICS, redactor_of


async def list_page(call: Call) -> Page:
    wanted = call.query(ScheduleListQuery)
    found = await queries.list_schedules(call.database, redactor_of(call), wanted.after, wanted.limit)
    values = {"found": found, "is_first": wanted.after is None}
    return Page("schedules.html", "Schedules", here="schedules", values=values)


async def schedule_page(call: Call) -> Page:
    found = await queries.get_schedule(call.database, redactor_of(call), call.query(ScheduleQuery).identifier)
    values = {
        "schedule": found,
        "payload": None if found.payload is None else lay_out(msgspec.json.encode(found.payload).decode()),
        "item_zone": zone_named(found.zone or "UTC"),
    }
    return Page("schedule.html", found.identifier[:80], here="schedules", values=values)


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
    form = await call.form(ScheduleForm)
    answer = await queries.pause(
        call.database, actor_of(call), form.identifier,
        until=end_of_pause(form.until, form.period), reason=form.reason,
    )  # fmt: skip
    return _done(call, form.identifier, answer.done)


async def resume(call: Call) -> Redirect:
    form = await call.form(ScheduleForm)
    answer = await queries.resume(call.database, actor_of(call), form.identifier)
    return _done(call, form.identifier, answer.done)


async def run(call: Call) -> Page | Redirect:
    form = await call.form(ScheduleForm)
    if not form.confirmed:
        found = await queries.get_schedule(call.database, redactor_of(call), form.identifier)
        payload = msgspec.json.encode(found.payload).decode() if found.payload else "{}"
        points = [f"Task: {(found.task or '')[:200]}", f"Payload: {payload[:500]}"]
        if key := found.options.get("job_key"):
            points.append(f"A waiting job with the key {str(key)[:200]} is replaced.")
        return confirmation(
            f"Run {form.identifier[:80]} now?",
            "This adds its job once more. The next regular run is not affected.",
            path="/schedules/run", fields={"identifier": form.identifier}, submit="Run now",
            back=_page_of(form.identifier), tone="primary", points=points, here="schedules",
        )  # fmt: skip
    answer = await queries.run_now(call.database, actor_of(call), form.identifier)
    return _done(call, form.identifier, answer.done)


def _done(call: Call, identifier: str, notice: str) -> Redirect:
    call.hub.publish(*TOPICS, "jobs")
    return Redirect(_page_of(identifier), notice=notice)


def _page_of(identifier: str) -> str:
    return "/schedule?" + urlencode({"identifier": identifier})


def _row(view: ScheduleView) -> list[object]:
    upcoming = view.next_runs[0] if view.next_runs else None
    outcome = view.last.state if view.last is not None else None
    return [view.identifier, view.words, view.zone, upcoming, view.last_execution, outcome, view.state]


ROUTES = [
    Route(
        method="GET", path="/schedules", handler=list_page, permission="jobs.read", summary="Schedules",
        query=ScheduleListQuery, json_of=f"{API}/schedules",
    ),
    Route(
        method="GET", path="/schedule", handler=schedule_page, permission="jobs.read",
        summary="One recurring job", query=ScheduleQuery, json_of=f"{API}/schedule",
    ),
    Route(
        method="GET", path="/schedules/pause", handler=pause_form, permission="schedules.pause",
        summary="Pause a recurring job", query=ScheduleQuery,
    ),
    Route(
        method="POST", path="/schedules/pause", handler=pause, permission="schedules.pause",
        summary="Pause a recurring job", body=ScheduleForm,
    ),
    Route(
        method="POST", path="/schedules/resume", handler=resume, permission="schedules.pause",
        summary="Resume a recurring job", body=ScheduleForm,
    ),
    Route(
        method="POST", path="/schedules/run", handler=run, permission="schedules.run",
        summary="Run a recurring job now", body=ScheduleForm,
    ),
]  # fmt: skip

"""Queues: depth, age, what they are busy with; pause, resume, free, concurrency."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from ..answers import Page, Problem, Redirect
from ..api.queues import TOPICS
from ..audit import actor_of
from ..call import Call
from ..confirm import confirmation
from ..models.queues import QueueForm, QueueListQuery, QueueQuery
from ..routes import API, Route
from ..service import queues
from .pause_terms import PERIODS, end_of_pause


async def list_page(call: Call) -> Page:
    wanted = call.query(QueueListQuery)
    found = await queues.list_queues(call.database, wanted.q, wanted.after, wanted.limit)
    values = {"found": found, "q": wanted.q, "is_first": not wanted.after}
    return Page("queues.html", "Queues", here="queues", values=values)


async def queue_page(call: Call) -> Page:
    found = await queues.get_queue(call.database, call.query(QueueQuery).name)
    quoted = msgspec.json.encode(found.queue.name).decode()
    values = {"found": found, "queue": found.queue, "quoted": quoted}
    return Page("queue.html", f"Queue {found.queue.name[:80]}", here="queues", values=values)


async def pause_form(call: Call) -> Page:
    wanted = call.query(QueueQuery)
    values = {
        "title": f"Pause {wanted.name[:80]}",
        "text": "Workers of every runtime start no more jobs of this queue. A job of it that is running goes "
        "on. Jobs can be added, and wait.",
        "path": "/queues/pause", "fields": {"name": wanted.name}, "periods": PERIODS,
        "back": _page_of(wanted.name),
    }  # fmt: skip
    return Page("pause.html", f"Pause {wanted.name[:80]}", here="queues", values=values)


async def pause(call: Call) -> Redirect:
    form = await call.form(QueueForm)
    answer = await queues.pause(
        call.database, actor_of(call), form.name, until=end_of_pause(call, form.until, form.period),
        reason=form.reason,
    )  # fmt: skip
    return _done(call, form.name, answer.done)


async def resume(call: Call) -> Redirect:
    form = await call.form(QueueForm)
    answer = await queues.resume(call.database, actor_of(call), form.name)
    return _done(call, form.name, answer.done)


async def unlock(call: Call) -> Page | Redirect:
    form = await call.form(QueueForm)
    if not form.confirmed:
        found = await queues.get_queue(call.database, form.name)
        is_stuck = set(found.queue.locked_by) <= set(found.stuck)
        return confirmation(
            f"Free the queue {form.name[:80]}?",
            "The worker that has it locked is dead."
            if is_stuck
            else "The worker that has it locked may be alive. If it is, two jobs of the queue run at once.",
            path="/queues/unlock", fields={"name": form.name}, submit="Free the queue",
            back=_page_of(form.name), typed="" if is_stuck else form.name, here="queues",
        )  # fmt: skip
    answer = await queues.unlock(call.database, actor_of(call), form.name, form.typed)
    return _done(call, form.name, answer.done)


async def concurrency_form(call: Call) -> Page:
    found = await queues.get_queue(call.database, call.query(QueueQuery).name)
    return Page(
        "queue_concurrency.html", f"Concurrency of {found.queue.name[:80]}", here="queues",
        values={"queue": found.queue, "back": _page_of(found.queue.name)},
    )  # fmt: skip


async def concurrency(call: Call) -> Redirect:
    form = await call.form(QueueForm)
    if form.concurrency and (not form.concurrency.isdecimal() or len(form.concurrency) > 6):
        raise Problem(400, "A value is not valid", "concurrency: expected a number, or nothing.")
    number = int(form.concurrency) if form.concurrency else None
    answer = await queues.set_concurrency(call.database, actor_of(call), form.name, number)
    return _done(call, form.name, answer.done)


def _done(call: Call, name: str, notice: str) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(name), notice=notice)


def _page_of(name: str) -> str:
    return "/queue?" + urlencode({"name": name})


ROUTES = [
    Route(
        method="GET", path="/queues", handler=list_page, permission="jobs.read", summary="Queues",
        query=QueueListQuery, json_of=f"{API}/queues",
    ),
    Route(
        method="GET", path="/queue", handler=queue_page, permission="jobs.read", summary="One queue",
        query=QueueQuery, json_of=f"{API}/queue",
    ),
    Route(
        method="GET", path="/queues/pause", handler=pause_form, permission="queues.pause",
        summary="Pause a queue", query=QueueQuery,
    ),
    Route(
        method="POST", path="/queues/pause", handler=pause, permission="queues.pause",
        summary="Pause a queue", body=QueueForm,
    ),
    Route(
        method="POST", path="/queues/resume", handler=resume, permission="queues.pause",
        summary="Resume a queue", body=QueueForm,
    ),
    Route(
        method="POST", path="/queues/unlock", handler=unlock, permission="workers.unlock",
        summary="Free a queue from a dead worker", body=QueueForm,
    ),
    Route(
        method="GET", path="/queues/concurrency", handler=concurrency_form, permission="queues.pause",
        summary="Set the concurrency of a queue", query=QueueQuery,
    ),
    Route(
        method="POST", path="/queues/concurrency", handler=concurrency, permission="queues.pause",
        summary="Set the concurrency of a queue", body=QueueForm,
    ),
]  # fmt: skip

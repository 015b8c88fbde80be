"""Queues: depth, age, what they are busy with; pause, resume, free, concurrency."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..database import PAUSES, TRACKS
from ..web.call import Call
from ..web.routes import Route
from ..web.times import PERIODS, end_of_pause
from . import (
    QueueAnswer,
    QueueConcurrencyRequest,
    QueueDetails,
    QueueListing,
    QueueListQuery,
    QueuePauseRequest,
    QueueQuery,
    QueueUnlockRequest,
    queries,
)

TOPICS = ("queues", "overview", "banners", "audit")


async def list_queues(call: Call) -> Page:
    wanted = call.query(QueueListQuery)
    found = await queries.list_queues(call.database, wanted.q, wanted.after, wanted.limit)
    values = {"found": found, "q": wanted.q, "is_first": not wanted.after}
    return Page("queues.html", "Queues", here="queues", values=values, answer=found)


async def get_queue(call: Call) -> Page:
    found = await queries.get_queue(call.database, call.query(QueueQuery).name)
    quoted = msgspec.json.encode(found.queue.queue_name).decode()
    values = {"found": found, "queue": found.queue, "quoted": quoted}
    return Page(
        "queue.html", f"Queue {found.queue.queue_name[:80]}", here="queues", values=values, answer=found
    )


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
    wanted = await call.body(QueuePauseRequest)
    until = end_of_pause(wanted.until, wanted.period)
    return _done(
        call,
        await queries.pause(call.database, actor_of(call), wanted.name, until=until, reason=wanted.reason),
    )


async def resume(call: Call) -> Redirect:
    wanted = await call.body(QueueQuery)
    return _done(call, await queries.resume(call.database, actor_of(call), wanted.name))


async def unlock(call: Call) -> Page | Redirect:
    wanted = await call.body(QueueUnlockRequest)
    if not await call.is_confirmed():
        found = await queries.get_queue(call.database, wanted.name)
        is_stuck = set(found.queue.holders) <= set(found.stuck)
        return confirmation(
            f"Free the queue {wanted.name[:80]}?",
            "The worker that has it locked is dead."
            if is_stuck
            else "The worker that has it locked may be alive. If it is, two jobs of the queue run at once.",
            path="/queues/unlock", fields={"name": wanted.name}, submit="Free the queue",
            back=_page_of(wanted.name), typed="" if is_stuck else wanted.name, here="queues",
        )  # fmt: skip
    return _done(call, await queries.unlock(call.database, actor_of(call), wanted.name, wanted.typed))


async def concurrency_form(call: Call) -> Page:
    found = await queries.get_queue(call.database, call.query(QueueQuery).name)
    return Page(
        "queue_concurrency.html", f"Concurrency of {found.queue.queue_name[:80]}", here="queues",
        values={"queue": found.queue, "back": _page_of(found.queue.queue_name)},
    )  # fmt: skip


async def concurrency(call: Call) -> Redirect:
    wanted = await call.body(QueueConcurrencyRequest)
    answer = await queries.set_concurrency(call.database, actor_of(call), wanted.name, wanted.concurrency)
    return _done(call, answer)


def _done(call: Call, answer: QueueAnswer) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(answer.name), notice=answer.done, answer=answer)


def _page_of(name: str) -> str:
    return "/queue?" + urlencode({"name": name})


ROUTES = [
    Route(
        method="GET", path="/queues", api="/queues", handler=list_queues, permission="jobs.read",
        query=QueueListQuery, answer=QueueListing, summary="Named queues with locks or waiting jobs",
    ),
    Route(
        method="GET", path="/queue", api="/queue", handler=get_queue, permission="jobs.read",
        query=QueueQuery, answer=QueueDetails, summary="One queue, with what runs in it",
    ),
    Route(
        method="GET", path="/queues/pause", needs=PAUSES, handler=pause_form, permission="queues.pause",
        summary="Pause a queue", query=QueueQuery,
    ),
    Route(
        method="POST", path="/queues/pause", needs=PAUSES,
        api="/queues/pause", handler=pause, permission="queues.pause",
        body=QueuePauseRequest, answer=QueueAnswer, summary="Pause a queue for workers of every runtime",
    ),
    Route(
        method="POST", path="/queues/resume", needs=PAUSES, api="/queues/resume", handler=resume,
        permission="queues.pause", body=QueueQuery, answer=QueueAnswer, summary="End the pause of a queue",
    ),
    Route(
        method="POST", path="/queues/unlock", api="/queues/unlock", handler=unlock,
        permission="workers.unlock", body=QueueUnlockRequest, answer=QueueAnswer,
        summary="Free a queue from a dead worker",
    ),
    Route(
        method="GET", path="/queues/concurrency", needs=TRACKS,
        handler=concurrency_form, permission="queues.pause",
        summary="Set the concurrency of a queue", query=QueueQuery,
    ),
    Route(
        method="POST", path="/queues/concurrency", needs=TRACKS,
        api="/queues/concurrency", handler=concurrency,
        permission="queues.pause", body=QueueConcurrencyRequest, answer=QueueAnswer,
        summary="Set how many jobs of a queue run at once",
    ),
]  # fmt: skip

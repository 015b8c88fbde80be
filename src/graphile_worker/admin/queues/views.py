"""Queues: depth, age, what they are busy with; pause, resume, free, concurrency."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from .. import answers, charts
from ..answers import Page, Problem, Redirect, Sorting, address, confirmation, in_order
from ..audit.recording import because, record
from ..database import HISTORY, PAUSES, TRACKS, Database
from ..tasks.series import RANGES
from ..web.call import Call
from ..web.routes import Route
from . import queries
from .queries import (
    FinishedSeries,
    QueueAnswer,
    QueueConcurrencyRequest,
    QueueDetails,
    QueueListing,
    QueueListQuery,
    QueuePageQuery,
    QueuePauseRequest,
    QueueQuery,
    QueueUnlockRequest,
    QueueView,
)

TOPICS = ("queues", "overview", "banners", "audit")
CHART_FOR = 60.0
"""Seconds for which a chart is not made again: its steps are minutes."""
VALUES: dict[str, Callable[[QueueView], Any]] = {
    "name": lambda queue: queue.queue_name,
    "waiting": lambda queue: queue.waiting,
    "ready": lambda queue: queue.ready,
    "oldest": lambda queue: queue.oldest,
    "locked": lambda queue: queue.locked_at,
    "concurrency": lambda queue: queue.concurrency,
}


async def list_queues(call: Call, wanted: QueueListQuery) -> Page:
    found = await queries.list_queues(call.database, wanted.q, wanted.after, wanted.limit)
    found = msgspec.structs.replace(found, items=in_order(found.items, wanted.order, VALUES))
    order = None if wanted.order == "usual" else wanted.order
    sort = Sorting(wanted.order, partial(call.url, "/queues", q=wanted.q or None, after=wanted.after or None))
    values = {"found": found, "q": wanted.q, "is_first": not wanted.after, "order": order, "sort": sort}
    return Page("queues.html", "Queues", here="queues", values=values, answer=found)


async def get_queue(call: Call, wanted: QueuePageQuery) -> Page:
    found = await queries.get_queue(call.database, wanted.name)
    title = f"Queue {found.queue.queue_name[:80]}"
    if call.is_api:
        return Page("queue.html", title, answer=found)
    finished = await call.hub.shared(
        f"queue {wanted.name} {wanted.range}", lambda: _finished(call.database, wanted), max_age=CHART_FOR
    )
    series = []
    if finished is not None and finished.has_completed:
        series.append(charts.ChartSeries("completed", finished.completed, "c1"))
    if finished is not None and not finished.is_empty:
        series.append(charts.ChartSeries("failed", finished.failed, "c-fail"))
    values = {
        "found": found, "queue": found.queue, "zone_info": call.zone, "range": RANGES[wanted.range],
        "quoted": msgspec.json.encode(found.queue.queue_name).decode(),
        "finished": finished, "series": series, "most": queries.MOST_FINISHED,
        "ranges": [
            (each.label, call.url("/queue", name=wanted.name, range=each.name), each.name == wanted.range)
            for each in RANGES.values()
        ],
    }  # fmt: skip
    return Page("queue.html", title, here="queues", values=values)


async def _finished(database: Database, wanted: QueuePageQuery) -> FinishedSeries | None:
    """The chart of a queue, for everyone who looks at it; None if there is no history to read."""
    async with database.read() as connection:
        if not (await database.own_tables(connection)) >= HISTORY:
            return None
        return await queries.read_finished(
            connection, database.schema, wanted.name, RANGES[wanted.range], datetime.now(UTC)
        )


async def pause_form(call: Call, wanted: QueueQuery) -> Page:
    name = wanted.name
    return answers.pause_form(
        name,
        "Workers of every runtime start no more jobs of this queue. A running job of it finishes. "
        "Jobs can be added, and wait.",
        path="/queues/pause", fields={"name": name}, back=_page_of(name), here="queues",
    )  # fmt: skip


async def pause(call: Call, wanted: QueuePauseRequest) -> Redirect:
    async with call.database.write() as connection:
        found = await call.database.utils.queues.pause(
            wanted.name, until=wanted.end, reason=because(call, wanted.reason), connection=connection
        )
        details = {"reason": wanted.reason, "until": found.until}
        await record(call, connection, "pause_queue", target=wanted.name, details=details)
    return _done(call, wanted.name, f"Paused {found.what}{found.terms}.")


async def resume(call: Call, wanted: QueueQuery) -> Redirect:
    name = wanted.name
    async with call.database.write() as connection:
        was_paused = await call.database.utils.queues.resume(name, connection=connection)
        if was_paused:
            await record(call, connection, "resume_queue", target=name)
    return _done(call, name, f"Resumed queue {name}." if was_paused else f"{name} was not paused.")


async def unlock(call: Call, wanted: QueueUnlockRequest) -> Page | Redirect:
    """Free a queue from dead workers. If one may be alive, the name must be typed."""
    found = await queries.get_queue(call.database, wanted.name)
    holders = found.queue.holders
    living = [holder for holder in holders if holder not in found.stuck]
    if not await call.is_confirmed():
        return confirmation(
            f"Free the queue {wanted.name[:80]}?",
            "The worker that has it locked may be alive. If it is, two jobs of the queue run at once."
            if living
            else "The worker that has it locked is dead.",
            path="/queues/unlock", fields={"name": wanted.name}, submit="Free the queue",
            back=_page_of(wanted.name), typed=wanted.name if living else "", here="queues",
        )  # fmt: skip
    if not holders:
        raise Problem(409, "The queue is not locked", "A worker has freed it meanwhile, or it is paused.")
    if living and wanted.typed != wanted.name:
        raise Problem(
            409,
            "The worker that has the queue may be alive",
            f"{living[0][:200]} has it locked. If it is freed while a job of it runs, two jobs of the queue "
            "run at the same time. If you are certain that the worker is dead, type the name of the queue.",
            typed=wanted.name,
        )
    async with call.database.write() as connection:
        freed = await queries.free(call.database, connection, wanted.name, holders)
        await record(call, connection, "unlock_queue", target=wanted.name, details={"workers": holders})
    return _done(call, wanted.name, "Freed the queue." if freed else "It was freed meanwhile.")


async def concurrency_form(call: Call, wanted: QueueQuery) -> Page:
    found = await queries.get_queue(call.database, wanted.name)
    return Page(
        "queue_concurrency.html", f"Concurrency of {found.queue.queue_name[:80]}", here="queues",
        values={"queue": found.queue, "back": _page_of(found.queue.queue_name)},
    )  # fmt: skip


async def concurrency(call: Call, wanted: QueueConcurrencyRequest) -> Redirect:
    name, most = wanted.name, wanted.concurrency
    async with call.database.write() as connection:
        await call.database.utils.queues.set_concurrency(name, most, connection=connection)
        await record(call, connection, "set_queue_concurrency", target=name, details={"concurrency": most})
    done = f"Up to {most} jobs may run at once." if most else "Its tasks decide how many run at once."
    return _done(call, name, done)


def _done(call: Call, name: str, done: str) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(name), notice=done, answer=QueueAnswer(name=name, done=done))


def _page_of(name: str) -> str:
    return address("/queue", name=name)


ROUTES = [
    Route(
        "/queues", list_queues, "jobs.read", "Named queues with locks or waiting jobs", api=True,
        answer=QueueListing,
    ),
    Route("/queue", get_queue, "jobs.read", "One queue, with what runs in it", api=True, answer=QueueDetails),
    Route("/queues/pause", pause_form, "queues.pause", "Pause a queue", needs=PAUSES),
    Route(
        "/queues/pause", pause, "queues.pause", "Pause a queue for workers of every runtime", method="POST",
        needs=PAUSES, api=True, answer=QueueAnswer,
    ),
    Route(
        "/queues/resume", resume, "queues.pause", "End the pause of a queue", method="POST", needs=PAUSES,
        api=True, answer=QueueAnswer,
    ),
    Route(
        "/queues/unlock", unlock, "workers.unlock", "Free a queue from a dead worker", method="POST",
        api=True, answer=QueueAnswer,
    ),
    Route(
        "/queues/concurrency", concurrency_form, "queues.pause", "Set the concurrency of a queue",
        needs=TRACKS,
    ),
    Route(
        "/queues/concurrency", concurrency, "queues.pause", "Set how many jobs of a queue run at once",
        method="POST", needs=TRACKS, api=True, answer=QueueAnswer,
    ),
]  # fmt: skip

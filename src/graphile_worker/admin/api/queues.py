"""`/api/v1/queues` and `/api/v1/queue`: named queues; pause, resume, free, concurrency."""

from __future__ import annotations

from ..audit import actor_of
from ..call import Call
from ..models.queues import (
    QueueAnswer,
    QueueConcurrencyRequest,
    QueueDetails,
    QueueListing,
    QueueListQuery,
    QueuePauseRequest,
    QueueQuery,
    QueueUnlockRequest,
)
from ..routes import API, Route
from ..service import queues

TOPICS = ("queues", "overview", "banners", "audit")


async def list_queues(call: Call) -> QueueListing:
    wanted = call.query(QueueListQuery)
    return await queues.list_queues(call.database, wanted.q, wanted.after, wanted.limit)


async def get_queue(call: Call) -> QueueDetails:
    return await queues.get_queue(call.database, call.query(QueueQuery).name)


async def pause(call: Call) -> QueueAnswer:
    wanted = await call.json(QueuePauseRequest)
    found = await queues.pause(
        call.database, actor_of(call), wanted.name, until=wanted.until, reason=wanted.reason
    )
    call.hub.publish(*TOPICS)
    return found


async def resume(call: Call) -> QueueAnswer:
    wanted = await call.json(QueueQuery)
    found = await queues.resume(call.database, actor_of(call), wanted.name)
    call.hub.publish(*TOPICS)
    return found


async def unlock(call: Call) -> QueueAnswer:
    wanted = await call.json(QueueUnlockRequest)
    found = await queues.unlock(call.database, actor_of(call), wanted.name, wanted.typed)
    call.hub.publish(*TOPICS)
    return found


async def concurrency(call: Call) -> QueueAnswer:
    wanted = await call.json(QueueConcurrencyRequest)
    found = await queues.set_concurrency(call.database, actor_of(call), wanted.name, wanted.concurrency)
    call.hub.publish(*TOPICS)
    return found


ROUTES = [
    Route(
        method="GET", path=f"{API}/queues", handler=list_queues, permission="jobs.read",
        query=QueueListQuery, answer=QueueListing, summary="Named queues with locks or waiting jobs",
    ),
    Route(
        method="GET", path=f"{API}/queue", handler=get_queue, permission="jobs.read", query=QueueQuery,
        answer=QueueDetails, summary="One queue, with what runs in it",
    ),
    Route(
        method="POST", path=f"{API}/queues/pause", handler=pause, permission="queues.pause",
        body=QueuePauseRequest, answer=QueueAnswer, summary="Pause a queue for workers of every runtime",
    ),
    Route(
        method="POST", path=f"{API}/queues/resume", handler=resume, permission="queues.pause",
        body=QueueQuery, answer=QueueAnswer, summary="End the pause of a queue",
    ),
    Route(
        method="POST", path=f"{API}/queues/unlock", handler=unlock, permission="workers.unlock",
        body=QueueUnlockRequest, answer=QueueAnswer, summary="Free a queue from a dead worker",
    ),
    Route(
        method="POST", path=f"{API}/queues/concurrency", handler=concurrency, permission="queues.pause",
        body=QueueConcurrencyRequest, answer=QueueAnswer, summary="Set how many jobs of a queue run at once",
    ),
]  # fmt: skip

"""`/api/v1/workers` and `/api/v1/worker`: who is alive, what each runs, and requests to one of them."""

from __future__ import annotations

from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from . import Worker, WorkerAnswer, WorkerListing, WorkerQuery, WorkerRequest, queries

TOPICS = ("workers", "overview", "audit")


async def list_workers(call: Call) -> WorkerListing:
    return await queries.list_workers(call.database)


async def get_worker(call: Call) -> Worker:
    return await queries.get_worker(call.database, call.query(WorkerQuery).id)


async def stop(call: Call) -> WorkerAnswer:
    wanted = await call.json(WorkerRequest)
    found = await queries.stop(call.database, actor_of(call), wanted.id, wanted.reason)
    call.hub.publish(*TOPICS)
    return found


async def pause(call: Call) -> WorkerAnswer:
    wanted = await call.json(WorkerRequest)
    found = await queries.pause(call.database, actor_of(call), wanted.id, wanted.reason)
    call.hub.publish(*TOPICS)
    return found


async def resume(call: Call) -> WorkerAnswer:
    wanted = await call.json(WorkerRequest)
    found = await queries.resume(call.database, actor_of(call), wanted.id)
    call.hub.publish(*TOPICS)
    return found


async def unlock(call: Call) -> WorkerAnswer:
    wanted = await call.json(WorkerRequest)
    found = await queries.unlock(call.database, actor_of(call), wanted.id, wanted.typed)
    call.hub.publish(*TOPICS, "jobs", "queues")
    return found


ROUTES = [
    Route(
        method="GET", path=f"{API}/workers", handler=list_workers, permission="jobs.read",
        answer=WorkerListing, summary="Workers: alive or dead, what each runs, versions",
    ),
    Route(
        method="GET", path=f"{API}/worker", handler=get_worker, permission="jobs.read", query=WorkerQuery,
        answer=Worker, summary="One worker, with its lanes",
    ),
    Route(
        method="POST", path=f"{API}/workers/stop", handler=stop, permission="workers.stop",
        body=WorkerRequest, answer=WorkerAnswer, summary="Ask a Python worker to shut down gracefully",
    ),
    Route(
        method="POST", path=f"{API}/workers/pause", handler=pause, permission="workers.stop",
        body=WorkerRequest, answer=WorkerAnswer, summary="Pause a Python worker: it fetches no more jobs",
    ),
    Route(
        method="POST", path=f"{API}/workers/resume", handler=resume, permission="workers.stop",
        body=WorkerRequest, answer=WorkerAnswer, summary="Let a paused worker fetch jobs again",
    ),
    Route(
        method="POST", path=f"{API}/workers/unlock", handler=unlock, permission="workers.unlock",
        body=WorkerRequest, answer=WorkerAnswer, summary="Free the locks of a dead worker",
    ),
]  # fmt: skip

"""Workers: who is alive, what each runs; stop, pause, resume, free locks; the stack of a job."""

from __future__ import annotations

from urllib.parse import urlencode

from ...values.concurrency import MOST_ASKED_SLOTS
from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..database import REQUESTS
from ..web.call import Call
from ..web.routes import Route
from . import (
    Worker,
    WorkerAnswer,
    WorkerConcurrencyRequest,
    WorkerLaneQuery,
    WorkerListing,
    WorkerQuery,
    WorkerRequest,
    megabytes,
    queries,
)

TOPICS = ("workers", "overview", "audit")


async def list_workers(call: Call) -> Page:
    found = await queries.list_workers(call.database)
    return Page("workers.html", "Workers", here="workers", values={"found": found}, answer=found)


async def get_worker(call: Call) -> Page:
    wanted = call.query(WorkerQuery)
    found = await queries.get_worker(call.database, wanted.id)
    title = f"Worker {found.name[:80]}"
    values = {"worker": found, "megabytes": megabytes}
    return Page("worker.html", title, here="workers", values=values, answer=found)


async def stop(call: Call) -> Page | Redirect:
    wanted = await call.body(WorkerRequest)
    if not await call.is_confirmed():
        return confirmation(
            f"Stop {wanted.id[:80]}?",
            "It finishes the jobs that it runs, returns those that it has prefetched, and ends. Whether it "
            "starts again is up to whatever runs the process.",
            path="/workers/stop", fields={"id": wanted.id}, submit="Stop the worker",
            back=_page_of(wanted.id), asks_reason=True, here="workers",
        )  # fmt: skip
    answer = await queries.stop(call.database, actor_of(call), wanted.id, wanted.reason)
    return _done(call, answer)


async def pause(call: Call) -> Redirect:
    wanted = await call.body(WorkerRequest)
    answer = await queries.pause(call.database, actor_of(call), wanted.id, wanted.reason)
    return _done(call, answer)


async def resume(call: Call) -> Redirect:
    wanted = await call.body(WorkerRequest)
    answer = await queries.resume(call.database, actor_of(call), wanted.id)
    return _done(call, answer)


async def unlock(call: Call) -> Page | Redirect:
    wanted = await call.body(WorkerRequest)
    if not await call.is_confirmed():
        text, is_dead = await queries.what_unlocking_does(call.database, wanted.id)
        return confirmation(
            f"Free the locks of {wanted.id[:80]}?", text,
            path="/workers/unlock", fields={"id": wanted.id}, submit="Free the locks", back="/workers",
            typed="" if is_dead else wanted.id, here="workers",
        )  # fmt: skip
    answer = await queries.unlock(call.database, actor_of(call), wanted.id, wanted.typed)
    call.hub.publish(*TOPICS, "jobs", "queues")
    return Redirect("/workers", notice=answer.done, answer=answer)


async def concurrency_form(call: Call) -> Page:
    wanted = call.query(WorkerLaneQuery)
    found = await queries.get_worker(call.database, wanted.id)
    lane = next((each for each in found.lanes or () if each.name == wanted.lane), None)
    values = {
        "worker": found,
        "lane": wanted.lane,
        "slots": found.concurrency if lane is None else lane.slots,
    }
    return Page(
        "worker_concurrency.html", f"Concurrency of {found.name[:80]}", here="workers",
        values={**values, "most": MOST_ASKED_SLOTS, "back": _page_of(found.id)},
    )  # fmt: skip


async def concurrency(call: Call) -> Redirect:
    wanted = await call.body(WorkerConcurrencyRequest)
    answer = await queries.set_concurrency(
        call.database, actor_of(call), wanted.id, wanted.lane, wanted.concurrency
    )
    return _done(call, answer)


def _done(call: Call, answer: WorkerAnswer) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(answer.id), notice=answer.done, answer=answer)


def _page_of(worker_id: str) -> str:
    return "/worker?" + urlencode({"id": worker_id})


ROUTES = [
    Route(
        method="GET", path="/workers", api="/workers", handler=list_workers, permission="jobs.read",
        answer=WorkerListing, summary="Workers: alive or dead, what each runs, versions",
    ),
    Route(
        method="GET", path="/worker", api="/worker", handler=get_worker, permission="jobs.read",
        query=WorkerQuery, answer=Worker, summary="One worker, with its lanes",
    ),
    Route(
        method="POST", path="/workers/stop", needs=REQUESTS,
        api="/workers/stop", handler=stop, permission="workers.stop",
        body=WorkerRequest, answer=WorkerAnswer, summary="Ask a Python worker to shut down gracefully",
    ),
    Route(
        method="POST", path="/workers/pause", needs=REQUESTS,
        api="/workers/pause", handler=pause, permission="workers.stop",
        body=WorkerRequest, answer=WorkerAnswer, summary="Pause a Python worker: it fetches no more jobs",
    ),
    Route(
        method="POST", path="/workers/resume", needs=REQUESTS, api="/workers/resume", handler=resume,
        permission="workers.stop", body=WorkerRequest, answer=WorkerAnswer,
        summary="Let a paused worker fetch jobs again",
    ),
    Route(
        method="GET", path="/workers/concurrency", handler=concurrency_form, permission="workers.stop",
        query=WorkerLaneQuery, summary="Change how many jobs a worker runs at once",
    ),
    Route(
        method="POST", path="/workers/concurrency", api="/workers/concurrency", handler=concurrency,
        permission="workers.stop", body=WorkerConcurrencyRequest, answer=WorkerAnswer,
        summary="Let a Python worker run another number of jobs at once, until it restarts",
    ),
    Route(
        method="POST", path="/workers/unlock", api="/workers/unlock", handler=unlock,
        permission="workers.unlock", body=WorkerRequest, answer=WorkerAnswer,
        summary="Free the locks of a dead worker",
    ),
]  # fmt: skip

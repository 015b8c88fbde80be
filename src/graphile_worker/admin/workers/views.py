"""Workers: who is alive, what each runs; stop, pause, resume, free locks; the stack of a job."""

from __future__ import annotations

from urllib.parse import urlencode

from ...values.concurrency import MOST_ASKED_SLOTS
from ..answers import Page, Redirect, confirmation
from ..audit.recording import actor_of
from ..web.call import Call
from ..web.routes import API, Route
from . import (
    WorkerAnswer,
    WorkerConcurrencyRequest,
    WorkerForm,
    WorkerLaneQuery,
    WorkerQuery,
    megabytes,
    queries,
)
from .api import TOPICS


async def list_page(call: Call) -> Page:
    found = await queries.list_workers(call.database)
    return Page("workers.html", "Workers", here="workers", values={"found": found})


async def worker_page(call: Call) -> Page:
    wanted = call.query(WorkerQuery)
    found = await queries.get_worker(call.database, wanted.id)
    return Page(
        "worker.html", f"Worker {found.name[:80]}", here="workers",
        values={"worker": found, "megabytes": megabytes},
    )  # fmt: skip


async def stop(call: Call) -> Page | Redirect:
    form = await call.form(WorkerForm)
    if not form.confirmed:
        return confirmation(
            f"Stop {form.id[:80]}?",
            "It finishes the jobs that it runs, returns those that it has prefetched, and ends. Whether it "
            "starts again is up to whatever runs the process.",
            path="/workers/stop", fields={"id": form.id}, submit="Stop the worker", back=_page_of(form.id),
            asks_reason=True, here="workers",
        )  # fmt: skip
    answer = await queries.stop(call.database, actor_of(call), form.id, form.reason)
    return _done(call, form.id, answer.done)


async def pause(call: Call) -> Redirect:
    form = await call.form(WorkerForm)
    answer = await queries.pause(call.database, actor_of(call), form.id, form.reason)
    return _done(call, form.id, answer.done)


async def resume(call: Call) -> Redirect:
    form = await call.form(WorkerForm)
    answer = await queries.resume(call.database, actor_of(call), form.id)
    return _done(call, form.id, answer.done)


async def unlock(call: Call) -> Page | Redirect:
    form = await call.form(WorkerForm)
    if not form.confirmed:
        is_dead = await queries.is_dead(call.database, form.id)
        return confirmation(
            f"Free the locks of {form.id[:80]}?",
            "Its jobs and queues become free for other workers."
            if is_dead
            else "It may be alive, and then its jobs run twice. Stop it first, or be certain.",
            path="/workers/unlock", fields={"id": form.id}, submit="Free the locks", back="/workers",
            typed="" if is_dead else form.id, here="workers",
        )  # fmt: skip
    answer = await queries.unlock(call.database, actor_of(call), form.id, form.typed)
    call.hub.publish(*TOPICS, "jobs", "queues")
    return Redirect("/workers", notice=answer.done)


async def concurrency_form(call: Call) -> Page:
    wanted = call.query(WorkerLaneQuery)
    found = await queries.get_worker(call.database, wanted.id)
    lane = next((each for each in found.lanes if each.name == wanted.lane), None)
    values = {"worker": found, "lane": wanted.lane, "slots": found.slots if lane is None else lane.slots}
    return Page(
        "worker_concurrency.html", f"Concurrency of {found.name[:80]}", here="workers",
        values={**values, "most": MOST_ASKED_SLOTS, "back": _page_of(found.id)},
    )  # fmt: skip


async def concurrency(call: Call) -> Redirect:
    wanted = await call.body(WorkerConcurrencyRequest)
    answer = await queries.set_concurrency(
        call.database, actor_of(call), wanted.id, wanted.lane, wanted.concurrency
    )
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(wanted.id), notice=answer.done, answer=answer)


def _done(call: Call, worker_id: str, notice: str) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(worker_id), notice=notice)


def _page_of(worker_id: str) -> str:
    return "/worker?" + urlencode({"id": worker_id})


ROUTES = [
    Route(
        method="GET", path="/workers", handler=list_page, permission="jobs.read", summary="Workers",
        json_of=f"{API}/workers",
    ),
    Route(
        method="GET", path="/worker", handler=worker_page, permission="jobs.read", summary="One worker",
        query=WorkerQuery, json_of=f"{API}/worker",
    ),
    Route(
        method="POST", path="/workers/stop", handler=stop, permission="workers.stop",
        summary="Stop a worker", body=WorkerForm,
    ),
    Route(
        method="POST", path="/workers/pause", handler=pause, permission="workers.stop",
        summary="Pause a worker", body=WorkerForm,
    ),
    Route(
        method="POST", path="/workers/resume", handler=resume, permission="workers.stop",
        summary="Resume a worker", body=WorkerForm,
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
        method="POST", path="/workers/unlock", handler=unlock, permission="workers.unlock",
        summary="Free the locks of a dead worker", body=WorkerForm,
    ),
]  # fmt: skip

"""Workers: who is alive, what each runs; stop, pause, resume, free locks; the stack of a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from ...errors import WorkerNotFoundError
from ...values.concurrency import MAIN, MOST_ASKED_SLOTS
from ...values.text import count
from ..answers import Page, Problem, Redirect, Sorting, address, confirmation, in_order
from ..audit.recording import because, record
from ..database import REQUESTS
from ..web.call import Call
from ..web.routes import Route
from . import queries
from .queries import (
    Worker,
    WorkerAnswer,
    WorkerConcurrencyRequest,
    WorkerLaneQuery,
    WorkerListing,
    WorkerQuery,
    WorkerRequest,
    WorkersQuery,
    megabytes,
)

TOPICS = ("workers", "overview", "audit")
VALUES: dict[str, Callable[[Worker], Any]] = {
    "name": lambda worker: worker.name,
    "slots": lambda worker: worker.concurrency,
    "busy": lambda worker: worker.jobs_held if worker.busy is None else worker.busy,
    "memory": lambda worker: worker.load and worker.load.memory,
    "processor": lambda worker: worker.load and worker.load.cpu,
    "rate": lambda worker: worker.per_minute,
    "failing": lambda worker: worker.failed_per_minute,
    "since": lambda worker: worker.started_at or worker.locked_since,
}


async def list_workers(call: Call, wanted: WorkersQuery) -> Page:
    found = await queries.list_workers(call.database)
    found = replace(found, items=in_order(found.items, wanted.order, VALUES))
    values = {"found": found, "sort": Sorting(wanted.order, partial(call.url, "/workers"))}
    return Page("workers.html", "Workers", here="workers", values=values, answer=found)


async def get_worker(call: Call, wanted: WorkerQuery) -> Page:
    found = await queries.get_worker(call.database, wanted.id)
    title = f"Worker {found.name[:80]}"
    values = {"worker": found, "megabytes": megabytes}
    return Page("worker.html", title, here="workers", values=values, answer=found)


async def stop(call: Call, wanted: WorkerRequest) -> Page | Redirect:
    if not await call.is_confirmed():
        return confirmation(
            f"Stop {wanted.id[:80]}?",
            "It finishes the jobs that it runs, returns those that it has prefetched, and ends. Whether it "
            "starts again is up to whatever runs the process.",
            path="/workers/stop", fields={"id": wanted.id}, submit="Stop the worker",
            back=_page_of(wanted.id), asks_reason=True, here="workers",
        )  # fmt: skip
    done = "It was asked to stop: it finishes its running jobs, then ends."
    return await _ask(call, wanted, "stop", done)


async def pause(call: Call, wanted: WorkerRequest) -> Redirect:
    done = "It is paused: it fetches no more jobs. Running jobs finish."
    return await _ask(call, wanted, "pause", done)


async def _ask(call: Call, wanted: WorkerRequest, method: Literal["stop", "pause"], done: str) -> Redirect:
    """Ask a worker to stop or to pause."""
    why = because(call, wanted.reason, "asked by")
    async with call.database.write() as connection:
        workers = call.database.utils.workers
        ask = workers.stop if method == "stop" else workers.pause
        try:
            await ask(wanted.id, reason=why, connection=connection)
        except WorkerNotFoundError as error:
            raise _no_worker(error) from None
        await record(
            call, connection, f"{method}_worker", target=wanted.id, details={"reason": wanted.reason}
        )
    return _done(call, wanted.id, done)


async def resume(call: Call, wanted: WorkerRequest) -> Redirect:
    worker_id = wanted.id
    async with call.database.write() as connection:
        was_paused = await call.database.utils.workers.resume(worker_id, connection=connection)
        if was_paused:
            await record(call, connection, "resume_worker", target=worker_id)
    done = "It fetches jobs again." if was_paused else "It was not paused; nothing was changed."
    return _done(call, worker_id, done)


async def unlock(call: Call, wanted: WorkerRequest) -> Page | Redirect:
    """Free every lock of a worker. One that may be alive must be typed: its jobs would run twice.

    Jobs of another runtime's worker are recovered: no one else does that, and their attempt does not count.
    """
    worker = await queries.find_worker(call.database, wanted.id)
    is_dead = worker is not None and worker.state == "dead"
    if not await call.is_confirmed():
        return confirmation(
            f"Free the locks of {wanted.id[:80]}?", _what_unlocking_does(worker),
            path="/workers/unlock", fields={"id": wanted.id}, submit="Free the locks", back="/workers",
            typed="" if is_dead else wanted.id, here="workers",
        )  # fmt: skip
    if not is_dead and wanted.typed != wanted.id:
        state = "may be alive" if worker is None or worker.state == "unknown" else "is alive"
        raise Problem(
            409,
            f"The worker {state}",
            "If its locks are freed while it runs, its jobs run twice. Stop it first; or, if you are certain "
            "that it is dead, type its id.",
            typed=wanted.id,
        )
    utils, done = call.database.utils, "Its jobs and queues were unlocked."
    if worker is not None and worker.is_alive is None:
        report = await utils.workers.recover(wanted.id, force=True)
        returned = sum(len(each.returned) for each in report.recovered)
        done = f"{count(returned, 'job')} returned to the queue."
    async with call.database.write() as connection:
        if worker is None or worker.is_alive is not None:
            await utils.force_unlock_workers([wanted.id], connection=connection)
        await record(call, connection, "unlock_worker", target=wanted.id)
    call.hub.publish(*TOPICS, "jobs", "queues")
    return Redirect("/workers", notice=done, answer=WorkerAnswer(id=wanted.id, done=done))


def _what_unlocking_does(worker: Worker | None) -> str:
    if worker is not None and worker.state == "dead":
        return "Its jobs and queues become free for other workers."
    alive = "It may be alive, and then its jobs run twice. Stop it first, or be certain."
    if worker is None or worker.is_alive is not None:
        return alive
    held = "Its jobs return" if worker.jobs_held is None else f"{count(worker.jobs_held, 'job')} of it return"
    verb = "s" if worker.jobs_held == 1 else ""
    return f"{held}{verb} to the queue, the attempt does not count, and its queues become free. {alive}"


async def concurrency_form(call: Call, wanted: WorkerLaneQuery) -> Page:
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


async def concurrency(call: Call, wanted: WorkerConcurrencyRequest) -> Redirect:
    """Let a worker run this many jobs of a lane at once; waits until it does."""
    lane, most = wanted.lane, wanted.concurrency
    await call.database.open()
    try:
        change = await call.database.utils.workers.set_concurrency(wanted.id, most, lane=lane)
    except WorkerNotFoundError as error:
        raise _no_worker(error) from None
    async with call.database.write() as connection:
        details = {"lane": lane, "before": change.before, "concurrency": most}
        await record(call, connection, "set_worker_concurrency", target=wanted.id, details=details)
    of_lane = "" if lane == MAIN else f" of the lane {lane}"
    return _done(
        call, wanted.id, f"It runs up to {count(most, 'job')}{of_lane} at once (before: {change.before})."
    )


def _no_worker(error: WorkerNotFoundError) -> Problem:
    return Problem(404, "There is no such Python worker", str(error))


def _done(call: Call, worker_id: str, done: str) -> Redirect:
    call.hub.publish(*TOPICS)
    return Redirect(_page_of(worker_id), notice=done, answer=WorkerAnswer(id=worker_id, done=done))


def _page_of(worker_id: str) -> str:
    return address("/worker", id=worker_id)


ROUTES = [
    Route(
        "/workers", list_workers, "jobs.read", "Workers: alive or dead, what each runs, versions", api=True,
        answer=WorkerListing,
    ),
    Route("/worker", get_worker, "jobs.read", "One worker, with its lanes", api=True, answer=Worker),
    Route(
        "/workers/stop", stop, "workers.stop", "Ask a Python worker to shut down gracefully", method="POST",
        needs=REQUESTS, api=True, answer=WorkerAnswer,
    ),
    Route(
        "/workers/pause", pause, "workers.stop", "Pause a Python worker: it fetches no more jobs",
        method="POST", needs=REQUESTS, api=True, answer=WorkerAnswer,
    ),
    Route(
        "/workers/resume", resume, "workers.stop", "Let a paused worker fetch jobs again", method="POST",
        needs=REQUESTS, api=True, answer=WorkerAnswer,
    ),
    Route(
        "/workers/concurrency", concurrency_form, "workers.stop",
        "Change how many jobs a worker runs at once",
    ),
    Route(
        "/workers/concurrency", concurrency, "workers.stop",
        "Let a Python worker run another number of jobs at once, until it restarts", method="POST", api=True,
        answer=WorkerAnswer,
    ),
    Route(
        "/workers/unlock", unlock, "workers.unlock", "Free the locks of a dead worker", method="POST",
        api=True, answer=WorkerAnswer,
    ),
]  # fmt: skip

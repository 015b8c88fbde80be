"""Tasks for workers that are stopped in the middle: quick, slow, cooperative, stubborn and stuck."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from typing import Any

from graphile_worker import JobHelpers, task


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def note(job_id: int) -> None:
    """Add a line to a file, which survives any database failure."""
    file = os.open(os.path.join(os.environ["FOLDER"], "done"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(file, f"{job_id}\n".encode())
    finally:
        os.close(file)


runs = 0


def stop_in_the_middle() -> None:
    """Send SIGTERM to this worker or its parent after that many jobs; from outside it may be too late."""
    global runs
    runs += 1
    if str(runs) != os.environ.get("STOP_AFTER"):
        return
    try:
        os.close(os.open(os.path.join(os.environ["FOLDER"], "stopped"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:  # the other process of this parent was faster
        return
    os.kill(os.getppid() if os.environ.get("STOP_PARENT") else os.getpid(), signal.SIGTERM)


@task
async def record(payload: Any, helpers: JobHelpers) -> None:
    """Takes a few milliseconds, then records in the database that it is done."""
    await asyncio.sleep(random.random() * 0.01)
    await helpers.query("insert into done (job_id) values ($1)", helpers.job.id)
    stop_in_the_middle()


@task
async def record_in_file(payload: Any, helpers: JobHelpers) -> None:
    """The same without the database."""
    await asyncio.sleep(random.random() * 0.01)
    note(helpers.job.id)
    stop_in_the_middle()


@task
async def finish_on_abort(payload: Any, helpers: JobHelpers) -> None:
    say("started")
    await helpers.abort_signal.wait()
    say("aborted")


@task
async def heed_abort(payload: Any, helpers: JobHelpers) -> None:
    say("started")
    await helpers.abortable(asyncio.sleep(3600))


@task
async def sleep_long(payload: Any, helpers: JobHelpers) -> None:
    say("started")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        say("cancelled, abort_signal " + ("set" if helpers.abort_signal.is_set() else "not set"))
        raise


@task
async def sleep_a_little(payload: Any) -> None:
    say("started")
    await asyncio.sleep(payload["seconds"])
    say("finished")


@task
async def wait_for_test(payload: Any) -> None:
    """Waits until `let_go` of worker_process is called."""
    say("started")
    go_on = os.path.join(os.environ["FOLDER"], "go_on")
    while not os.path.exists(go_on):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    say("finished")


@task
async def silent(payload: Any) -> None:
    say("started")
    await asyncio.sleep(0.3)


@task
async def swallow(payload: Any) -> None:
    say("started")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            say("swallowed")


@task
def stuck_thread(payload: Any) -> None:
    say("started")
    while True:
        time.sleep(3600)


@task
def polite_thread(payload: Any, helpers: JobHelpers) -> None:
    say("started")
    helpers.abort_signal.wait_blocking(3600)
    helpers.raise_if_aborted()


@task
def talkative(payload: Any, helpers: JobHelpers) -> None:
    """Logs from a thread until the abort signal."""
    say("started")
    while not helpers.abort_signal.wait_blocking(0.01):
        helpers.logger.info("still here")


@task
async def leave_something_behind(payload: Any) -> None:
    """Starts an asyncio task that swallows cancellation and a thread; both outlive the job."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                say("swallowed")

    asyncio.get_running_loop().stubborn = asyncio.ensure_future(stubborn())  # type: ignore[attr-defined]
    threading.Thread(target=time.sleep, args=(3600,)).start()
    say("started")


@task
async def exit_in_child(payload: Any) -> None:
    """Raises SystemExit or KeyboardInterrupt in a child task, where only the event loop can catch it."""
    error = KeyboardInterrupt() if payload["code"] == "interrupt" else SystemExit(payload["code"])

    async def leave() -> None:
        await asyncio.sleep(0)
        say("leaving")
        raise error

    if payload["how"] == "task group":
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())
    elif payload["how"] == "gather":
        await asyncio.gather(leave(), asyncio.sleep(0))
    else:
        left = asyncio.create_task(leave())
        await asyncio.sleep(3600)
        await left

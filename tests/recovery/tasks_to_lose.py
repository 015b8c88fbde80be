"""Tasks for workers that are killed: they note what they do in a table of the test's own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from graphile_worker import JobHelpers, task


async def note(helpers: JobHelpers, event: str) -> None:
    await helpers.query(
        "insert into history (job_id, pid, event, attempts) values ($1, $2, $3, $4)",
        helpers.job.id,
        os.getpid(),
        event,
        helpers.job.attempts,
    )


@task
async def work(payload: Any, helpers: JobHelpers) -> None:
    """Runs for the time that the process sets, or until the test releases all jobs."""
    await note(helpers, "start")
    if os.environ.get("WAIT"):
        try:
            while not await helpers.query("select from released"):  # noqa: ASYNC110 - another process does it
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            os.write(1, b"cancelled\n")
            raise
    await note(helpers, "end")


@task
async def block(payload: Any, helpers: JobHelpers) -> None:
    """Blocks the event loop of the worker."""
    await note(helpers, "start")
    time.sleep(payload["seconds"])
    await note(helpers, "end")


@task
async def die(payload: Any, helpers: JobHelpers) -> None:
    await note(helpers, "start")
    os.kill(os.getpid(), signal.SIGKILL)

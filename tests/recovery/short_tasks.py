"""Short tasks for workers that die: they note their ends in a file, which is quicker than a table."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from graphile_worker import JobHelpers, task

done = os.open(Path(os.environ["FOLDER"], "done"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@task
async def short(payload: Any, helpers: JobHelpers) -> None:
    os.write(done, f"{helpers.job.id}\n".encode())


@task
async def poison(payload: Any) -> None:
    """Ends the process at once, as a crash of the interpreter does."""
    os._exit(3)


@task
async def block(payload: Any, helpers: JobHelpers) -> None:
    """Blocks the event loop of the worker."""
    time.sleep(payload["seconds"])
    os.write(done, f"{helpers.job.id}\n".encode())


@task
async def pause(payload: Any, helpers: JobHelpers) -> None:
    """Waits in the process that came first until the test lets it go on; elsewhere it ends at once."""
    folder = Path(os.environ["FOLDER"])
    try:
        (folder / "paused").open("x").close()
    except FileExistsError:
        pass
    else:
        while not (folder / "go_on").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
    os.write(done, f"{helpers.job.id}\n".encode())

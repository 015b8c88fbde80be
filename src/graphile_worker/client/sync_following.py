"""Following jobs from blocking code: on a connection of the caller, or through the client's own thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..database.connections.blocking import run_blocking
from ..history.progress import Progress
from ..history.records import CurrentState
from ..values.job import Job
from .background import Background
from .following import WATCH_INTERVAL, id_of, read_current_states, result_of, seconds_of
from .job_waiter import FIRST_POLL, LONGEST_POLL, POLL_GROWTH

if TYPE_CHECKING:
    from .worker_utils import WorkerUtils


def wait_here(client: WorkerUtils, job: Job | int, timeout: float | timedelta | None) -> Any:
    """Look the job up until it has ended; returns what its task returned."""
    seconds = seconds_of(timeout)
    end = None if seconds is None else time.monotonic() + seconds
    interval = FIRST_POLL
    while (current := run_blocking(_look(client, id_of(job)))).state == "pending":
        left = interval if end is None else end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        time.sleep(min(interval, left))
        interval = min(interval * POLL_GROWTH, LONGEST_POLL)
    return result_of(current)


async def _look(client: WorkerUtils, job_id: int) -> CurrentState:
    async with client._connection(None) as session:
        (current,) = await read_current_states(session, client.schema, [job_id])
    return current


def watch_from_here(client: WorkerUtils, job: Job | int) -> Iterator[Progress]:
    """The reports of a job, each once, until it has ended."""
    last: Progress | None = None
    while not (status := run_blocking(client.get_job_status(job))).has_ended:
        if status.progress is not None and status.progress != last:
            last = status.progress
            yield last
        time.sleep(WATCH_INTERVAL)


def watch_in_background(background: Background, job: Job | int) -> Iterator[Progress]:
    """The same, with the client's own thread waiting for the end."""

    async def begin(client: WorkerUtils) -> Any:
        return client.watch(job)

    async def next_report(_: WorkerUtils) -> Progress | None:
        return await anext(reports, None)

    async def end(_: WorkerUtils) -> None:
        async with aclosing(reports):
            pass

    reports = background.run(begin)
    try:
        while (progress := background.run(next_report, is_long=True)) is not None:
            yield progress
    finally:
        background.run(end)

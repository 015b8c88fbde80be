"""The part of the blocking `jobs` that is written by hand: waiting for a job and watching it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..database.connections.bound import run_blocking
from ..history.records import CurrentState
from ..history.task_reports import Progress
from ..values.job import Job
from .background import Background
from .job_status import WATCH_INTERVAL, id_of, read_current_states, result_of, seconds_of
from .job_waiter import FIRST_POLL, LONGEST_POLL, POLL_GROWTH
from .sync_calls import SyncCalls
from .worker_utils import WorkerUtils

if TYPE_CHECKING:
    from .sync_handle import SyncJobHandle, SyncJobReference

R = TypeVar("R")


class SyncFollowing:
    """Waits for jobs and watches them."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    @overload
    def wait_for(self, job: SyncJobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    def wait_for(
        self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    def wait_for(self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job has ended and return what its task returned.

        The result has the type that the task returns, if the job was added by its task, and else consists of
        plain JSON values. It is None if the job was completed by hand.

        Raises JobFailedError, JobCancelledError, or JobGoneError if the job was not kept; TimeoutError
        after `timeout` seconds. Jobs added with `keep` announce their end; others are looked up, at first
        every quarter of a second. A bound client looks up all jobs, on your connection: commit first.
        """
        if self._calls.bound is not None:
            return wait_here(self._calls.bound, job, timeout)
        return self._calls.run_any(None, lambda utils: utils.wait_for(job, timeout=timeout), is_long=True)

    def watch(self, job: Job | int) -> Iterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        if self._calls.bound is not None:
            yield from watch_from_here(self._calls.bound, job)
        elif self._calls.background is not None:
            yield from watch_in_background(self._calls.background, job)


def wait_here(client: WorkerUtils, job: object, timeout: float | timedelta | None) -> Any:
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
    return result_of(current, job)


async def _look(client: WorkerUtils, job_id: int) -> CurrentState:
    async with client._borrow() as session:
        (current,) = await read_current_states(session, client.schema, [job_id])
    return current


def watch_from_here(client: WorkerUtils, job: Job | int) -> Iterator[Progress]:
    """The reports of a job, each once, until it has ended."""
    last: Progress | None = None
    while not (status := run_blocking(client.jobs.get_status(job))).has_ended:
        if status.progress is not None and status.progress != last:
            last = status.progress
            yield last
        time.sleep(WATCH_INTERVAL)


def watch_in_background(background: Background, job: Job | int) -> Iterator[Progress]:
    """The same, with the client's own thread waiting for the end."""

    async def begin(client: WorkerUtils) -> Any:
        return client.jobs.watch(job)

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

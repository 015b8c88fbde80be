"""`utils.jobs`: reading, following, cancelling and retrying jobs."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ...database.connections.bound import no_connection_to_lend, run_blocking
from ...database.connections.connection import BlockingConnection
from ...errors import InvalidArgumentError
from ...values.job import Job
from ...values.spec import TaskLike
from ..blocking import SyncMember, blocking, like
from ..connections import ConnectionT, Member

if TYPE_CHECKING:
    # Methods import these when called: a program that waits for a result starts without the others.
    from ...database.statements.bulk_changes import BulkOptions, BulkReport
    from ...database.statements.inspection import JobDetails, JobFilter
    from ...database.statements.manage_jobs import CancelReport
    from ...history.records import CurrentState
    from ...history.task_reports import Progress
    from ..handle import JobHandle, JobReference, SyncJobHandle, SyncJobReference
    from ..job_status import JobRecord, JobStack, JobStatus

R = TypeVar("R")


class JobsClient(Member[ConnectionT]):
    """Jobs in the queue, and what is known of those that have left it.

    `get` and `list` read jobs that are in the queue. `get_status` and `get_record` also know those that
    have ended, if they were kept. `wait_for` and `watch` follow a job. Many jobs are cancelled by
    `WorkerUtils.cancel_jobs` and changed by `WorkerUtils.reschedule_jobs`.
    """

    async def get(self, job_id: int, *, connection: ConnectionT | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        from ...database.statements import inspection

        return await self._connections.call(connection, inspection.get_job, job_id)

    async def list(
        self, filter: JobFilter | None = None, *, connection: ConnectionT | None = None
    ) -> builtins.list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        from ...database.statements import inspection
        from ...database.statements.inspection import JobFilter

        return await self._connections.call(
            connection, inspection.list_jobs, filter if filter is not None else JobFilter()
        )

    async def get_status(self, job: Job | int, *, connection: ConnectionT | None = None) -> JobStatus:
        """How a job stands: its state, its last error, its progress."""
        from ..job_status import id_of, read_status

        return await self._connections.call(connection, read_status, id_of(job))

    async def get_record(self, job: Job | int, *, connection: ConnectionT | None = None) -> JobRecord:
        """All that is known of a job: its row, what the history has, the errors of its attempts, its
        progress.
        """
        from ..job_status import id_of, read_record

        return await self._connections.call(connection, read_record, id_of(job))

    async def get_stack(self, job: Job | int, *, timeout: float | timedelta = 6.0) -> JobStack:
        """Where a running job is now: its call stack, as its worker sees it.

        Raises StackUnavailableError if the job does not run, if another runtime runs it, or if its worker
        does not answer within `timeout`.
        """
        from ..job_status import id_of, job_stack

        connections = self._connections
        if connections.is_bound:
            raise no_connection_to_lend()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return await job_stack(connections.borrow, connections.schema, id_of(job), seconds)

    @overload
    async def wait_for(self, job: JobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    async def wait_for(
        self, job: Job | JobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    async def wait_for(
        self, job: Job | JobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any:
        """Wait until the job has ended and return what its task returned.

        The result has the type that the task returns, if the job was added by its task, and else consists of
        plain JSON values. It is None if the job was completed by hand.

        Raises JobFailedError, JobCancelledError, or JobGoneError if the job was not kept; TimeoutError
        after `timeout` seconds. Any number of waiters share one connection. Jobs added with `keep` announce
        their end; others are looked up, at first every quarter of a second.
        """
        from ...values.retention import is_awaited
        from ..job_status import id_of, result_of, seconds_of

        self._connections.check_loop()
        async with asyncio.timeout(seconds_of(timeout)):
            is_announced = isinstance(job, Job) and is_awaited(job.raw_flags)
            waiter = self._connections.job_waiter
            return result_of(await waiter.wait(id_of(job), is_announced=is_announced), job)

    async def watch(self, job: Job | int) -> AsyncIterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        from ..job_status import id_of, watch_progress

        self._connections.check_loop()
        waiter = self._connections.job_waiter
        async with aclosing(watch_progress(self, waiter, id_of(job))) as reports:
            async for progress in reports:
                yield progress

    @overload
    def handle(self, job: JobHandle[R]) -> JobHandle[R]: ...

    @overload
    def handle(self, job: Job) -> JobHandle[Any]: ...

    @overload
    def handle(self, job: int) -> JobReference: ...

    def handle(self, job: Job | int) -> JobHandle[Any] | JobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        from ..handle import make_handle

        return make_handle(self, job)

    @overload
    async def cancel(
        self, job: Job | int, *, reason: str | None = None, connection: ConnectionT | None = None
    ) -> CancelReport: ...

    @overload
    async def cancel(
        self, *, job_key: str, reason: str | None = None, connection: ConnectionT | None = None
    ) -> CancelReport: ...

    async def cancel(
        self,
        job: Job | int | None = None,
        *,
        job_key: str | None = None,
        reason: str | None = None,
        connection: ConnectionT | None = None,
    ) -> CancelReport:
        """Cancel one job, or the job that has this key; see `WorkerUtils.cancel_jobs`.

        If no job has the key, every list of the report is empty.
        """
        from ..changing import JobChanges
        from ..job_status import id_of

        if (job is None) == (job_key is None):
            raise InvalidArgumentError("job", "name the job, or its job_key, and not both")
        ids = () if job is None else (id_of(job),)
        return await JobChanges(self._connections).cancel(connection, ids, reason, job_key=job_key)

    async def retry(
        self,
        task: str | TaskLike[Any, Any] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        connection: ConnectionT | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport:
        """Requeue permanently failed jobs, with all their attempts: those of a task, or all.

        `since` and `until` limit the time at which they failed, `error` is a part of their last error. The
        work is done in steps, and each step is committed unless a `connection` is given.
        """
        from ...database.statements.bulk_changes import new_schedule
        from ...database.statements.job_filter import JobFilter
        from ..changing import JobChanges

        failed = JobFilter(
            state="failed",
            task_identifier=task if task is None or isinstance(task, str) else task.identifier,
            failed_since=since,
            failed_until=until,
            error=error,
        )
        change = new_schedule(run_at=timedelta(0), priority=None, attempts=0, max_attempts=None)
        return await JobChanges(self._connections).in_steps(failed, change, connection, options)


class SyncJobsClient(SyncMember):
    """The blocking form of `JobsClient`."""

    _member = "jobs"

    get = blocking(JobsClient[BlockingConnection].get)
    list = blocking(JobsClient[BlockingConnection].list)
    get_status = blocking(JobsClient[BlockingConnection].get_status)
    get_record = blocking(JobsClient[BlockingConnection].get_record)
    get_stack = blocking(JobsClient[BlockingConnection].get_stack)
    retry = blocking(JobsClient[BlockingConnection].retry, is_long=True)

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
            return _wait_here(self._calls.bound, job, timeout)
        return self._calls.run(None, lambda utils: utils.jobs.wait_for(job, timeout=timeout), is_long=True)

    def watch(self, job: Job | int) -> Iterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        if self._calls.bound is not None:
            yield from _watch_from_here(self._calls.bound, job)
            return

        async def begin(utils: Any) -> Any:
            return utils.jobs.watch(job)

        async def next_report(_: object) -> Progress | None:
            return await anext(reports, None)

        async def end(_: object) -> None:
            async with aclosing(reports):
                pass

        reports = self._calls.run(None, begin)
        try:
            while (progress := self._calls.run(None, next_report, is_long=True)) is not None:
                yield progress
        finally:
            self._calls.run(None, end)

    @overload
    def handle(self, job: SyncJobHandle[R]) -> SyncJobHandle[R]: ...

    @overload
    def handle(self, job: Job) -> SyncJobHandle[Any]: ...

    @overload
    def handle(self, job: int) -> SyncJobReference: ...

    def handle(self, job: Job | int) -> SyncJobHandle[Any] | SyncJobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        from ..handle import make_sync_handle

        return make_sync_handle(self, job)

    @overload
    def cancel(
        self, job: Job | int, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    @overload
    def cancel(
        self, *, job_key: str, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    @like(JobsClient.cancel)
    def cancel(self, *args: Any, **keywords: Any) -> Any:
        """Cancel one job, or the job that has this key; see `SyncWorkerUtils.cancel_jobs`."""


def _wait_here(client: Any, job: object, timeout: float | timedelta | None) -> Any:
    """Look the job up until it has ended; returns what its task returned."""
    from ..job_status import id_of, result_of, seconds_of
    from ..job_waiter import FIRST_POLL, LONGEST_POLL, POLL_GROWTH

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


async def _look(client: Any, job_id: int) -> CurrentState:
    from ..job_status import read_current_states

    async with client._borrow() as session:
        (current,) = await read_current_states(session, client.schema, [job_id])
    return current


def _watch_from_here(client: Any, job: Job | int) -> Iterator[Progress]:
    """The reports of a job, each once, until it has ended."""
    from ..job_status import WATCH_INTERVAL

    last: Progress | None = None
    while not (status := run_blocking(client.jobs.get_status(job))).has_ended:
        if status.progress is not None and status.progress != last:
            last = status.progress
            yield last
        time.sleep(WATCH_INTERVAL)

"""Following single jobs: status, result, progress, errors, history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ...database.connections.connection import UserConnection
from ...values.job import Job
from .base import ClientBase

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...history.error_groups import ErrorGroup
    from ...history.records import AttemptError, FinishedJob, HistoryFilter
    from ...history.task_reports import Progress
    from ..handle import JobHandle, JobReference
    from ..job_status import JobRecord, JobStatus

R = TypeVar("R")


class FollowingJobs(ClientBase):
    """Follows jobs until they are finished, and beyond."""

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

        self._check_loop()
        async with asyncio.timeout(seconds_of(timeout)):
            is_announced = isinstance(job, Job) and is_awaited(job.raw_flags)
            return result_of(await self._job_waiter.wait(id_of(job), is_announced=is_announced), job)

    async def get_job_status(self, job: Job | int, *, connection: UserConnection | None = None) -> JobStatus:
        """How a job stands: its state, its last error, its progress."""
        from ..job_status import id_of, read_status

        async with self._connection(connection) as session:
            return await read_status(session, self.schema, id_of(job))

    async def get_job_record(self, job: Job | int, *, connection: UserConnection | None = None) -> JobRecord:
        """All that is known of a job: its row, what the history has, the errors of its attempts, its
        progress.
        """
        from ..job_status import id_of, read_record

        async with self._connection(connection) as session:
            return await read_record(session, self.schema, id_of(job))

    async def watch(self, job: Job | int) -> AsyncIterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        from ..job_status import id_of, watch_progress

        self._check_loop()
        async with aclosing(watch_progress(self, self._job_waiter, id_of(job))) as reports:
            async for progress in reports:
                yield progress

    async def get_job_history(
        self, job: Job | int, *, connection: UserConnection | None = None
    ) -> list[FinishedJob]:
        """What the history has of a job, the latest first; a job that was retried by hand was finished
        several times.
        """
        from ...history.records import history_of_job
        from ..job_status import id_of

        async with self._connection(connection) as session:
            return await history_of_job(session, self.schema, id_of(job))

    async def list_finished_jobs(
        self, filter: HistoryFilter | None = None, *, connection: UserConnection | None = None
    ) -> list[FinishedJob]:
        """One page of the finished jobs that were kept, the latest first."""
        from ...history.records import HistoryFilter, list_finished_jobs

        async with self._connection(connection) as session:
            return await list_finished_jobs(
                session, self.schema, filter if filter is not None else HistoryFilter()
            )

    async def get_job_errors(
        self, job: Job | int, *, connection: UserConnection | None = None
    ) -> list[AttemptError]:
        """The errors of a job's attempts, the latest first."""
        from ...history.records import errors_of_job
        from ..job_status import id_of

        async with self._connection(connection) as session:
            return await errors_of_job(session, self.schema, id_of(job))

    async def list_errors(
        self,
        *,
        fingerprint: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 50,
        connection: UserConnection | None = None,
    ) -> list[AttemptError]:
        """The latest errors of all jobs, or of those with one fingerprint."""
        from ...history import records

        async with self._connection(connection) as session:
            return await records.list_errors(
                session, self.schema, fingerprint=fingerprint, since=since, before=before, limit=limit
            )

    async def list_error_groups(
        self,
        *,
        since: datetime | None = None,
        task_identifier: str | None = None,
        limit: int = 50,
        connection: UserConnection | None = None,
    ) -> list[ErrorGroup]:
        """Kinds of errors, the one that occurred last first: how often, since when, in which job last."""
        from ...history import error_groups

        async with self._connection(connection) as session:
            return await error_groups.list_error_groups(
                session, self.schema, since=since, task_identifier=task_identifier, limit=limit
            )

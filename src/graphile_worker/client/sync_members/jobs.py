"""The blocking `utils.jobs`: reading, following, cancelling and retrying jobs.

Written by `make reference` from `members/jobs.py`: change that file, not this one.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..sync_following import SyncFollowing

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.bulk_changes import BulkOptions, BulkReport
    from ...database.statements.inspection import JobDetails, JobFilter
    from ...database.statements.manage_jobs import CancelReport
    from ...values.job import Job
    from ...values.spec import TaskLike
    from ..job_status import JobRecord, JobStack, JobStatus
    from ..sync_handle import SyncJobHandle, SyncJobReference

R = TypeVar("R")


class SyncJobsClient(SyncFollowing):
    """Jobs in the queue, and what is known of those that have left it.

    `get` and `list` read jobs that are in the queue. `get_status` and `get_record` also know those that
    have ended, if they were kept. `wait_for` and `watch` follow a job. Many jobs are cancelled by
    `SyncWorkerUtils.cancel_jobs` and changed by `SyncWorkerUtils.reschedule_jobs`.
    """

    def get(self, job_id: int, *, connection: BlockingConnection | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        return self._calls.run(connection, lambda utils: utils.jobs.get(job_id))

    def list(
        self, filter: JobFilter | None = None, *, connection: BlockingConnection | None = None
    ) -> builtins.list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        return self._calls.run(connection, lambda utils: utils.jobs.list(filter))

    def get_status(self, job: Job | int, *, connection: BlockingConnection | None = None) -> JobStatus:
        """How a job stands: its state, its last error, its progress."""
        return self._calls.run(connection, lambda utils: utils.jobs.get_status(job))

    def get_record(self, job: Job | int, *, connection: BlockingConnection | None = None) -> JobRecord:
        """All that is known of a job: its row, what the history has, the errors of its attempts, its
        progress.
        """
        return self._calls.run(connection, lambda utils: utils.jobs.get_record(job))

    def get_stack(self, job: Job | int, *, timeout: float | timedelta = 6.0) -> JobStack:
        """Where a running job is now: the calls it is in, as its worker sees them.

        Raises StackUnavailableError if the job does not run, if another runtime runs it, or if its worker
        does not answer within `timeout`.
        """
        return self._calls.run(None, lambda utils: utils.jobs.get_stack(job, timeout=timeout))

    @overload
    def handle(self, job: SyncJobHandle[R]) -> SyncJobHandle[R]: ...

    @overload
    def handle(self, job: Job) -> SyncJobHandle[Any]: ...

    @overload
    def handle(self, job: int) -> SyncJobReference: ...

    def handle(self, job: Job | int) -> SyncJobHandle[Any] | SyncJobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        from ..sync_handle import make_handle

        return make_handle(self, job)

    @overload
    def cancel(
        self, job: Job | int, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    @overload
    def cancel(
        self, *, job_key: str, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    def cancel(
        self,
        job: Job | int | None = None,
        *,
        job_key: str | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> CancelReport:
        """Cancel one job, or the job that has this key; see `SyncWorkerUtils.cancel_jobs`.

        If no job has the key, every list of the report is empty.
        """
        result: CancelReport = self._calls.run_any(
            connection, lambda utils: utils.jobs.cancel(job, job_key=job_key, reason=reason)
        )
        return result

    def retry(
        self,
        task: str | TaskLike[Any, Any] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport:
        """Send permanently failed jobs back to work, with all their attempts: those of a task, or all.

        `since` and `until` limit the time at which they failed, `error` is a part of their last error. The
        work is done in steps, and each step is committed unless a `connection` is given.
        """
        options = self._calls.bulk_options(connection, options)
        return self._calls.run(
            connection,
            lambda utils: utils.jobs.retry(task, since=since, until=until, error=error, **options),
            is_long=True,
        )

"""Changing jobs that exist: completing, failing, rescheduling, cancelling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ...database.connections.connection import Connection, UserConnection
from ...errors import InvalidArgumentError
from ...values.job import Job
from ...values.spec import TaskLike
from .base import ClientBase, rereadable

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...database.statements.bulk_changes import BulkChange, BulkOptions, BulkReport
    from ...database.statements.inspection import JobFilter
    from ...database.statements.manage_jobs import CancelReport
    from ...history.removed import ManualOutcome

T = TypeVar("T")


class ManagingJobs(ClientBase):
    """Changes jobs that exist, by id, by key or by a filter."""

    async def remove_job(self, job_key: str, *, connection: UserConnection | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead.

        If the job was added with `keep`, it ends as cancelled.
        """
        from ...database.statements import manage_jobs
        from ...history.removed import ManualOutcome

        return await self._end_jobs(
            connection,
            ManualOutcome("cancelled", "removed by its job key"),
            lambda session: manage_jobs.remove_job(session, self.schema, job_key),
            lambda job: [] if job is None or job.key is None else [job],
        )

    @overload
    async def complete_jobs(
        self, job_ids: Iterable[int], *, connection: UserConnection | None = None
    ) -> list[Job]: ...

    @overload
    async def complete_jobs(
        self, *, filter: JobFilter, connection: UserConnection | None = None, **options: Unpack[BulkOptions]
    ) -> BulkReport: ...

    async def complete_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        filter: JobFilter | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Delete jobs as if they had run, by id or by filter; returns those deleted, or a report.

        Locked jobs stay. A job that was added with `keep` ends as completed, without a result. With a filter
        the work is done in steps, and each step is committed unless a `connection` is given.
        """
        from ...database.statements import bulk_changes, manage_jobs
        from ...history.removed import ManualOutcome

        outcome = ManualOutcome("completed")
        if filter is not None:
            change = bulk_changes.COMPLETE
            return await self._change_in_steps(job_ids, filter, change, connection, options, outcome)
        ids = _job_ids(job_ids, options)
        return await self._end_jobs(
            connection, outcome, lambda session: manage_jobs.complete_jobs(session, self.schema, ids)
        )

    @overload
    async def permanently_fail_jobs(
        self, job_ids: Iterable[int], reason: str | None = None, *, connection: UserConnection | None = None
    ) -> list[Job]: ...

    @overload
    async def permanently_fail_jobs(
        self,
        *,
        reason: str | None = None,
        filter: JobFilter,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    async def permanently_fail_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        reason: str | None = None,
        *,
        filter: JobFilter | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Fail jobs permanently with this last error, by id or by filter; returns those failed, or a report.

        Locked jobs stay. With a filter the work is done in steps, and each step is committed unless a
        `connection` is given.
        """
        from ...database.statements import bulk_changes, manage_jobs
        from ...history.removed import ManualOutcome

        outcome = ManualOutcome("failed")
        if filter is not None:
            change = bulk_changes.failure(reason)
            return await self._change_in_steps(job_ids, filter, change, connection, options, outcome)
        ids = _job_ids(job_ids, options)
        return await self._end_jobs(
            connection,
            outcome,
            lambda session: manage_jobs.permanently_fail_jobs(session, self.schema, ids, reason),
        )

    @overload
    async def reschedule_jobs(
        self,
        job_ids: Iterable[int],
        *,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: UserConnection | None = None,
    ) -> list[Job]: ...

    @overload
    async def reschedule_jobs(
        self,
        *,
        filter: JobFilter,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    async def reschedule_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        filter: JobFilter | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Change the given values (0 is a value) of jobs, by id or by filter.

        Returns the jobs changed, or with a filter a report. Locked jobs stay. A permanently failed job stays
        failed unless `attempts` or `max_attempts` give it another attempt. With a filter the work is done in
        steps, and each step is committed unless a `connection` is given.
        """
        from ...database.statements import bulk_changes, manage_jobs

        if filter is not None:
            change = bulk_changes.new_schedule(
                run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
            )
            return await self._change_in_steps(job_ids, filter, change, connection, options)
        ids = _job_ids(job_ids, options)
        return await self._change_named(
            connection,
            lambda session: manage_jobs.reschedule_jobs(
                session,
                self.schema,
                ids,
                run_at=run_at,
                priority=priority,
                attempts=attempts,
                max_attempts=max_attempts,
            ),
        )

    async def redrive(
        self,
        task: str | TaskLike[Any, Any] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport:
        """Send permanently failed jobs back to work, with all their attempts: those of a task, or all.

        `since` and `until` limit the time at which they failed, `error` is a part of their last error. The
        work is done in steps, and each step is committed unless a `connection` is given.
        """
        from ...database.statements.job_filter import JobFilter

        failed = JobFilter(
            state="failed",
            task_identifier=task if task is None or isinstance(task, str) else task.identifier,
            failed_since=since,
            failed_until=until,
            error=error,
        )
        return await self.reschedule_jobs(
            filter=failed, run_at=timedelta(0), attempts=0, connection=connection, **options
        )

    @overload
    async def cancel_jobs(
        self,
        job_ids: Iterable[int],
        *,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> CancelReport: ...

    @overload
    async def cancel_jobs(
        self,
        *,
        filter: JobFilter,
        reason: str | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    async def cancel_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        reason: str | None = None,
        filter: JobFilter | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> CancelReport | BulkReport:
        """Cancel jobs, by id or by filter: waiting jobs are deleted, workers are told to end running ones.

        No cancelled job runs again. By id, the report says of each job whether it was removed, its worker
        was asked to end it, or it was gone. With a filter the work is done in steps, and each step
        is committed unless a `connection` is given. A job that was added with `keep` ends as cancelled, for
        this `reason`.
        """
        from ...database.statements import bulk_changes, manage_jobs

        if filter is not None:
            change = bulk_changes.cancellation(reason, self.schema)
            outcome = self._cancelled(reason)
            return await self._change_in_steps(job_ids, filter, change, connection, options, outcome)
        ids = _job_ids(job_ids, options)
        return await self._cancel(
            connection,
            reason,
            lambda session: manage_jobs.cancel_jobs(session, self.schema, ids, reason=reason),
        )

    @overload
    async def cancel_job(
        self, job: Job | int, *, reason: str | None = None, connection: UserConnection | None = None
    ) -> CancelReport: ...

    @overload
    async def cancel_job(
        self, *, job_key: str, reason: str | None = None, connection: UserConnection | None = None
    ) -> CancelReport: ...

    async def cancel_job(
        self,
        job: Job | int | None = None,
        *,
        job_key: str | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> CancelReport:
        """Cancel one job, or the job that has this key; see `cancel_jobs`.

        If no job has the key, every list of the report is empty.
        """
        from ...database.statements import manage_jobs
        from ..job_status import id_of

        if (job is None) == (job_key is None):
            raise InvalidArgumentError("job", "name the job, or its job_key, and not both")
        ids = () if job is None else (id_of(job),)
        return await self._cancel(
            connection,
            reason,
            lambda session: manage_jobs.cancel_jobs(
                session, self.schema, ids, job_key=job_key, reason=reason
            ),
        )

    async def _cancel(
        self,
        connection: UserConnection | None,
        reason: str | None,
        work: Callable[[Connection], Awaitable[CancelReport]],
    ) -> CancelReport:
        return await self._end_jobs(connection, self._cancelled(reason), work, lambda report: report.removed)

    def _cancelled(self, reason: str | None) -> ManualOutcome:
        from ...database.statements.manage_jobs import failure_values
        from ...history.removed import ManualOutcome

        return ManualOutcome("cancelled", *failure_values(reason))

    async def _end_jobs(
        self,
        connection: UserConnection | None,
        outcome: ManualOutcome,
        work: Callable[[Connection], Awaitable[T]],
        ended: Callable[[T], Sequence[Job]] | None = None,
    ) -> T:
        """Remove or fail jobs; in the same transaction, keep those that ask for it.

        `ended` finds these jobs in the result; without it, the result is a list of them.
        """

        async def both(session: Connection) -> T:
            result: Any = await work(session)
            jobs = result if ended is None else ended(result)
            if any(job.raw_flags is not None for job in jobs):
                await self._keep_finished_jobs(session, jobs, outcome)
            return result  # type: ignore[no-any-return]

        return await self._change_named(connection, both)

    async def _change_named(
        self, connection: UserConnection | None, work: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Change jobs that are named by id or key, in one transaction that does not wait for long."""
        from ...database.statements.manage_jobs import bounded_waits

        return await self._manage(
            connection, lambda session: bounded_waits(session, self.schema, lambda: work(session))
        )

    async def _keep_finished_jobs(
        self, session: Connection, jobs: Sequence[Job], outcome: ManualOutcome
    ) -> None:
        from ...history.removed import keep_removed

        retention, redactors = self._history_retention, self.hooks.table.redactors
        await keep_removed(
            session, self.schema, jobs, outcome, history_retention=retention, redactors=redactors
        )

    async def _change_in_steps(
        self,
        job_ids: object,
        filter: JobFilter,
        change: BulkChange,
        connection: UserConnection | None,
        options: BulkOptions,
        outcome: ManualOutcome | None = None,
    ) -> BulkReport:
        """`outcome`: how the jobs end by this change."""
        from ...database.statements.bulk_changes import BulkWalk, change_in_steps

        if job_ids is not None:
            raise InvalidArgumentError("filter", "give either job_ids or a filter, not both")

        async def keep_ends(session: Connection, jobs: list[Job]) -> None:
            if outcome is not None:
                await self._keep_finished_jobs(session, jobs, outcome)

        walk = BulkWalk(self.schema, filter, change, options, on_kept=keep_ends)
        return await change_in_steps(walk, lambda work: self._manage(connection, work), options, self._clock)


def _job_ids(job_ids: Iterable[int] | None, options: BulkOptions) -> Iterable[int]:
    """The ids that were given in place of a filter."""
    if job_ids is None:
        raise InvalidArgumentError("job_ids", "name the jobs by id, or pass a filter")
    if options:
        raise InvalidArgumentError(next(iter(options)), "is for a filter and has no effect on job ids")
    return rereadable(job_ids)

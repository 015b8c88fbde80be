"""SyncWorkerUtils: the client for blocking code.

Written by `make reference` from `worker_utils.py` and `adding.py`: change those files, not this one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from .sync_calls import read_here
from .sync_client import SyncClient
from .sync_handle import handle_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from ..database.connections.connection import BlockingConnection
    from ..database.migrations import MigrationReport
    from ..database.statements.bulk_changes import BulkOptions, BulkReport
    from ..database.statements.cleanup import CleanupReport, CleanupTask
    from ..database.statements.inspection import JobFilter
    from ..database.statements.limits import LimitSummary
    from ..database.statements.manage_jobs import CancelReport
    from ..recovery.registry.workers import WorkerList
    from ..recovery.sweep import SweepReport
    from ..values.job import Job, Pause
    from ..values.spec import JobOptions, JobSpec, TaskLike
    from .sync_handle import SyncJobHandle, SyncJobReference
    from .sync_members.history import SyncHistoryClient
    from .sync_members.jobs import SyncJobsClient
    from .sync_members.limits import SyncLimitsClient
    from .sync_members.queues import SyncQueuesClient
    from .sync_members.schedules import SyncSchedulesClient
    from .sync_members.statistics import SyncStatisticsClient
    from .sync_members.workers import SyncWorkersClient
    from .task_arguments import SyncAddedTask

R = TypeVar("R")
Arguments = ParamSpec("Arguments")


class SyncWorkerUtils(SyncClient):
    """Adds and manages jobs from blocking code. Made by `make_sync_worker_utils`; safe for many threads.

    Its own methods add jobs, and are those that Graphile Worker for Node has. The rest is in its members, by
    subject: `utils.jobs`, `utils.queues`, `utils.workers`, `utils.limits`, `utils.schedules`,
    `utils.history` and `utils.statistics`.

    Methods that take a `connection` use it, and so its transaction, in place of one of the client's own. It
    is a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    @cached_property
    def jobs(self) -> SyncJobsClient:
        """Reads, follows, cancels and retries jobs."""
        from .sync_members.jobs import SyncJobsClient

        return SyncJobsClient(self._calls)

    @overload
    def add_job(
        self,
        task: str,
        payload: object = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[Any]: ...

    @overload
    def add_job(
        self, spec: JobSpec, /, *, connection: BlockingConnection | None = None
    ) -> SyncJobHandle[Any]: ...

    @overload
    def add_job(
        self,
        task: TaskLike[None, R],
        payload: None = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[R]: ...

    @overload
    def add_job(
        self, task: SyncAddedTask[Arguments, R], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> SyncJobHandle[R]: ...

    def add_job(  # type: ignore[misc]
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[Any]:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`. The handle can wait for the
        result, if the job or its task has `keep`. If the job is unique and there is one already, that one is
        returned, and its `is_existing` is true.
        """
        result: Job = self._calls.run_any(connection, lambda utils: utils.add_job(task, payload, **options))
        return handle_of(self, result)

    def migrate(self, *, connection: BlockingConnection | None = None) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        return self._calls.run(connection, lambda utils: utils.migrate(), is_long=True)

    @cached_property
    def queues(self) -> SyncQueuesClient:
        """Lists, pauses, resumes and widens named queues."""
        from .sync_members.queues import SyncQueuesClient

        return SyncQueuesClient(self._calls)

    @cached_property
    def workers(self) -> SyncWorkersClient:
        """Lists, pauses, resumes and stops workers, and recovers the jobs of dead ones."""
        from .sync_members.workers import SyncWorkersClient

        return SyncWorkersClient(self._calls)

    @cached_property
    def limits(self) -> SyncLimitsClient:
        """Lists limits and sets their bounds."""
        from .sync_members.limits import SyncLimitsClient

        return SyncLimitsClient(self._calls)

    @cached_property
    def schedules(self) -> SyncSchedulesClient:
        """Lists, pauses and resumes recurring jobs, and runs them now."""
        from .sync_members.schedules import SyncSchedulesClient

        return SyncSchedulesClient(self._calls)

    @cached_property
    def history(self) -> SyncHistoryClient:
        """Lists finished jobs and the errors of attempts."""
        from .sync_members.history import SyncHistoryClient

        return SyncHistoryClient(self._calls)

    @cached_property
    def statistics(self) -> SyncStatisticsClient:
        """Counts jobs, and reads what workers did over time."""
        from .sync_members.statistics import SyncStatisticsClient

        return SyncStatisticsClient(self._calls)

    @overload
    def wait_for(self, job: SyncJobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    def wait_for(
        self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    def wait_for(self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job has ended and return what its task returned. Short for `jobs.wait_for`."""
        return self.jobs.wait_for(job, timeout=timeout)

    def remove_job(self, job_key: str, *, connection: BlockingConnection | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead.

        If the job was added with `keep`, it ends as cancelled.
        """
        return self._calls.run(connection, lambda utils: utils.remove_job(job_key))

    @overload
    def complete_jobs(
        self, job_ids: Iterable[int], *, connection: BlockingConnection | None = None
    ) -> list[Job]: ...

    @overload
    def complete_jobs(
        self,
        *,
        filter: JobFilter,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    def complete_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        filter: JobFilter | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Delete jobs as if they had run, by id or by filter; returns those deleted, or a report.

        Locked jobs stay. A job that was added with `keep` ends as completed, without a result. With a filter
        the work is done in steps, and each step is committed unless a `connection` is given.
        """
        job_ids = read_here(job_ids)
        options = self._calls.bulk_options(connection, options)
        result: list[Job] | BulkReport = self._calls.run_any(
            connection,
            lambda utils: utils.complete_jobs(job_ids, filter=filter, **options),
            is_long=filter is not None,
        )
        return result

    @overload
    def permanently_fail_jobs(
        self,
        job_ids: Iterable[int],
        reason: str | None = None,
        *,
        connection: BlockingConnection | None = None,
    ) -> list[Job]: ...

    @overload
    def permanently_fail_jobs(
        self,
        *,
        reason: str | None = None,
        filter: JobFilter,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    def permanently_fail_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        reason: str | None = None,
        *,
        filter: JobFilter | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Fail jobs permanently with this last error, by id or by filter; returns those failed, or a report.

        Locked jobs stay. With a filter the work is done in steps, and each step is committed unless a
        `connection` is given.
        """
        job_ids = read_here(job_ids)
        options = self._calls.bulk_options(connection, options)
        result: list[Job] | BulkReport = self._calls.run_any(
            connection,
            lambda utils: utils.permanently_fail_jobs(job_ids, reason, filter=filter, **options),
            is_long=filter is not None,
        )
        return result

    @overload
    def reschedule_jobs(
        self,
        job_ids: Iterable[int],
        *,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: BlockingConnection | None = None,
    ) -> list[Job]: ...

    @overload
    def reschedule_jobs(
        self,
        *,
        filter: JobFilter,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    def reschedule_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        filter: JobFilter | None = None,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> list[Job] | BulkReport:
        """Change the given values (0 is a value) of jobs, by id or by filter.

        Returns the jobs changed, or with a filter a report. Locked jobs stay. A permanently failed job stays
        failed unless `attempts` or `max_attempts` give it another attempt; `jobs.retry` gives failed jobs all
        of them. With a filter the work is done in steps, and each step is committed unless a `connection` is
        given.
        """
        job_ids = read_here(job_ids)
        options = self._calls.bulk_options(connection, options)
        result: list[Job] | BulkReport = self._calls.run_any(
            connection,
            lambda utils: utils.reschedule_jobs(
                job_ids,
                filter=filter,
                run_at=run_at,
                priority=priority,
                attempts=attempts,
                max_attempts=max_attempts,
                **options,
            ),
            is_long=filter is not None,
        )
        return result

    @overload
    def cancel_jobs(
        self,
        job_ids: Iterable[int],
        *,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> CancelReport: ...

    @overload
    def cancel_jobs(
        self,
        *,
        filter: JobFilter,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    def cancel_jobs(
        self,
        job_ids: Iterable[int] | None = None,
        *,
        reason: str | None = None,
        filter: JobFilter | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> CancelReport | BulkReport:
        """Cancel jobs, by id or by filter: waiting jobs are deleted, workers are told to end running ones.

        No cancelled job runs again. By id, the report says of each job whether it was removed, its worker
        was asked to end it, or it was gone. With a filter the work is done in steps, and each step
        is committed unless a `connection` is given. A job that was added with `keep` ends as cancelled, for
        this `reason`.
        """
        job_ids = read_here(job_ids)
        options = self._calls.bulk_options(connection, options)
        result: CancelReport | BulkReport = self._calls.run_any(
            connection,
            lambda utils: utils.cancel_jobs(job_ids, reason=reason, filter=filter, **options),
            is_long=filter is not None,
        )
        return result

    def pause(
        self,
        *,
        queue_name: str | None = None,
        task: str | TaskLike[Any, Any] | None = None,
        all: bool = False,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, of a task, or at all, until resumed or until a time.

        Running jobs go on. `until` is a time, or a period from now. Pausing what is paused changes the terms;
        one resume ends it. A paused queue is paused in any runtime. Of tasks, and of all, only Python workers
        know.
        """
        return self._calls.run(
            connection,
            lambda utils: utils.pause(queue_name=queue_name, task=task, all=all, until=until, reason=reason),
        )

    def resume(
        self,
        *,
        queue_name: str | None = None,
        task: str | TaskLike[Any, Any] | None = None,
        all: bool = False,
        connection: BlockingConnection | None = None,
    ) -> bool:
        """End the pause of a named queue, of a task, or of all; returns whether it was paused by itself.

        With `all`, tasks and queues that were paused by themselves stay paused.
        """
        return self._calls.run(
            connection, lambda utils: utils.resume(queue_name=queue_name, task=task, all=all)
        )

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: BlockingConnection | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers. Short for `limits.set`."""
        return self.limits.set(name, concurrency=concurrency, rate=rate, burst=burst, connection=connection)

    def list_workers(self, *, all: bool = False, connection: BlockingConnection | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive. Short for `workers.list`."""
        return self.workers.list(all=all, connection=connection)

    def sweep_stale_workers(
        self,
        *,
        dry_run: bool = False,
        recovery_delay: float | timedelta = 0.0,
        max_recoveries: int | None = None,
    ) -> SweepReport:
        """Recover the jobs of dead workers now. Short for `workers.sweep`."""
        return self.workers.sweep(
            dry_run=dry_run, recovery_delay=recovery_delay, max_recoveries=max_recoveries
        )

    def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: BlockingConnection | None = None
    ) -> None:
        """Unlock every job and queue of these pools (ids as in `locked_by`). They must be dead."""
        worker_ids = read_here(worker_ids)
        return self._calls.run(connection, lambda utils: utils.force_unlock_workers(worker_ids))

    def cleanup(
        self,
        tasks: Iterable[CleanupTask] | None = None,
        *,
        task_identifiers_to_keep: Iterable[str] | None = None,
        connection: BlockingConnection | None = None,
    ) -> CleanupReport:
        """Delete what is no longer needed; returns how much was deleted.

        The default is unused queues, and with `task_identifiers_to_keep` unused task identifiers as well.
        Identifiers that running Python workers have are kept, too. Permanently failed jobs are deleted only
        with `DELETE_PERMAFAILED_JOBS`.
        """
        tasks = read_here(tasks)
        task_identifiers_to_keep = read_here(task_identifiers_to_keep)
        return self._calls.run(
            connection,
            lambda utils: utils.cleanup(tasks, task_identifiers_to_keep=task_identifiers_to_keep),
            is_long=True,
        )

"""SyncWorkerUtils: the client for blocking code.

Written by `make reference` from `worker_utils.py` and `methods/`: change those files, not this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from .sync_client import SyncClient, read_here

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime, timedelta
    from typing import Literal

    from ..database.connections.connection import BlockingConnection
    from ..database.migrations import MigrationReport
    from ..database.statements.bulk_changes import BulkOptions, BulkReport
    from ..database.statements.cleanup import CleanupReport, CleanupTask
    from ..database.statements.control import Deploy
    from ..database.statements.inspection import JobDetails, JobFilter, QueueSummary, Statistics
    from ..database.statements.limits import LimitSummary
    from ..database.statements.manage_jobs import CancelReport
    from ..database.statements.schedules import Schedule
    from ..history.error_groups import ErrorGroup
    from ..history.records import AttemptError, FinishedJob, HistoryFilter
    from ..history.statistics import BacklogSample, StatisticsGroup, StatisticsList
    from ..recovery.registry.workers import WorkerList
    from ..recovery.sweep import SweepReport
    from ..values.job import Job, Pause
    from ..values.spec import JobOptions, JobSpec, PlainJobOptions, TaskLike
    from .job_status import JobRecord, JobStack, JobStatus
    from .sync_handle import SyncJobHandle

P = TypeVar("P")


class SyncWorkerUtils(SyncClient):
    """Adds and manages jobs from blocking code. Made by `make_sync_worker_utils`; safe for many threads.

    Methods that take a `connection` use it, and so its transaction, in place of one of the client's own. It
    is a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    def migrate(self, *, connection: BlockingConnection | None = None) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        return self._run(connection, lambda utils: utils.migrate(), is_long=True)

    @overload
    def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        keep: Literal[True] | timedelta,
        connection: BlockingConnection | None = None,
        **options: Unpack[PlainJobOptions],
    ) -> SyncJobHandle: ...

    @overload
    def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        keep: Literal[True] | timedelta,
        connection: BlockingConnection | None = None,
        **options: Unpack[PlainJobOptions],
    ) -> SyncJobHandle: ...

    @overload
    def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    def add_job(self, spec: JobSpec, /, *, connection: BlockingConnection | None = None) -> Job: ...

    def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`. With `keep` the finished job
        is kept, and the result is a `SyncJobHandle`, which can wait for it. If the job is unique and there is
        one already, that one is returned, and its `is_existing` is true.
        """
        result: Job = self._run_any(connection, lambda utils: utils.add_job(task, payload, **options))
        return result

    def remove_job(self, job_key: str, *, connection: BlockingConnection | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead.

        If the job was added with `keep`, it ends as cancelled.
        """
        return self._run(connection, lambda utils: utils.remove_job(job_key))

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
        options = self._bulk_options(connection, options)
        result: list[Job] | BulkReport = self._run_any(
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
        options = self._bulk_options(connection, options)
        result: list[Job] | BulkReport = self._run_any(
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
        failed unless `attempts` or `max_attempts` give it another attempt. With a filter the work is done in
        steps, and each step is committed unless a `connection` is given.
        """
        job_ids = read_here(job_ids)
        options = self._bulk_options(connection, options)
        result: list[Job] | BulkReport = self._run_any(
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

    def redrive(
        self,
        task: str | TaskLike[Any] | None = None,
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
        options = self._bulk_options(connection, options)
        return self._run(
            connection,
            lambda utils: utils.redrive(task, since=since, until=until, error=error, **options),
            is_long=True,
        )

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
        options = self._bulk_options(connection, options)
        result: CancelReport | BulkReport = self._run_any(
            connection,
            lambda utils: utils.cancel_jobs(job_ids, reason=reason, filter=filter, **options),
            is_long=filter is not None,
        )
        return result

    @overload
    def cancel_job(
        self, job: Job | int, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    @overload
    def cancel_job(
        self, *, job_key: str, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> CancelReport: ...

    def cancel_job(
        self,
        job: Job | int | None = None,
        *,
        job_key: str | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> CancelReport:
        """Cancel one job, or the job that has this key; see `cancel_jobs`.

        If no job has the key, every list of the report is empty.
        """
        result: CancelReport = self._run_any(
            connection, lambda utils: utils.cancel_job(job, job_key=job_key, reason=reason)
        )
        return result

    def pause_queue(
        self,
        queue_name: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, in any runtime, until it is resumed or until a time.

        A running job goes on. `until` is a time, or a period from now. Pausing a paused queue changes the
        terms; one resume ends it.
        """
        return self._run(connection, lambda utils: utils.pause_queue(queue_name, until=until, reason=reason))

    def pause_task(
        self,
        task: str | TaskLike[Any],
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a task in Python workers; the rest as in `pause_queue`.

        Node and Rust workers that have the task do not know of it.
        """
        return self._run(connection, lambda utils: utils.pause_task(task, until=until, reason=reason))

    def pause_all(
        self,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Start no more jobs at all in Python workers; the rest as in `pause_task`."""
        return self._run(connection, lambda utils: utils.pause_all(until=until, reason=reason))

    def resume_queue(self, queue_name: str, *, connection: BlockingConnection | None = None) -> bool:
        """End the pause of a queue; returns whether it was paused.

        While a job of the queue is still running, the next one waits for it.
        """
        return self._run(connection, lambda utils: utils.resume_queue(queue_name))

    def resume_task(self, task: str | TaskLike[Any], *, connection: BlockingConnection | None = None) -> bool:
        """End the pause of a task; returns whether it was paused by itself."""
        return self._run(connection, lambda utils: utils.resume_task(task))

    def resume_all(self, *, connection: BlockingConnection | None = None) -> bool:
        """End what `pause_all` began; tasks and queues that were paused by themselves stay paused."""
        return self._run(connection, lambda utils: utils.resume_all())

    def list_pauses(self, *, connection: BlockingConnection | None = None) -> list[Pause]:
        """What is paused: everything first, then tasks, queues and recurring jobs, by name."""
        return self._run(connection, lambda utils: utils.list_pauses())

    def list_schedules(
        self,
        identifier: str | None = None,
        *,
        after: str | None = None,
        limit: int = 500,
        connection: BlockingConnection | None = None,
    ) -> list[Schedule]:
        """Recurring jobs by identifier, those after `after`; or one of them, if there is one.

        Running Python workers tell what each is. Of those that only other runtimes have, the database knows
        no more than when a job was last added.
        """
        return self._run(connection, lambda utils: utils.list_schedules(identifier, after=after, limit=limit))

    def pause_schedule(
        self,
        identifier: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> Pause:
        """Add no more jobs of a recurring job, until a time, for a period, or until `resume_schedule`.

        What becomes due during the pause is skipped, and not made up for. Only workers of this package obey.
        """
        return self._run(
            connection, lambda utils: utils.pause_schedule(identifier, until=until, reason=reason)
        )

    def resume_schedule(self, identifier: str, *, connection: BlockingConnection | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        return self._run(connection, lambda utils: utils.resume_schedule(identifier))

    def run_schedule_now(self, identifier: str, *, connection: BlockingConnection | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        return self._run(connection, lambda utils: utils.run_schedule_now(identifier))

    def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: BlockingConnection | None = None
    ) -> None:
        """Unlock every job and queue of these pools (ids as in `locked_by`). They must be dead."""
        worker_ids = read_here(worker_ids)
        return self._run(connection, lambda utils: utils.force_unlock_workers(worker_ids))

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
        return self._run(
            connection,
            lambda utils: utils.cleanup(tasks, task_identifiers_to_keep=task_identifiers_to_keep),
            is_long=True,
        )

    def get_job(self, job_id: int, *, connection: BlockingConnection | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        return self._run(connection, lambda utils: utils.get_job(job_id))

    def list_jobs(
        self, filter: JobFilter | None = None, *, connection: BlockingConnection | None = None
    ) -> list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        return self._run(connection, lambda utils: utils.list_jobs(filter))

    def set_queue_concurrency(
        self, queue_name: str, concurrency: int | None, *, connection: BlockingConnection | None = None
    ) -> None:
        """Let up to `concurrency` jobs of a named queue run at once; None leaves that to its tasks again.

        It takes effect at once and survives restarts. Jobs that run when it is lowered go on. Node workers
        keep it, too.
        """
        return self._run(connection, lambda utils: utils.set_queue_concurrency(queue_name, concurrency))

    def list_queues(
        self, *, limit: int = 100, exact: bool = False, connection: BlockingConnection | None = None
    ) -> list[QueueSummary]:
        """Named queues, longest first, with the pools that have locked them; counts as in `statistics`."""
        return self._run(connection, lambda utils: utils.list_queues(limit=limit, exact=exact), is_long=exact)

    def statistics(self, *, exact: bool = False, connection: BlockingConnection | None = None) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        return self._run(connection, lambda utils: utils.statistics(exact=exact), is_long=exact)

    def get_job_status(self, job: Job | int, *, connection: BlockingConnection | None = None) -> JobStatus:
        """How a job stands: its state, its last error, its progress."""
        return self._run(connection, lambda utils: utils.get_job_status(job))

    def get_job_record(self, job: Job | int, *, connection: BlockingConnection | None = None) -> JobRecord:
        """All that is known of a job: its row, what the history has, the errors of its attempts, its
        progress.
        """
        return self._run(connection, lambda utils: utils.get_job_record(job))

    def get_job_history(
        self, job: Job | int, *, connection: BlockingConnection | None = None
    ) -> list[FinishedJob]:
        """What the history has of a job, the latest first; a job that was retried by hand was finished
        several times.
        """
        return self._run(connection, lambda utils: utils.get_job_history(job))

    def list_finished_jobs(
        self, filter: HistoryFilter | None = None, *, connection: BlockingConnection | None = None
    ) -> list[FinishedJob]:
        """One page of the finished jobs that were kept, the latest first."""
        return self._run(connection, lambda utils: utils.list_finished_jobs(filter))

    def get_job_errors(
        self, job: Job | int, *, connection: BlockingConnection | None = None
    ) -> list[AttemptError]:
        """The errors of a job's attempts, the latest first."""
        return self._run(connection, lambda utils: utils.get_job_errors(job))

    def list_errors(
        self,
        *,
        fingerprint: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 50,
        connection: BlockingConnection | None = None,
    ) -> list[AttemptError]:
        """The latest errors of all jobs, or of those with one fingerprint."""
        return self._run(
            connection,
            lambda utils: utils.list_errors(fingerprint=fingerprint, since=since, before=before, limit=limit),
        )

    def list_error_groups(
        self,
        *,
        since: datetime | None = None,
        task_identifier: str | None = None,
        limit: int = 50,
        connection: BlockingConnection | None = None,
    ) -> list[ErrorGroup]:
        """Kinds of errors, the one that occurred last first: how often, since when, in which job last."""
        return self._run(
            connection,
            lambda utils: utils.list_error_groups(since=since, task_identifier=task_identifier, limit=limit),
        )

    def task_statistics(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        task_identifier: str | None = None,
        by: StatisticsGroup | Collection[StatisticsGroup] = (),
        connection: BlockingConnection | None = None,
    ) -> StatisticsList:
        """What workers of this package did: counts of completed and failed jobs, run times and wait times.

        `since` is a time, or a period before now. `by` groups by "minute", "hour", "task", "pool", or several
        of them; without it there is one row. Minutes are kept for two days and hours for 90 days; a period of
        more than two hours begins with a full hour. Groups without jobs are left out.
        """
        return self._run(
            connection,
            lambda utils: utils.task_statistics(
                since=since, until=until, task_identifier=task_identifier, by=by
            ),
        )

    def samples(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        connection: BlockingConnection | None = None,
    ) -> list[BacklogSample]:
        """Samples of the backlog, one every ten seconds of the last two days, with what all runtimes did."""
        return self._run(connection, lambda utils: utils.samples(since=since, until=until))

    def list_limits(self, *, connection: BlockingConnection | None = None) -> list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        return self._run(connection, lambda utils: utils.list_limits())

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: BlockingConnection | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers; None leaves one as it is.

        They win over the bounds in the code and stay until `reset_limit`, also when workers start again. With
        a concurrency of 0 no job starts.
        """
        return self._run(
            connection, lambda utils: utils.set_limit(name, concurrency=concurrency, rate=rate, burst=burst)
        )

    def reset_limit(self, name: str, *, connection: BlockingConnection | None = None) -> LimitSummary:
        """Remove what `set_limit` has set: the bounds in the code hold again."""
        return self._run(connection, lambda utils: utils.reset_limit(name))

    def list_workers(self, *, all: bool = False, connection: BlockingConnection | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Pools of other runtimes appear while they have jobs locked. Finding those takes a scan of the jobs
        table: a large one is scanned only with `all`, and `is_complete` of the result says whether it was.
        """
        return self._run(connection, lambda utils: utils.list_workers(all=all), is_long=all)

    def stop_worker(
        self, worker_id: str, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> None:
        """Ask a Python worker to shut down gracefully, as if it had received SIGTERM.

        Raises WorkerNotFoundError if there is no such worker. Returns when it was asked, not when it ends.
        """
        return self._run(connection, lambda utils: utils.stop_worker(worker_id, reason=reason))

    def quiet_worker(
        self, worker_id: str, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> None:
        """Ask a Python worker to fetch no more jobs, until `resume_worker`. Running jobs go on.

        Jobs that it has prefetched are returned. Raises WorkerNotFoundError if there is no such worker.
        """
        return self._run(connection, lambda utils: utils.quiet_worker(worker_id, reason=reason))

    def resume_worker(self, worker_id: str, *, connection: BlockingConnection | None = None) -> bool:
        """Let a quiet worker fetch jobs again; returns whether it was quiet."""
        return self._run(connection, lambda utils: utils.resume_worker(worker_id))

    def get_job_stack(self, job: Job | int, *, timeout: float | timedelta = 6.0) -> JobStack:
        """Where a running job is now: the calls it is in, as its worker sees them.

        Raises StackUnavailableError if the job does not run, if another runtime runs it, or if its worker
        does not answer within `timeout`.
        """
        return self._run(None, lambda utils: utils.get_job_stack(job, timeout=timeout))

    def list_deploys(
        self, *, since: datetime | timedelta, connection: BlockingConnection | None = None
    ) -> list[Deploy]:
        """When versions of the application (`app_version`) were started, the latest first.

        `since` is a time, or a period before now.
        """
        return self._run(connection, lambda utils: utils.list_deploys(since=since))

    def sweep_stale_workers(
        self,
        *,
        dry_run: bool = False,
        recovery_delay: float | timedelta = 0.0,
        max_recoveries: int | None = None,
    ) -> SweepReport:
        """Recover the jobs of dead workers now, as every worker does regularly.

        A worker that has only just missed its heartbeats is declared dead after its `recovery_grace`: `lost`
        in the report says when to sweep again. A `dry_run` changes nothing and calls no interceptors.
        """
        return self._run(
            None,
            lambda utils: utils.sweep_stale_workers(
                dry_run=dry_run, recovery_delay=recovery_delay, max_recoveries=max_recoveries
            ),
            is_long=True,
        )

"""WorkerUtils: the client. It validates, borrows a connection, and leaves the SQL to `database/statements/`.

What it shares with its members, such as `utils.jobs`, is in `connections`; the members are in `members/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ..database.connections.bound import BoundConnection
from ..database.connections.connection import Connection, UserConnection
from ..database.connections.foreign import as_connection
from ..database.migrations import MigrationReport, migrate
from ..hooks import Hooks
from ..values.job import Job
from ..values.spec import TaskLike
from .adding import AddingClient
from .connections import ClientConnections, ConnectionT, bound_options

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ..database.statements.bulk_changes import BulkOptions, BulkReport
    from ..database.statements.cleanup import CleanupReport, CleanupTask
    from ..database.statements.inspection import JobFilter
    from ..database.statements.limits import LimitSummary
    from ..database.statements.manage_jobs import CancelReport
    from ..recovery.registry.workers import WorkerList
    from ..recovery.sweep import SweepReport
    from ..values.job import Pause
    from ..values.options import WorkerOptions
    from .changing import JobChanges
    from .handle import JobHandle, JobReference
    from .members.history import HistoryClient
    from .members.limits import LimitsClient
    from .members.queues import QueuesClient
    from .members.schedules import SchedulesClient
    from .members.statistics import StatisticsClient
    from .members.workers import WorkersClient

R = TypeVar("R")


class ManagingClient(AddingClient, Generic[ConnectionT]):
    """The part of `WorkerUtils` whose blocking form is made of it: methods without overloads, and members."""

    # -- members by subject --------------------------------------------------------------------------------

    @cached_property
    def queues(self) -> QueuesClient[ConnectionT]:
        """Lists, pauses, resumes and widens named queues."""
        from .members.queues import QueuesClient

        return QueuesClient(self._connections)

    @cached_property
    def workers(self) -> WorkersClient[ConnectionT]:
        """Lists, pauses, resumes and stops workers, and recovers the jobs of dead ones."""
        from .members.workers import WorkersClient

        return WorkersClient(self._connections)

    @cached_property
    def limits(self) -> LimitsClient[ConnectionT]:
        """Lists limits and sets their bounds."""
        from .members.limits import LimitsClient

        return LimitsClient(self._connections)

    @cached_property
    def schedules(self) -> SchedulesClient[ConnectionT]:
        """Lists, pauses and resumes recurring jobs, and runs them now."""
        from .members.schedules import SchedulesClient

        return SchedulesClient(self._connections, self.add_job)

    @cached_property
    def history(self) -> HistoryClient[ConnectionT]:
        """Lists finished jobs and the errors of attempts."""
        from .members.history import HistoryClient

        return HistoryClient(self._connections)

    @cached_property
    def statistics(self) -> StatisticsClient[ConnectionT]:
        """Counts jobs, and reads what workers did over time."""
        from .members.statistics import StatisticsClient

        return StatisticsClient(self._connections)

    @cached_property
    def _changes(self) -> JobChanges:
        from .changing import JobChanges

        return JobChanges(self._connections)

    # -- jobs and the schema -------------------------------------------------------------------------------

    async def migrate(self, *, connection: ConnectionT | None = None) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        async with self._borrow(connection) as session:
            report = await migrate(session, self.schema)
        self._plain_jobs.forget()
        return report

    async def remove_job(self, job_key: str, *, connection: ConnectionT | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead.

        If the job was added with `keep`, it ends as cancelled.
        """
        from ..database.statements import manage_jobs
        from ..history.removed import ManualOutcome

        return await self._changes.end(
            connection,
            ManualOutcome("cancelled", "removed by its job key"),
            lambda session: manage_jobs.remove_job(session, self.schema, job_key),
            lambda job: [] if job is None or job.key is None else [job],
        )

    # -- pausing, workers and cleaning up ------------------------------------------------------------------

    async def pause(
        self,
        *,
        queue_name: str | None = None,
        task: str | TaskLike[Any, Any] | None = None,
        all: bool = False,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: ConnectionT | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, of a task, or at all, until resumed or until a time.

        Running jobs finish. `until` is a time, or a period from now. Pausing what is paused changes the
        terms; one resume ends it. A paused queue is paused in any runtime. Only Python workers know of the
        other pauses.
        """
        from .changing import pause

        return await pause(
            self._connections,
            connection,
            queue_name=queue_name,
            task=task,
            all=all,
            until=until,
            reason=reason,
        )

    async def resume(
        self,
        *,
        queue_name: str | None = None,
        task: str | TaskLike[Any, Any] | None = None,
        all: bool = False,
        connection: ConnectionT | None = None,
    ) -> bool:
        """End the pause of a named queue, of a task, or of all; returns whether it was paused by itself.

        With `all`, tasks and queues that were paused by themselves stay paused.
        """
        from .changing import resume

        return await resume(self._connections, connection, queue_name=queue_name, task=task, all=all)

    async def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: ConnectionT | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers. Short for `limits.set`."""
        return await self.limits.set(
            name, concurrency=concurrency, rate=rate, burst=burst, connection=connection
        )

    async def list_workers(self, *, all: bool = False, connection: ConnectionT | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive. Short for `workers.list`."""
        return await self.workers.list(all=all, connection=connection)

    async def sweep_stale_workers(
        self,
        *,
        dry_run: bool = False,
        recovery_delay: float | timedelta = 0.0,
        max_recoveries: int | None = None,
    ) -> SweepReport:
        """Recover the jobs of dead workers now. Short for `workers.sweep`."""
        return await self.workers.sweep(
            dry_run=dry_run, recovery_delay=recovery_delay, max_recoveries=max_recoveries
        )

    async def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: ConnectionT | None = None
    ) -> None:
        """Unlock every job and queue of these pools (ids as in `locked_by`). They must be dead."""
        from ..database.statements import cleanup
        from .connections import rereadable

        worker_ids = rereadable(worker_ids)
        await self._connections.change(connection, cleanup.force_unlock_workers, worker_ids)

    async def cleanup(
        self,
        tasks: Iterable[CleanupTask] | None = None,
        *,
        task_identifiers_to_keep: Iterable[str] | None = None,
        connection: ConnectionT | None = None,
    ) -> CleanupReport:
        """Delete what is no longer needed; returns how much was deleted.

        The default is unused queues, and with `task_identifiers_to_keep` unused task identifiers as well.
        Identifiers that running Python workers have are kept, too. Permanently failed jobs are deleted only
        with `DELETE_PERMAFAILED_JOBS`.
        """
        from ..database.statements import cleanup

        return await self._connections.call(
            connection, cleanup.cleanup, tasks, task_identifiers_to_keep=task_identifiers_to_keep
        )


class WorkerUtils(ManagingClient[UserConnection]):
    """Adds and manages jobs. Made by `make_worker_utils`; safe for concurrent use in one event loop.

    Its own methods add jobs, and are those that Graphile Worker for Node has. The rest is in its members, by
    subject: `utils.jobs`, `utils.queues`, `utils.workers`, `utils.limits`, `utils.schedules`,
    `utils.history` and `utils.statistics`.

    Methods that take a `connection` use it, and so its transaction, in place of one from the pool. It is a
    connection of asyncpg or psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    # -- opening and closing -------------------------------------------------------------------------------

    @classmethod
    def bound(
        cls,
        connection: UserConnection,
        *,
        schema: str | None = None,
        hooks: Hooks | None = None,
        use_local_time: bool | None = None,
        options: WorkerOptions | None = None,
    ) -> Self:
        """A client for this connection or session alone: all its methods work in your transaction.

        It has no pool and needs no closing, so it can be made for each request. Options that are not given
        come from `options` if there is such an object, else from the environment and the configuration file.
        """
        chosen = bound_options(schema, use_local_time, options)
        return cls(
            ClientConnections(
                BoundConnection(as_connection(connection)),
                schema=chosen.schema_name,
                use_local_time=chosen.use_local_time,
                hooks=hooks,
                history_retention=chosen.history.retention,
            )
        )

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._connections.is_released

    async def release(self) -> None:
        """Close the client, and its pool unless the pool was given. A bound client has nothing to close."""
        self._connections.check_open()
        self._connections.check_loop()
        if self._connections.is_bound:
            return
        if self._task_name_check is not None:
            await self._task_name_check.close()
        await self._connections.close()

    def with_pg_client(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool: `async with utils.with_pg_client() as connection`."""
        return self._connections.lend()

    # -- jobs ----------------------------------------------------------------------------------------------

    @overload
    async def wait_for(self, job: JobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    async def wait_for(
        self, job: Job | JobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    async def wait_for(
        self, job: Job | JobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any:
        """Wait until the job has ended and return what its task returned. Short for `jobs.wait_for`."""
        return await self.jobs.wait_for(job, timeout=timeout)

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
        from ..database.statements import bulk_changes, manage_jobs
        from ..history.removed import ManualOutcome
        from .changing import ids_of

        outcome = ManualOutcome("completed")
        if filter is not None:
            return await self._changes.in_steps(
                filter, bulk_changes.COMPLETE, connection, options, outcome, job_ids=job_ids
            )
        ids = ids_of(job_ids, options)
        return await self._changes.end(
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
        from ..database.statements import bulk_changes, manage_jobs
        from ..history.removed import ManualOutcome
        from .changing import ids_of

        outcome = ManualOutcome("failed")
        if filter is not None:
            change = bulk_changes.failure(reason)
            return await self._changes.in_steps(filter, change, connection, options, outcome, job_ids=job_ids)
        ids = ids_of(job_ids, options)
        failed = await self._changes.end(
            connection,
            outcome,
            lambda session: manage_jobs.permanently_fail_jobs(session, self.schema, ids, reason),
            lambda found: found.kept_as,
        )
        return failed.jobs

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
        failed unless `attempts` or `max_attempts` give it another attempt; `jobs.retry` gives failed jobs all
        of them. With a filter the work is done in steps, and each step is committed unless a `connection` is
        given.
        """
        from ..database.statements import bulk_changes, manage_jobs
        from .changing import ids_of

        if filter is not None:
            change = bulk_changes.new_schedule(
                run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
            )
            return await self._changes.in_steps(filter, change, connection, options, job_ids=job_ids)
        ids = ids_of(job_ids, options)
        return await self._changes.named(
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

    @overload
    async def cancel_jobs(
        self, job_ids: Iterable[int], *, reason: str | None = None, connection: UserConnection | None = None
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
        from ..database.statements import bulk_changes
        from .changing import cancelled, ids_of

        if filter is not None:
            change = bulk_changes.cancellation(reason, self.schema)
            return await self._changes.in_steps(
                filter, change, connection, options, cancelled(reason), job_ids=job_ids
            )
        return await self._changes.cancel(connection, ids_of(job_ids, options), reason)

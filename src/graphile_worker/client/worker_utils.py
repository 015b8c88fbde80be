"""WorkerUtils: the client. It validates, borrows a connection, and leaves the SQL to `queries/`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from msgspec.structs import astuple

from ..clock import Clock, SystemClock
from ..db.bound import BoundConnection, no_connection_to_lend
from ..db.connection import Connection, Pool, UserConnection
from ..db.foreign import as_connection
from ..db.idle_connections import IdleConnections
from ..db.open import lend
from ..db.retry import is_conflict, past_conflicts
from ..db.single import DRIVER_CONNECTIONS
from ..errors import GraphileWorkerError, InvalidArgumentError
from ..hooks import Hooks
from ..hooks.add_watchers import WatchedAdd, WatchedAdds
from ..hooks.events import AddSource, JobsAdded
from ..job import Job
from ..migrate import MigrationReport, migrate
from ..queries import add, add_many
from ..queries.add_plain_job import PlainJobs
from ..schema_name import SchemaName
from ..spec import JobOptions, JobSpec, PlainJobOptions, TaskLike, refuse_unknown_options
from .borrowing import BorrowedConnection
from .new_names import NewNames, checked_names

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ..history.error_groups import ErrorGroup
    from ..history.progress import Progress
    from ..history.records import AttemptError, HistoryFilter, JobEnd, JobStanding
    from ..history.removed import ManualEnd
    from ..options import WorkerOptions
    from ..pauses import Pause
    from ..queries.bulk_changes import BulkChange, BulkOptions, BulkReport
    from ..queries.cancel import CancelReport
    from ..queries.figures import BacklogSample, FigureGroup, FigureList
    from ..queries.inspection import JobDetails, JobFilter, QueueSummary, Statistics
    from ..queries.limits import LimitSummary
    from ..queries.maintenance import CleanupReport, CleanupTask
    from ..queries.requests import Deploy
    from ..queries.schedules import Schedule
    from ..recovery.sweep import SweepReport
    from ..recovery.worker_rows import WorkerList
    from .following import JobRecord, JobStatus
    from .handle import JobHandle, JobReference
    from .job_stacks import JobStack
    from .waiting import Waiters

P = TypeVar("P")
T = TypeVar("T")

DEFAULT_RETENTION = 7 * 86_400.0  # seconds, as the option `history_retention`


class WorkerUtils:
    """Adds and manages jobs. Made by `make_worker_utils`; safe for concurrent use in one event loop.

    Methods that take a `connection` use it, and so its transaction, in place of one from the pool. It is a
    connection of asyncpg or psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    _why_released = "this client has been released; open a new one"

    def __init__(
        self,
        pool: Pool,
        *,
        schema: SchemaName | None = None,
        owns_pool: bool = False,
        use_local_time: bool = False,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        source: AddSource = "client",
        checks_names: bool = True,
        history_retention: float = DEFAULT_RETENTION,
        taken_connections: int = 0,
    ) -> None:
        """`checks_names`: whether to warn about jobs for tasks that no worker knows.

        `history_retention`: how long to keep the ends of jobs that this client removes.
        `taken_connections`: how many connections of the pool are not for this client, but for its worker.
        """
        self.pool = pool
        self.schema = schema if schema is not None else SchemaName()
        self.hooks = hooks if hooks is not None else Hooks()
        self._owns_pool = owns_pool
        self._idle = IdleConnections(pool) if owns_pool else None
        self._clock = clock if clock is not None else SystemClock()
        self._use_local_time = use_local_time
        self._released = False
        self._source = source
        self._history_retention = history_retention
        self._taken_connections = taken_connections
        self._observed = self.hooks.events._observed
        self._add_watchers = self.hooks._add_watchers
        self._plain_jobs = PlainJobs(self.schema)
        # The fast path must not be taken inside a caller's transaction: see add_plain_job.
        self._adds_plain_jobs = not getattr(pool, "may_be_in_transaction", False)
        self._new_names: NewNames | None = None
        if checks_names and self._adds_plain_jobs:
            self._new_names = NewNames(self.schema, lambda: self._connection(None))
        self._checked_names = checked_names(self.schema)
        self._home: Any = pool.connection if isinstance(pool, BoundConnection) else None
        self._is_bound = self._home is not None
        serves_any_loop = self._is_bound or getattr(pool, "serves_any_loop", False)
        self._current_loop = _no_loop if serves_any_loop else asyncio._get_running_loop
        self._loop = self._current_loop()

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
        from .binding import bound_options

        chosen = bound_options(schema, use_local_time, options)
        return cls(
            BoundConnection(as_connection(connection)),
            schema=chosen.schema_name,
            use_local_time=chosen.use_local_time,
            hooks=hooks,
            history_retention=chosen.history_retention,
        )

    # -- the schema ----------------------------------------------------------------------------------------

    async def migrate(self, *, connection: UserConnection | None = None) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        async with self._connection(connection) as session:
            report = await migrate(session, self.schema)
        self._plain_jobs.forget()
        return report

    # -- adding --------------------------------------------------------------------------------------------

    @overload
    async def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        keep: Literal[True] | timedelta,
        connection: UserConnection | None = None,
        **options: Unpack[PlainJobOptions],
    ) -> JobHandle: ...

    @overload
    async def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        keep: Literal[True] | timedelta,
        connection: UserConnection | None = None,
        **options: Unpack[PlainJobOptions],
    ) -> JobHandle: ...

    @overload
    async def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    async def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    async def add_job(self, spec: JobSpec, /, *, connection: UserConnection | None = None) -> Job: ...

    async def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`. With `keep` the end of the job
        is kept, and the result is a `JobHandle`, which can wait for it. If the job is unique and there is
        one already, that one is returned, and its `is_existing` is true.
        """
        if type(task) is str or not isinstance(task, JobSpec):
            try:
                spec = JobSpec(task, payload, **options)
            except TypeError as error:
                refuse_unknown_options(options, error)
                raise
        else:
            spec = _whole(task, payload, options)
        if self.hooks._before_add:
            spec = await self.hooks._intercept_add(spec)
        if self._add_watchers:
            job = await self._add_watched(spec, connection)
        else:
            job = await self._add(spec, connection)
        if JobsAdded in self._observed:
            self.hooks.events.emit(JobsAdded(specs=(spec,), jobs=(job,), source=self._source))
        if job.task_identifier not in self._checked_names and self._new_names is not None:
            if isinstance(task, str | JobSpec):
                self._new_names.check(job)
            else:  # the name of a task object is not misspelt
                self._checked_names.add(job.task_identifier)
        return self.handle(job) if spec.keep else job

    async def _add(self, spec: JobSpec, connection: UserConnection | None) -> Job:
        try:
            async with self._connection(connection) as session:
                job: Job | None = None
                if (
                    spec.job_key is None
                    and spec.queue_name is None
                    and (self._adds_plain_jobs if connection is None else not session.is_in_transaction())
                ):
                    job = await self._plain_jobs.add(session, spec, self._now())
                if job is None:
                    job = await add.add_job(session, self.schema, spec, now=self._now())
        except Exception as error:
            if self._may_retry(connection, error):
                job = await self._retry(
                    lambda session: add.add_job(session, self.schema, spec, now=self._now())
                )
            elif (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            else:
                raise
        return job

    async def _add_watched(self, spec: JobSpec, connection: UserConnection | None) -> Job:
        watched = WatchedAdd(self._add_watchers, (spec,))
        try:
            job = await self._add(watched.specs[0], connection)
        except BaseException as error:
            watched.ended(None, error)
            raise
        watched.ended((job,))
        return job

    @overload
    def handle(self, job: Job) -> JobHandle: ...

    @overload
    def handle(self, job: int) -> JobReference: ...

    def handle(self, job: Job | int) -> JobHandle | JobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        from .handle import JobHandle, JobReference

        if isinstance(job, Job):
            fields = astuple(job)[: len(Job.__struct_fields__)]
            return JobHandle(*fields, _client=self, _is_existing=job.is_existing)
        if isinstance(job, int) and not isinstance(job, bool):
            return JobReference(id=job, _client=self)
        raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")

    async def add_jobs(
        self, specs: Iterable[JobSpec], *, return_jobs: bool = True, connection: UserConnection | None = None
    ) -> list[Job]:
        """Add many jobs in one transaction; returns them in the order of the specs.

        With `return_jobs=False` the result is empty, and a generator of millions of specs needs no more
        memory than a few thousand of them. A generator can be read only once, so after a deadlock a call
        with one fails where others are retried.
        """
        if not isinstance(specs, Iterable):
            raise InvalidArgumentError("specs", f"expected a list of JobSpec, got {specs!r}")
        if self.hooks._before_add:
            specs = [await self.hooks._intercept_add(spec) for spec in specs]
        is_observed = JobsAdded in self._observed
        if is_observed:
            specs = list(specs)
        if self._add_watchers:
            watched = WatchedAdds(self._add_watchers, specs)
            try:
                jobs = await self._add_all(watched.to_send, return_jobs, connection)
            except BaseException as error:
                watched.ended(None, error)
                raise
            watched.ended(jobs if return_jobs else None)
        else:
            jobs = await self._add_all(specs, return_jobs, connection)
        if is_observed and specs:
            self.hooks.events.emit(JobsAdded(specs=tuple(specs), jobs=tuple(jobs), source=self._source))
        if jobs and self._new_names is not None:
            for job in (jobs[0], jobs[-1]):  # usually all have the same task
                if job.task_identifier not in self._checked_names:
                    self._new_names.check(job)
        return jobs

    async def _add_all(
        self, specs: Iterable[JobSpec], return_jobs: bool, connection: UserConnection | None
    ) -> list[Job]:
        async def add_all(session: Connection) -> list[Job]:
            return await add_many.add_jobs(
                session, self.schema, specs, return_jobs=return_jobs, now=self._now()
            )

        try:
            async with self._connection(connection) as session:
                return await add_all(session)
        except Exception as error:
            if self._may_retry(connection, error) and not isinstance(specs, Iterator):
                return await self._retry(add_all)
            if (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            raise

    # -- managing ------------------------------------------------------------------------------------------

    async def remove_job(self, job_key: str, *, connection: UserConnection | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead.

        If the job was added with `keep`, it ends as cancelled.
        """
        from ..history.removed import ManualEnd
        from ..queries import manage_jobs

        return await self._end_jobs(
            connection,
            ManualEnd("cancelled", "removed by its job key"),
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
        the work is done in batches, each in a transaction of its own unless a `connection` is given.
        """
        from ..history.removed import ManualEnd
        from ..queries import bulk_changes, manage_jobs

        end = ManualEnd("completed")
        if filter is not None:
            change = bulk_changes.COMPLETE
            return await self._change_in_batches(job_ids, filter, change, connection, options, end)
        ids = _job_ids(job_ids, options)
        return await self._end_jobs(
            connection, end, lambda session: manage_jobs.complete_jobs(session, self.schema, ids)
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

        Locked jobs stay. With a filter the work is done in batches, each in a transaction of its own unless a
        `connection` is given.
        """
        from ..history.removed import ManualEnd
        from ..queries import bulk_changes, manage_jobs

        end = ManualEnd("failed")
        if filter is not None:
            change = bulk_changes.failure(reason)
            return await self._change_in_batches(job_ids, filter, change, connection, options, end)
        ids = _job_ids(job_ids, options)
        return await self._end_jobs(
            connection,
            end,
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
        batches, each in a transaction of its own unless a `connection` is given.
        """
        from ..queries import bulk_changes, manage_jobs

        if filter is not None:
            change = bulk_changes.new_schedule(
                run_at=run_at, priority=priority, attempts=attempts, max_attempts=max_attempts
            )
            return await self._change_in_batches(job_ids, filter, change, connection, options)
        ids = _job_ids(job_ids, options)
        return await self._manage(
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
        task: str | TaskLike[Any] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        connection: UserConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport:
        """Send permanently failed jobs back to work, with all their attempts: those of a task, or all.

        `since` and `until` limit the time at which they failed, `error` is a part of their last error. The
        work is done in batches, each in a transaction of its own unless a `connection` is given.
        """
        from ..queries.job_filter import JobFilter

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
        was asked to end it, or it was gone. With a filter the work is done in batches, each in a transaction
        of its own unless a `connection` is given. A job that was added with `keep` ends as cancelled, for
        this `reason`.
        """
        from ..queries import bulk_changes, cancel

        if filter is not None:
            change = bulk_changes.cancellation(reason, self.schema)
            end = self._cancelled(reason)
            return await self._change_in_batches(job_ids, filter, change, connection, options, end)
        ids = _job_ids(job_ids, options)
        return await self._cancel(
            connection, reason, lambda session: cancel.cancel_jobs(session, self.schema, ids, reason=reason)
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
        from ..queries import cancel
        from .following import id_of

        if (job is None) == (job_key is None):
            raise InvalidArgumentError("job", "name the job, or its job_key, and not both")
        ids = () if job is None else (id_of(job),)
        return await self._cancel(
            connection,
            reason,
            lambda session: cancel.cancel_jobs(session, self.schema, ids, job_key=job_key, reason=reason),
        )

    async def _cancel(
        self,
        connection: UserConnection | None,
        reason: str | None,
        work: Callable[[Connection], Awaitable[CancelReport]],
    ) -> CancelReport:
        return await self._end_jobs(connection, self._cancelled(reason), work, lambda report: report.removed)

    def _cancelled(self, reason: str | None) -> ManualEnd:
        from ..history.removed import ManualEnd
        from ..queries.manage_jobs import failure_values

        return ManualEnd("cancelled", *failure_values(reason))

    async def _end_jobs(
        self,
        connection: UserConnection | None,
        end: ManualEnd,
        work: Callable[[Connection], Awaitable[T]],
        ended: Callable[[T], Sequence[Job]] | None = None,
    ) -> T:
        """Remove or fail jobs; in the same transaction, keep the ends of those that ask for it.

        `ended` finds these jobs in the result; without it, the result is a list of them.
        """

        async def both(session: Connection) -> T:
            async with session.transaction():
                result: Any = await work(session)
                jobs = result if ended is None else ended(result)
                if any(job.raw_flags is not None for job in jobs):
                    await self._keep_ends(session, jobs, end)
            return result  # type: ignore[no-any-return]

        return await self._manage(connection, both)

    async def _keep_ends(self, session: Connection, jobs: Sequence[Job], end: ManualEnd) -> None:
        from ..history.removed import keep_removed

        retention, redactors = self._history_retention, self.hooks._redactors
        await keep_removed(session, self.schema, jobs, end, retention=retention, redactors=redactors)

    async def _change_in_batches(
        self,
        job_ids: object,
        filter: JobFilter,
        change: BulkChange,
        connection: UserConnection | None,
        options: BulkOptions,
        end: ManualEnd | None = None,
    ) -> BulkReport:
        """`end`: how the jobs end by this change."""
        from ..queries.bulk_changes import BulkWalk
        from .bulk import change_in_batches

        if job_ids is not None:
            raise InvalidArgumentError("filter", "give either job_ids or a filter, not both")

        async def keep_ends(session: Connection, jobs: list[Job]) -> None:
            if end is not None:
                await self._keep_ends(session, jobs, end)

        walk = BulkWalk(self.schema, filter, change, options, on_kept=keep_ends)
        return await change_in_batches(
            walk, lambda work: self._manage(connection, work), options, self._clock
        )

    # -- pausing -------------------------------------------------------------------------------------------

    async def pause_queue(
        self,
        queue_name: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a named queue, in any runtime, until it is resumed or until a time.

        A running job goes on. `until` is a time, or a period from now. Pausing a paused queue changes the
        terms; one resume ends it.
        """
        from ..queries import pauses

        return await self._manage(
            connection, lambda session: pauses.pause_queue(session, self.schema, queue_name, until, reason)
        )

    async def pause_task(
        self,
        task: str | TaskLike[Any],
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs of a task in Python workers; the rest as in `pause_queue`.

        Node and Rust workers that have the task do not know of it.
        """
        from ..queries import pauses

        identifier = task if isinstance(task, str) else task.identifier
        if not identifier:
            raise InvalidArgumentError("task", "must not be empty; to pause every task, use pause_all")
        return await self._manage(
            connection, lambda session: pauses.pause_task(session, self.schema, identifier, until, reason)
        )

    async def pause_all(
        self,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Start no more jobs at all in Python workers; the rest as in `pause_task`."""
        from ..queries import pauses

        return await self._manage(
            connection,
            lambda session: pauses.pause_task(session, self.schema, pauses.EVERY_TASK, until, reason),
        )

    async def resume_queue(self, queue_name: str, *, connection: UserConnection | None = None) -> bool:
        """End the pause of a queue; returns whether it was paused.

        While a job of the queue is still running, the next one waits for it.
        """
        from ..queries import pauses

        return await self._manage(
            connection, lambda session: pauses.resume_queue(session, self.schema, queue_name)
        )

    async def resume_task(
        self, task: str | TaskLike[Any], *, connection: UserConnection | None = None
    ) -> bool:
        """End the pause of a task; returns whether it was paused by itself."""
        from ..queries import pauses

        identifier = task if isinstance(task, str) else task.identifier
        if not identifier:
            raise InvalidArgumentError("task", "must not be empty; to resume every task, use resume_all")
        return await self._manage(
            connection, lambda session: pauses.resume_task(session, self.schema, identifier)
        )

    async def resume_all(self, *, connection: UserConnection | None = None) -> bool:
        """End what `pause_all` began; tasks and queues that were paused by themselves stay paused."""
        from ..queries import pauses

        return await self._manage(
            connection, lambda session: pauses.resume_task(session, self.schema, pauses.EVERY_TASK)
        )

    async def list_pauses(self, *, connection: UserConnection | None = None) -> list[Pause]:
        """What is paused: everything first, then tasks, queues and recurring jobs, by name."""
        from ..queries import pauses

        async with self._connection(connection) as session:
            return await pauses.list_pauses(session, self.schema)

    # -- recurring jobs ------------------------------------------------------------------------------------

    async def list_schedules(
        self,
        identifier: str | None = None,
        *,
        after: str | None = None,
        limit: int = 500,
        connection: UserConnection | None = None,
    ) -> list[Schedule]:
        """Recurring jobs by identifier, those after `after`; or one of them, if there is one.

        Running Python workers tell what each is. Of those that only other runtimes have, the database knows
        no more than when a job was last added.
        """
        from ..queries import schedules

        async with self._connection(connection) as session:
            return await schedules.list_schedules(
                session, self.schema, identifier=identifier, after=after, limit=limit
            )

    async def pause_schedule(
        self,
        identifier: str,
        *,
        until: datetime | timedelta | None = None,
        reason: str | None = None,
        connection: UserConnection | None = None,
    ) -> Pause:
        """Add no more jobs of a recurring job, until a time, for a period, or until `resume_schedule`.

        What becomes due during the pause is skipped, and not made up for. Only workers of this package obey.
        """
        from ..queries import schedules

        return await self._manage(
            connection,
            lambda session: schedules.pause_schedule(session, self.schema, identifier, until, reason),
        )

    async def resume_schedule(self, identifier: str, *, connection: UserConnection | None = None) -> bool:
        """End the pause of a recurring job; returns whether it was paused."""
        from ..queries import schedules

        return await self._manage(
            connection, lambda session: schedules.resume_schedule(session, self.schema, identifier)
        )

    async def run_schedule_now(self, identifier: str, *, connection: UserConnection | None = None) -> Job:
        """Add the job of a recurring job now, also while it is paused; the next regular run is not affected.

        A running Python worker must have it. `_cron` in the payload has `manual: true`. The job key is the
        one that scheduled jobs have, so a waiting job with the same key is replaced.
        """
        from .schedules import run_now

        return await run_now(self, identifier, self._clock.now(), connection)

    # -- maintenance ---------------------------------------------------------------------------------------

    async def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: UserConnection | None = None
    ) -> None:
        """Unlock every job and queue that these pools (ids as in `locked_by`) hold. They must be dead."""
        from ..queries import maintenance

        worker_ids = _rereadable(worker_ids)
        await self._manage(
            connection, lambda session: maintenance.force_unlock_workers(session, self.schema, worker_ids)
        )

    async def cleanup(
        self,
        tasks: Iterable[CleanupTask] | None = None,
        *,
        task_identifiers_to_keep: Iterable[str] | None = None,
        connection: UserConnection | None = None,
    ) -> CleanupReport:
        """Delete what is no longer needed; returns how much was deleted.

        The default is unused queues, and with `task_identifiers_to_keep` unused task identifiers as well.
        Permanently failed jobs are deleted only with `DELETE_PERMAFAILED_JOBS`.
        """
        from ..queries import maintenance

        async with self._connection(connection) as session:
            return await maintenance.cleanup(
                session, self.schema, tasks, task_identifiers_to_keep=task_identifiers_to_keep
            )

    # -- inspecting -------------------------------------------------------------------------------------

    async def get_job(self, job_id: int, *, connection: UserConnection | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.get_job(session, self.schema, job_id)

    async def list_jobs(
        self, filter: JobFilter | None = None, *, connection: UserConnection | None = None
    ) -> list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        from ..queries import inspection
        from ..queries.inspection import JobFilter

        async with self._connection(connection) as session:
            return await inspection.list_jobs(
                session, self.schema, filter if filter is not None else JobFilter()
            )

    async def set_queue_width(
        self, queue_name: str, width: int | None, *, connection: UserConnection | None = None
    ) -> None:
        """Let up to `width` jobs of a named queue run at once; None leaves that to its tasks again.

        It takes effect at once and survives restarts. Jobs that run when a queue gets narrower go on. Node
        and Rust workers obey too.
        """
        from ..queries.widths import set_queue_width

        await self._manage(
            connection, lambda session: set_queue_width(session, self.schema, queue_name, width)
        )

    async def list_queues(
        self, *, limit: int = 100, exact: bool = False, connection: UserConnection | None = None
    ) -> list[QueueSummary]:
        """Named queues, the longest first, with the pools that hold them; counts as in `statistics`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.list_queues(session, self.schema, limit=limit, exact=exact)

    async def statistics(
        self, *, exact: bool = False, connection: UserConnection | None = None
    ) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.statistics(session, self.schema, exact=exact)

    # -- following jobs ------------------------------------------------------------------------------------

    async def wait_for(self, job: Job | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job has ended and return what its task returned.

        Raises JobFailedError, JobCancelledError, or JobGoneError if the end was not kept; TimeoutError
        after `timeout` seconds. Any number of waiters share one connection. Jobs added with `keep` announce
        their end; others are looked up, at first every quarter of a second.
        """
        from .following import id_of, result_of, seconds_of

        self._check_loop()
        async with asyncio.timeout(seconds_of(timeout)):
            return result_of(await self._waiters.wait(id_of(job)))

    async def get_job_status(self, job: Job | int, *, connection: UserConnection | None = None) -> JobStatus:
        """How a job stands: its state, its last error, its progress."""
        from .following import id_of, read_status

        async with self._connection(connection) as session:
            return await read_status(session, self.schema, id_of(job))

    async def get_job_record(self, job: Job | int, *, connection: UserConnection | None = None) -> JobRecord:
        """All that is known of a job: its row, its ends, the errors of its attempts, its progress."""
        from .following import id_of, read_record

        async with self._connection(connection) as session:
            return await read_record(session, self.schema, id_of(job))

    async def watch(self, job: Job | int) -> AsyncIterator[Progress]:
        """The progress that the task of a job reports, each time it changes, until the job ends."""
        from .following import id_of, watch_progress

        self._check_loop()
        async with aclosing(watch_progress(self, self._waiters, id_of(job))) as reports:
            async for progress in reports:
                yield progress

    async def get_job_ends(self, job: Job | int, *, connection: UserConnection | None = None) -> list[JobEnd]:
        """The ends of a job that were kept, the latest first; a job that was retried by hand has several."""
        from ..history.records import ends_of_job
        from .following import id_of

        async with self._connection(connection) as session:
            return await ends_of_job(session, self.schema, id_of(job))

    async def list_job_ends(
        self, filter: HistoryFilter | None = None, *, connection: UserConnection | None = None
    ) -> list[JobEnd]:
        """One page of the ends that were kept, the latest first."""
        from ..history.records import HistoryFilter, list_ends

        async with self._connection(connection) as session:
            return await list_ends(session, self.schema, filter if filter is not None else HistoryFilter())

    async def get_job_errors(
        self, job: Job | int, *, connection: UserConnection | None = None
    ) -> list[AttemptError]:
        """The errors of a job's attempts, the latest first."""
        from ..history.records import errors_of_job
        from .following import id_of

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
        from ..history import records

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
        from ..history import error_groups

        async with self._connection(connection) as session:
            return await error_groups.list_error_groups(
                session, self.schema, since=since, task_identifier=task_identifier, limit=limit
            )

    @cached_property
    def _waiters(self) -> Waiters:
        from .following import read_standings
        from .waiting import Waiters

        self._check_open()

        async def look(job_ids: Sequence[int]) -> list[JobStanding]:
            async with self._connection(None) as session:
                return await read_standings(session, self.schema, list(job_ids))

        # One connection to listen, and one for lookups.
        may_listen = self.pool.get_max_size() - self._taken_connections >= 2
        return Waiters(self.pool, self.schema, look, lambda: self._connection(None), may_listen=may_listen)

    async def figures(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        task_identifier: str | None = None,
        by: FigureGroup | Collection[FigureGroup] = (),
        connection: Connection | None = None,
    ) -> FigureList:
        """What workers of this package did: counts of completed and failed jobs, run times and wait times.

        `since` is a time, or a period before now. `by` groups by "minute", "hour", "task", "pool", or several
        of them; without it there is one row. Minutes are kept for two days and hours for 90 days; a period of
        more than two hours begins with a full hour. Groups without jobs are left out.
        """
        from ..queries import figures

        now = self._clock.now()
        begin = _beginning(since, until, now)
        async with self._connection(connection) as session:
            return await figures.read_figures(
                session,
                self.schema,
                since=begin,
                until=until,
                now=now,
                task_identifier=task_identifier,
                by=by,
            )

    async def samples(
        self,
        *,
        since: datetime | timedelta,
        until: datetime | None = None,
        connection: Connection | None = None,
    ) -> list[BacklogSample]:
        """Samples of the backlog, one every ten seconds of the last two days, with what all runtimes did."""
        from ..queries import figures

        begin = _beginning(since, until, self._clock.now())
        async with self._connection(connection) as session:
            return await figures.read_samples(session, self.schema, since=begin, until=until)

    # -- limits --------------------------------------------------------------------------------------------

    async def list_limits(self, *, connection: UserConnection | None = None) -> list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        from ..queries import limits

        async with self._connection(connection) as session:
            return await limits.list_limits(session, self.schema)

    async def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
        burst: int | None = None,
        connection: UserConnection | None = None,
    ) -> LimitSummary:
        """Change bounds of a limit by hand, at once and in all workers; None leaves one as it is.

        They win over the bounds in the code and stay until `reset_limit`, also when workers start again. With
        a concurrency of 0 no job starts.
        """
        from .limits import change_limit

        async with self._connection(connection) as session:
            return await change_limit(
                session, self.schema, name, concurrency=concurrency, rate=rate, burst=burst
            )

    async def reset_limit(self, name: str, *, connection: UserConnection | None = None) -> LimitSummary:
        """Remove what `set_limit` has set: the bounds in the code hold again."""
        from .limits import restore_limit

        async with self._connection(connection) as session:
            return await restore_limit(session, self.schema, name)

    # -- workers -------------------------------------------------------------------------------------------

    async def list_workers(
        self, *, all: bool = False, connection: UserConnection | None = None
    ) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Pools of other runtimes appear while they have jobs locked. Finding those takes a scan of the jobs
        table: a large one is scanned only with `all`, and `is_complete` of the result says whether it was.
        """
        from ..recovery import worker_rows

        async with self._connection(connection) as session:
            return await worker_rows.list_workers(session, self.schema, scan=all)

    async def stop_worker(
        self, worker_id: str, *, reason: str | None = None, connection: UserConnection | None = None
    ) -> None:
        """Ask a Python worker to shut down gracefully, as if it had received SIGTERM.

        Raises WorkerNotFoundError if there is no such worker. Returns when it was asked, not when it ends.
        """
        from ..queries.requests import ask_worker

        await self._manage(
            connection, lambda session: ask_worker(session, self.schema, worker_id, "stop", reason=reason)
        )

    async def quiet_worker(
        self, worker_id: str, *, reason: str | None = None, connection: UserConnection | None = None
    ) -> None:
        """Ask a Python worker to fetch no more jobs, until `resume_worker`. Running jobs go on.

        Jobs that it has prefetched are returned. Raises WorkerNotFoundError if there is no such worker.
        """
        from ..queries.requests import ask_worker

        await self._manage(
            connection, lambda session: ask_worker(session, self.schema, worker_id, "quiet", reason=reason)
        )

    async def resume_worker(self, worker_id: str, *, connection: UserConnection | None = None) -> bool:
        """Let a quiet worker fetch jobs again; returns whether it was quiet."""
        from ..queries.requests import resume_worker

        return await self._manage(connection, lambda session: resume_worker(session, self.schema, worker_id))

    async def get_job_stack(self, job: Job | int, *, timeout: float | timedelta = 6.0) -> JobStack:
        """Where a running job is now: the calls it is in, as its worker sees them.

        Raises StackUnavailableError if the job does not run, if another runtime runs it, or if its worker
        does not answer within `timeout`.
        """
        from .following import id_of
        from .job_stacks import job_stack

        if self._is_bound:
            raise no_connection_to_lend()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return await job_stack(lambda: self._connection(None), self.schema, id_of(job), seconds)

    async def list_deploys(
        self, *, since: datetime | timedelta, connection: UserConnection | None = None
    ) -> list[Deploy]:
        """When versions of the application (`app_version`) were started, the latest first.

        `since` is a time, or a period before now.
        """
        from ..queries.requests import list_deploys

        begin = _beginning(since, None, self._clock.now())
        async with self._connection(connection) as session:
            return await list_deploys(session, self.schema, begin)

    async def sweep_stale_workers(
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
        from ..keep import Keep, KeepPolicy
        from ..recovery.sweep import DEFAULT_MAX_RECOVERIES, Sweep

        async def run(work: Callable[[Connection], Awaitable[T]]) -> T:
            async with self._connection(None) as session:
                return await work(session)

        delay = recovery_delay.total_seconds() if isinstance(recovery_delay, timedelta) else recovery_delay
        sweep = Sweep(
            run,
            self.schema,
            self.hooks,
            delay=delay,
            max_recoveries=DEFAULT_MAX_RECOVERIES if max_recoveries is None else max_recoveries,
            policy=KeepPolicy(default=Keep(self._history_retention)),
        )
        return await (sweep.dry() if dry_run else sweep())

    # -- connections ---------------------------------------------------------------------------------------

    def with_pg_client(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool: `async with utils.with_pg_client() as connection`."""
        self._check_open()
        self._check_loop()
        if self._is_bound:
            raise no_connection_to_lend()
        return self._lend(self._idle) if self._idle is not None else self.pool.acquire()

    @asynccontextmanager
    async def _lend(self, idle: IdleConnections) -> AsyncIterator[Connection]:
        await idle.spare()
        async with lend(self.pool) as connection:
            yield connection

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._released

    async def release(self) -> None:
        """Close the client, and its pool unless the pool was given. A bound client has nothing to close."""
        self._check_open()
        self._check_loop()
        if self._is_bound:
            return
        if self._new_names is not None:
            await self._new_names.close()
        self._released = True
        if "_waiters" in vars(self):
            await self._waiters.close()
        if self._idle is not None:
            await self._idle.close()
        if self._owns_pool:
            await self.pool.close()

    def _connection(self, given: UserConnection | None) -> BorrowedConnection:
        """The caller's connection, or one from the pool."""
        if self._released:
            self._check_open()
        if given is None:
            if self._current_loop() is not self._loop:
                self._check_loop()
            given = self._home
        elif type(given) not in DRIVER_CONNECTIONS:
            given = as_connection(given)
        return BorrowedConnection(self.pool, self._idle, self.schema, given)  # type: ignore[arg-type]

    async def _manage(self, given: UserConnection | None, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run one transaction; on a connection of ours, retry it after a conflict with another one."""
        try:
            async with self._connection(given) as session:
                return await work(session)
        except Exception as error:
            if not self._may_retry(given, error):
                raise
        return await self._retry(work)

    def _may_retry(self, given: UserConnection | None, error: Exception) -> bool:
        """Whether the server rolled back all there was: after a conflict, in a transaction of our own."""
        return given is None and not self._is_bound and is_conflict(error)

    async def _retry(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Repeat what the server rolled back because of a conflict."""

        async def once() -> T:
            async with self._connection(None) as session:
                return await work(session)

        return await past_conflicts(once, clock=self._clock, failures=1)

    def _check_open(self) -> None:
        if self._released:
            raise GraphileWorkerError(self._why_released)

    def _check_loop(self) -> None:
        """Refuse another event loop: it would break the connections for the first one."""
        if self._loop is None:
            self._loop = self._current_loop()
        if self._current_loop() is not self._loop:
            raise GraphileWorkerError(
                "this client belongs to another event loop, and its connections work only there; make one "
                "client for each event loop, inside the function that you pass to asyncio.run()"
            )

    def _now(self) -> datetime | None:
        """The client's time, if it replaces the server's clock."""
        return self._clock.now() if self._use_local_time else None


def _no_loop() -> None:
    """What a client belongs to whose connections need no event loop, or open on the current one."""


def _whole(spec: JobSpec, payload: object, options: JobOptions) -> JobSpec:
    if payload is not None or options:
        raise InvalidArgumentError(
            "spec", "a JobSpec is added as it is; change its payload and options with spec.replace(...)"
        )
    return spec


def _job_ids(job_ids: Iterable[int] | None, options: BulkOptions) -> Iterable[int]:
    """The ids that were given in place of a filter."""
    if job_ids is None:
        raise InvalidArgumentError("job_ids", "name the jobs by id, or pass a filter")
    if options:
        raise InvalidArgumentError(next(iter(options)), "is for a filter and has no effect on job ids")
    return _rereadable(job_ids)


def _beginning(since: datetime | timedelta, until: datetime | None, now: datetime) -> datetime:
    """The beginning of a period that may be given by its length."""
    end = now if until is None else until
    begin = end - since if isinstance(since, timedelta) else since
    for name, value in (("since", begin), ("until", end)):
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidArgumentError(name, f"expected a time with a time zone, got {value!r}")
    if begin >= end:
        raise InvalidArgumentError("since", f"must be before {end}, got {begin}")
    return begin


def _rereadable(values: Iterable[T]) -> Iterable[T]:
    """An iterable that can be read again for a retry."""
    return list(values) if isinstance(values, Iterator) else values

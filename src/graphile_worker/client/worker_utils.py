"""WorkerUtils: the client. It validates, borrows a connection, and leaves the SQL to `queries/`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..clock import Clock, SystemClock
from ..db.connection import Connection, Pool
from ..db.idle_connections import IdleConnections
from ..db.open import lend
from ..db.retry import is_conflict, past_conflicts
from ..errors import GraphileWorkerError, InvalidArgumentError
from ..hooks import Hooks
from ..hooks.events import AddSource, JobsAdded
from ..job import Job
from ..migrate import MigrationReport, migrate
from ..queries import add, add_many
from ..queries.add_plain_job import PlainJobs
from ..schema_name import SchemaName
from ..spec import JobOptions, JobSpec, TaskLike
from .borrowing import BorrowedConnection

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ..queries.figures import BacklogSample, FigureGroup, FigureList
    from ..queries.inspection import JobDetails, JobFilter, QueueSummary, Statistics
    from ..queries.maintenance import CleanupReport, CleanupTask
    from ..recovery.sweep import SweepReport
    from ..recovery.worker_rows import WorkerList

P = TypeVar("P")
T = TypeVar("T")


class WorkerUtils:
    """Adds and manages jobs. Made by `make_worker_utils`; safe for concurrent use in one event loop.

    Methods that take a `connection` use it, and so its transaction, in place of one from the pool.
    """

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
    ) -> None:
        self.pool = pool
        self.schema = schema if schema is not None else SchemaName()
        self.hooks = hooks if hooks is not None else Hooks()
        self._owns_pool = owns_pool
        self._idle = IdleConnections(pool) if owns_pool else None
        self._clock = clock if clock is not None else SystemClock()
        self._use_local_time = use_local_time
        self._released = False
        self._source = source
        self._observed = self.hooks.events._observed
        self._plain_jobs = PlainJobs(self.schema)
        # The fast path must not be taken inside a caller's transaction: see add_plain_job.
        self._adds_plain_jobs = not getattr(pool, "may_be_in_transaction", False)

    # -- the schema ----------------------------------------------------------------------------------------

    async def migrate(self) -> MigrationReport:
        """Install the schema, or upgrade it to the revision that this package supports."""
        async with self._connection(None) as connection:
            report = await migrate(connection, self.schema)
        self._plain_jobs.forget()
        return report

    # -- adding --------------------------------------------------------------------------------------------

    @overload
    async def add_job(
        self,
        task: TaskLike[P],
        payload: P,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    async def add_job(
        self,
        task: str | TaskLike[None],
        payload: object = None,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job: ...

    @overload
    async def add_job(self, spec: JobSpec, /, *, connection: Connection | None = None) -> Job: ...

    async def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`.
        """
        if type(task) is str or not isinstance(task, JobSpec):
            spec = JobSpec(task, payload, **options)
        else:
            spec = _whole(task, payload, options)
        if self.hooks._before_add:
            spec = await self.hooks._intercept_add(spec)
        try:
            async with self._connection(connection) as session:
                job = None
                if (
                    spec.job_key is None
                    and spec.queue_name is None
                    and (self._adds_plain_jobs if connection is None else not connection.is_in_transaction())
                ):
                    job = await self._plain_jobs.add(session, spec, self._now())
                if job is None:
                    job = await add.add_job(session, self.schema, spec, now=self._now())
        except Exception as error:
            if connection is None and is_conflict(error):
                job = await self._retry(
                    lambda session: add.add_job(session, self.schema, spec, now=self._now())
                )
            elif (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            else:
                raise
        if JobsAdded in self._observed:
            self.hooks.events.emit(JobsAdded(specs=(spec,), jobs=(job,), source=self._source))
        return job

    async def add_jobs(
        self, specs: Iterable[JobSpec], *, return_jobs: bool = True, connection: Connection | None = None
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

        async def add_all(session: Connection) -> list[Job]:
            return await add_many.add_jobs(
                session, self.schema, specs, return_jobs=return_jobs, now=self._now()
            )

        try:
            async with self._connection(connection) as session:
                jobs = await add_all(session)
        except Exception as error:
            if connection is None and is_conflict(error) and not isinstance(specs, Iterator):
                jobs = await self._retry(add_all)
            elif (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            else:
                raise
        if is_observed and specs:
            self.hooks.events.emit(JobsAdded(specs=tuple(specs), jobs=tuple(jobs), source=self._source))
        return jobs

    # -- managing ------------------------------------------------------------------------------------------

    async def remove_job(self, job_key: str, *, connection: Connection | None = None) -> Job | None:
        """Delete the job with this key. A running one loses its key and its remaining attempts instead."""
        from ..queries import manage_jobs

        return await self._manage(
            connection, lambda session: manage_jobs.remove_job(session, self.schema, job_key)
        )

    async def complete_jobs(
        self, job_ids: Iterable[int], *, connection: Connection | None = None
    ) -> list[Job]:
        """Delete these jobs as if they had run; returns those deleted. Locked jobs stay."""
        from ..queries import manage_jobs

        job_ids = _rereadable(job_ids)
        return await self._manage(
            connection, lambda session: manage_jobs.complete_jobs(session, self.schema, job_ids)
        )

    async def permanently_fail_jobs(
        self, job_ids: Iterable[int], reason: str | None = None, *, connection: Connection | None = None
    ) -> list[Job]:
        """Fail these jobs permanently, with this last error; returns those failed. Locked jobs stay."""
        from ..queries import manage_jobs

        job_ids = _rereadable(job_ids)
        return await self._manage(
            connection,
            lambda session: manage_jobs.permanently_fail_jobs(session, self.schema, job_ids, reason),
        )

    async def reschedule_jobs(
        self,
        job_ids: Iterable[int],
        *,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: Connection | None = None,
    ) -> list[Job]:
        """Change the given values (0 is a value) of these jobs; returns those changed. Locked jobs stay."""
        from ..queries import manage_jobs

        job_ids = _rereadable(job_ids)
        return await self._manage(
            connection,
            lambda session: manage_jobs.reschedule_jobs(
                session,
                self.schema,
                job_ids,
                run_at=run_at,
                priority=priority,
                attempts=attempts,
                max_attempts=max_attempts,
            ),
        )

    async def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: Connection | None = None
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
        connection: Connection | None = None,
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

    async def get_job(self, job_id: int, *, connection: Connection | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.get_job(session, self.schema, job_id)

    async def list_jobs(
        self, filter: JobFilter | None = None, *, connection: Connection | None = None
    ) -> list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        from ..queries import inspection
        from ..queries.inspection import JobFilter

        async with self._connection(connection) as session:
            return await inspection.list_jobs(
                session, self.schema, filter if filter is not None else JobFilter()
            )

    async def list_queues(
        self, *, limit: int = 100, exact: bool = False, connection: Connection | None = None
    ) -> list[QueueSummary]:
        """Named queues, the longest first, with the pools that hold them; counts as in `statistics`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.list_queues(session, self.schema, limit=limit, exact=exact)

    async def statistics(self, *, exact: bool = False, connection: Connection | None = None) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.statistics(session, self.schema, exact=exact)

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

    # -- workers -------------------------------------------------------------------------------------------

    async def list_workers(self, *, all: bool = False, connection: Connection | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Pools of other runtimes appear while they have jobs locked. Finding those takes a scan of the jobs
        table: a large one is scanned only with `all`, and `is_complete` of the result says whether it was.
        """
        from ..recovery import worker_rows

        async with self._connection(connection) as session:
            return await worker_rows.list_workers(session, self.schema, scan=all)

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
        )
        return await (sweep.dry() if dry_run else sweep())

    # -- connections ---------------------------------------------------------------------------------------

    def with_pg_client(self) -> AbstractAsyncContextManager[Connection]:
        """A connection from the pool: `async with utils.with_pg_client() as connection`."""
        self._check_open()
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
        """Close the client, and its pool unless the pool was given."""
        self._check_open()
        self._released = True
        if self._idle is not None:
            await self._idle.close()
        if self._owns_pool:
            await self.pool.close()

    def _connection(self, given: Connection | None) -> BorrowedConnection:
        """The caller's connection, or one from the pool."""
        if self._released:
            self._check_open()
        return BorrowedConnection(self.pool, self._idle, self.schema, given)

    async def _manage(self, given: Connection | None, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run one transaction; on a connection of ours, retry it after a conflict with another one."""
        try:
            async with self._connection(given) as session:
                return await work(session)
        except Exception as error:
            if given is not None or not is_conflict(error):
                raise
        return await self._retry(work)

    async def _retry(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Repeat what the server rolled back because of a conflict."""

        async def once() -> T:
            async with self._connection(None) as session:
                return await work(session)

        return await past_conflicts(once, clock=self._clock, failures=1)

    def _check_open(self) -> None:
        if self._released:
            raise GraphileWorkerError("this client has been released; open a new one")

    def _now(self) -> datetime | None:
        """The client's time, if it replaces the server's clock."""
        return self._clock.now() if self._use_local_time else None


def _whole(spec: JobSpec, payload: object, options: JobOptions) -> JobSpec:
    if payload is not None or options:
        raise InvalidArgumentError(
            "spec", "a JobSpec is added as it is; change its payload and options with spec.replace(...)"
        )
    return spec


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

"""WorkerUtils: the client. It checks and encodes, borrows a connection, and leaves the SQL to `queries/`."""

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
from ..job import Job
from ..migrate import MigrationReport, migrate
from ..queries import add_jobs as adding
from ..queries.add_plain_job import PlainJobs
from ..schema_name import SchemaName
from ..spec import JobKeyMode, JobOptions, JobSpec, TaskLike
from .borrowing import Borrowing
from .refused_payload import refused_payload

if TYPE_CHECKING:
    # Imported by the methods that use them: a worker, and a program that only adds jobs, starts without.
    from ..queries.inspection import JobDetails, JobFilter, QueueSummary, Statistics
    from ..queries.maintenance import CleanupReport, CleanupTask
    from ..recovery.sweep import SweepReport
    from ..recovery.worker_rows import WorkerList

P = TypeVar("P")
T = TypeVar("T")


class WorkerUtils:
    """Adds and manages jobs. Made by `make_worker_utils`; safe for concurrent use in one event loop.

    Every method that takes `connection` uses that one, and so works inside its transaction, instead of a
    connection of the pool.
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
    ) -> None:
        self.pool = pool
        self.schema = schema if schema is not None else SchemaName()
        self.hooks = hooks if hooks is not None else Hooks()
        self._owns_pool = owns_pool
        self._kept = IdleConnections(pool) if owns_pool else None
        self._clock = clock if clock is not None else SystemClock()
        self._use_local_time = use_local_time
        self._released = False
        self._plain_jobs = PlainJobs(self.schema)
        # A plain job is not added in a transaction of others: see add_plain_job.
        self._adds_plain_jobs = not getattr(pool, "may_be_in_transaction", False)

    # -- the schema ----------------------------------------------------------------------------------------

    async def migrate(self) -> MigrationReport:
        """Install the schema, or bring it to the revision that this package supports."""
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

    async def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        queue_name: str | None = None,
        run_at: datetime | timedelta | None = None,
        max_attempts: int | None = None,
        job_key: str | None = None,
        job_key_mode: JobKeyMode | None = None,
        priority: int | None = None,
        flags: Collection[str] | None = None,
        connection: Connection | None = None,
    ) -> Job:
        """Add one job, or change the one with the same key, and return its row."""
        spec = JobSpec(
            task,
            payload,
            queue_name=queue_name,
            run_at=run_at,
            max_attempts=max_attempts,
            job_key=job_key,
            job_key_mode=job_key_mode,
            priority=priority,
            flags=flags,
        )
        if self.hooks._before_add:
            spec = await self.hooks._intercept_add(spec)
        try:
            async with self._connection(connection) as session:
                is_plain = spec.job_key is None and spec.queue_name is None
                if is_plain and (
                    self._adds_plain_jobs if connection is None else not connection.is_in_transaction()
                ):
                    job = await self._plain_jobs.add(session, spec, self._now())
                    if job is not None:
                        return job
                return await adding.add_job(session, self.schema, spec, now=self._now())
        except Exception as error:
            if connection is None and is_conflict(error):
                return await self._again(
                    lambda session: adding.add_job(session, self.schema, spec, now=self._now())
                )
            refused = refused_payload(error)
            if refused is None:
                raise
            raise refused from error

    async def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        job_key_preserve_run_at: bool = False,
        return_jobs: bool = True,
        connection: Connection | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; the rows come back in the order of the specs.

        With `return_jobs=False` the result is empty, and a generator of millions of specs takes no more
        memory than a few thousand of them. Specs of a generator are gone when they have been read, so a call
        with one is not repeated after a deadlock.
        """
        if not isinstance(specs, Iterable):
            raise InvalidArgumentError("specs", f"expected a list of JobSpec, got {specs!r}")
        if not isinstance(job_key_preserve_run_at, bool):
            raise InvalidArgumentError(
                "job_key_preserve_run_at", f"expected True or False, got {job_key_preserve_run_at!r}"
            )
        if self.hooks._before_add:
            specs = [await self.hooks._intercept_add(spec) for spec in specs]

        async def add(session: Connection) -> list[Job]:
            return await adding.add_jobs(
                session,
                self.schema,
                specs,
                job_key_preserve_run_at=job_key_preserve_run_at,
                return_jobs=return_jobs,
                now=self._now(),
            )

        try:
            async with self._connection(connection) as session:
                return await add(session)
        except Exception as error:
            if connection is None and is_conflict(error) and not isinstance(specs, Iterator):
                return await self._again(add)
            refused = refused_payload(error)
            if refused is None:
                raise
            raise refused from error

    # -- managing ------------------------------------------------------------------------------------------

    async def remove_job(self, job_key: str, *, connection: Connection | None = None) -> Job | None:
        """Delete the job with this key; one that is running only loses the key and its further tries."""
        from ..queries import manage_jobs

        return await self._manage(
            connection, lambda session: manage_jobs.remove_job(session, self.schema, job_key)
        )

    async def complete_jobs(
        self, job_ids: Iterable[int], *, connection: Connection | None = None
    ) -> list[Job]:
        """Delete these jobs as if they had run; returns those that were not locked and so are gone."""
        from ..queries import manage_jobs

        job_ids = _kept(job_ids)
        return await self._manage(
            connection, lambda session: manage_jobs.complete_jobs(session, self.schema, job_ids)
        )

    async def permanently_fail_jobs(
        self, job_ids: Iterable[int], reason: str | None = None, *, connection: Connection | None = None
    ) -> list[Job]:
        """Give these jobs up, with the reason as their last error; returns those that were not locked."""
        from ..queries import manage_jobs

        job_ids = _kept(job_ids)
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
        """Change what is given (0 is a value) on these jobs; returns those that were not locked."""
        from ..queries import manage_jobs

        job_ids = _kept(job_ids)
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
        """Unlock all jobs and queues that these pools (ids as in `locked_by`) hold; be sure they are dead."""
        from ..queries import maintenance

        worker_ids = _kept(worker_ids)
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
        """Delete what is no longer needed and say how much it was.

        Without arguments: unused queues. With `task_identifiers_to_keep` alone: unused task names as well.
        `DELETE_PERMAFAILED_JOBS` must be asked for.
        """
        from ..queries import maintenance

        async with self._connection(connection) as session:
            return await maintenance.cleanup(
                session, self.schema, tasks, task_identifiers_to_keep=task_identifiers_to_keep
            )

    # -- looking -------------------------------------------------------------------------------------------

    async def get_job(self, job_id: int, *, connection: Connection | None = None) -> JobDetails | None:
        """One job with its queue's name and its state, or None."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.get_job(session, self.schema, job_id)

    async def list_jobs(
        self, filter: JobFilter | None = None, *, connection: Connection | None = None
    ) -> list[JobDetails]:
        """The jobs that the filter lets through, in its order, a page at a time."""
        from ..queries import inspection
        from ..queries.inspection import JobFilter

        async with self._connection(connection) as session:
            return await inspection.list_jobs(
                session, self.schema, filter if filter is not None else JobFilter()
            )

    async def list_queues(
        self, *, limit: int = 100, exact: bool = False, connection: Connection | None = None
    ) -> list[QueueSummary]:
        """Named queues, the fullest first, with who holds them; counts as in `statistics`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.list_queues(session, self.schema, limit=limit, exact=exact)

    async def statistics(self, *, exact: bool = False, connection: Connection | None = None) -> Statistics:
        """How many jobs there are, by state and by task; estimated in a large table unless `exact`."""
        from ..queries import inspection

        async with self._connection(connection) as session:
            return await inspection.statistics(session, self.schema, exact=exact)

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
        """Look for workers that died and give their jobs to others, as every worker does by itself.

        A worker that was in reach until now counts as dead only after its grace: `lost` in the report says
        when to sweep again. With `dry_run` nothing is changed and interceptors are not asked.
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
        """A connection of the pool: `async with utils.with_pg_client() as connection`."""
        self._check_open()
        return self._lend(self._kept) if self._kept is not None else self.pool.acquire()

    @asynccontextmanager
    async def _lend(self, kept: IdleConnections) -> AsyncIterator[Connection]:
        await kept.spare()
        async with lend(self.pool) as connection:
            yield connection

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._released

    async def release(self) -> None:
        """Close the pool, if it was made for this client; the client cannot be used any more."""
        self._check_open()
        self._released = True
        if self._kept is not None:
            await self._kept.close()
        if self._owns_pool:
            await self.pool.close()

    def _connection(self, given: Connection | None) -> Borrowing:
        """The caller's connection, or one of the pool."""
        if self._released:
            self._check_open()
        return Borrowing(self.pool, self._kept, self.schema, given)

    async def _manage(self, given: Connection | None, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do this, a transaction by itself; on a connection of ours again if another one was in its way."""
        try:
            async with self._connection(given) as session:
                return await work(session)
        except Exception as error:
            if given is not None or not is_conflict(error):
                raise
        return await self._again(work)

    async def _again(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do once more what the server undid because of another transaction."""

        async def once() -> T:
            async with self._connection(None) as session:
                return await work(session)

        return await past_conflicts(once, clock=self._clock, failures=1)

    def _check_open(self) -> None:
        if self._released:
            raise GraphileWorkerError("these worker utils have been released already; open new ones")

    def _now(self) -> datetime | None:
        """The time that jobs are due by default: None leaves it to the server."""
        return self._clock.now() if self._use_local_time else None


def _kept(values: Iterable[T]) -> Iterable[T]:
    """What can be read more than once."""
    return list(values) if isinstance(values, Iterator) else values

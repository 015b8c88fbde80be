"""Workers and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from ...database.connections.bound import no_connection_to_lend
from ...database.connections.connection import Connection, UserConnection
from ...values.job import Job
from .base import ClientBase, beginning

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...database.statements.control import Deploy
    from ...database.statements.limits import LimitSummary
    from ...recovery.registry.workers import WorkerList
    from ...recovery.sweep import SweepReport
    from ..job_status import JobStack

T = TypeVar("T")


class ControllingWorkers(ClientBase):
    """Lists workers and limits, and asks workers to do something."""

    async def list_limits(self, *, connection: UserConnection | None = None) -> list[LimitSummary]:
        """Every limit: its bounds, which of them are set by hand, and how much of it is in use."""
        from ...database.statements import limits

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
        from ...database.statements.limits import change_limit

        async with self._connection(connection) as session:
            return await change_limit(
                session, self.schema, name, concurrency=concurrency, rate=rate, burst=burst
            )

    async def reset_limit(self, name: str, *, connection: UserConnection | None = None) -> LimitSummary:
        """Remove what `set_limit` has set: the bounds in the code hold again."""
        from ...database.statements.limits import restore_limit

        async with self._connection(connection) as session:
            return await restore_limit(session, self.schema, name)

    async def list_workers(
        self, *, all: bool = False, connection: UserConnection | None = None
    ) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Pools of other runtimes appear while they have jobs locked. Finding those takes a scan of the jobs
        table: a large one is scanned only with `all`, and `is_complete` of the result says whether it was.
        """
        from ...recovery.registry import workers

        async with self._connection(connection) as session:
            return await workers.list_workers(session, self.schema, scan=all)

    async def stop_worker(
        self, worker_id: str, *, reason: str | None = None, connection: UserConnection | None = None
    ) -> None:
        """Ask a Python worker to shut down gracefully, as if it had received SIGTERM.

        Raises WorkerNotFoundError if there is no such worker. Returns when it was asked, not when it ends.
        """
        from ...database.statements.control import ask_worker

        await self._manage(
            connection, lambda session: ask_worker(session, self.schema, worker_id, "stop", reason=reason)
        )

    async def quiet_worker(
        self, worker_id: str, *, reason: str | None = None, connection: UserConnection | None = None
    ) -> None:
        """Ask a Python worker to fetch no more jobs, until `resume_worker`. Running jobs go on.

        Jobs that it has prefetched are returned. Raises WorkerNotFoundError if there is no such worker.
        """
        from ...database.statements.control import ask_worker

        await self._manage(
            connection, lambda session: ask_worker(session, self.schema, worker_id, "quiet", reason=reason)
        )

    async def resume_worker(self, worker_id: str, *, connection: UserConnection | None = None) -> bool:
        """Let a quiet worker fetch jobs again; returns whether it was quiet."""
        from ...database.statements.control import resume_worker

        return await self._manage(connection, lambda session: resume_worker(session, self.schema, worker_id))

    async def get_job_stack(self, job: Job | int, *, timeout: float | timedelta = 6.0) -> JobStack:
        """Where a running job is now: the calls it is in, as its worker sees them.

        Raises StackUnavailableError if the job does not run, if another runtime runs it, or if its worker
        does not answer within `timeout`.
        """
        from ..job_status import id_of, job_stack

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
        from ...database.statements.control import list_deploys

        begin = beginning(since, None, self._clock.now())
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
        from ...recovery.sweep import DEFAULT_MAX_RECOVERIES, Sweep
        from ...values.retention import Retention, RetentionPolicy

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
            retention_policy=RetentionPolicy(default=Retention(self._history_retention)),
        )
        return await (sweep.dry() if dry_run else sweep())

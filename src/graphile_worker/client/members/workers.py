"""`utils.workers`: worker pools, and what operators ask of them."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from ...database.connections.bound import no_connection_to_lend
from ...database.connections.connection import BlockingConnection, Connection
from ..blocking import SyncMember, blocking
from ..connections import ConnectionT, Member, beginning

if TYPE_CHECKING:
    from ...database.statements.control import Deploy, RequestKind
    from ...recovery.registry.workers import WorkerList
    from ...recovery.sweep import Sweep, SweepReport
    from ..job_status import ConcurrencyChange

T = TypeVar("T")


class WorkersClient(Member[ConnectionT]):
    """Worker pools, by the ids that the jobs they have locked show in `locked_by`.

    Python workers obey `pause`, `resume`, `stop` and `set_concurrency` at once. Workers of other runtimes are
    listed if they send heartbeats or have jobs locked, and cannot be asked anything.
    """

    async def list(self, *, all: bool = False, connection: ConnectionT | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Rust workers with recovery send heartbeats. Other pools of other runtimes appear while they have jobs
        locked. Finding those takes a scan of the jobs table: a large one is scanned only with `all`, and
        `is_complete` of the result says whether it was.
        """
        from ...recovery.registry import workers

        return await self._connections.call(connection, workers.list_workers, scan=all)

    async def pause(
        self, worker_id: str, *, reason: str | None = None, connection: ConnectionT | None = None
    ) -> None:
        """Ask a Python worker to fetch no more jobs, until `resume`. Running jobs finish.

        Jobs that it has prefetched are returned. Raises WorkerNotFoundError if there is no such worker.
        """
        await self._ask(worker_id, "quiet", reason, connection)

    async def resume(self, worker_id: str, *, connection: ConnectionT | None = None) -> bool:
        """Let a paused worker fetch jobs again; returns whether it was paused."""
        from ...database.statements.control import resume_worker

        return await self._connections.change(connection, resume_worker, worker_id)

    async def stop(
        self, worker_id: str, *, reason: str | None = None, connection: ConnectionT | None = None
    ) -> None:
        """Ask a Python worker to shut down gracefully, as if it had received SIGTERM.

        Raises WorkerNotFoundError if there is no such worker. Returns when it was asked, not when it ends.
        """
        await self._ask(worker_id, "stop", reason, connection)

    async def set_concurrency(
        self, worker_id: str, concurrency: int, *, lane: str = "main", timeout: float | timedelta = 6.0
    ) -> ConcurrencyChange:
        """Let a running Python worker run this many jobs at once, or this many of one of its lanes.

        More slots take jobs at once. Of fewer, those above the number end after the jobs that they run; none
        is cancelled, and prefetched jobs that are too many are returned. It lasts until the worker restarts.

        Raises WorkerNotFoundError if there is no such worker, and WorkerRequestError if it does not answer
        within `timeout`, as one of an earlier version.
        """
        from ..job_status import changed_concurrency, seconds_of

        connections = self._connections
        if connections.is_bound:
            raise no_connection_to_lend()
        return await changed_concurrency(
            connections.borrow, connections.schema, worker_id, lane, concurrency, seconds_of(timeout) or 0.0
        )

    async def _ask(self, worker_id: str, kind: RequestKind, reason: str | None, connection: object) -> None:
        from ...database.statements.control import ask_worker

        await self._connections.change(connection, ask_worker, worker_id, kind, reason=reason)

    async def sweep(
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
        sweep = self._sweep(recovery_delay, max_recoveries)
        return await (sweep.dry() if dry_run else sweep())

    async def recover(
        self,
        worker_id: str,
        *,
        force: bool = False,
        dry_run: bool = False,
        recovery_delay: float | timedelta = 0.0,
    ) -> SweepReport:
        """Recover the jobs of one dead worker of another runtime; their attempts do not count.

        Node workers send no heartbeats: make sure that the worker is dead, or its jobs run twice. A worker
        that sends heartbeats is refused without `force`, and so is a registered worker of this package, which
        `sweep` recovers. A `dry_run` changes nothing.
        """
        from ...recovery.registry.workers import check_recoverable

        await self._connections.call(None, check_recoverable, worker_id, force=force)
        return await self._sweep(recovery_delay, None).recover(worker_id, dry_run=dry_run)

    def _sweep(self, recovery_delay: float | timedelta, max_recoveries: int | None) -> Sweep:
        from ...recovery.sweep import DEFAULT_MAX_RECOVERIES, Sweep
        from ...values.retention import Retention, RetentionPolicy

        connections = self._connections

        async def run(work: Callable[[Connection], Awaitable[T]]) -> T:
            async with connections.borrow() as session:
                return await work(session)

        delay = recovery_delay.total_seconds() if isinstance(recovery_delay, timedelta) else recovery_delay
        return Sweep(
            run,
            connections.schema,
            connections.hooks,
            delay=delay,
            max_recoveries=DEFAULT_MAX_RECOVERIES if max_recoveries is None else max_recoveries,
            retention_policy=RetentionPolicy(default=Retention(connections.history_retention)),
        )

    async def list_deploys(
        self, *, since: datetime | timedelta, connection: ConnectionT | None = None
    ) -> builtins.list[Deploy]:
        """When versions of the application (`app_version`) were started, the latest first.

        `since` is a time, or a period before now.
        """
        from ...database.statements.control import list_deploys

        begin = beginning(since, None, self._connections.clock.now())
        return await self._connections.call(connection, list_deploys, begin)


class SyncWorkersClient(SyncMember):
    """The blocking form of `WorkersClient`."""

    _member = "workers"

    list = blocking(WorkersClient[BlockingConnection].list, is_long="all")
    pause = blocking(WorkersClient[BlockingConnection].pause)
    resume = blocking(WorkersClient[BlockingConnection].resume)
    stop = blocking(WorkersClient[BlockingConnection].stop)
    set_concurrency = blocking(WorkersClient[BlockingConnection].set_concurrency)
    sweep = blocking(WorkersClient[BlockingConnection].sweep, is_long=True)
    recover = blocking(WorkersClient[BlockingConnection].recover)
    list_deploys = blocking(WorkersClient[BlockingConnection].list_deploys)

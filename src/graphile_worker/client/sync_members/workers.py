"""The blocking `utils.workers`: worker pools, and what operators ask of them.

Written by `make reference` from `members/workers.py`: change that file, not this one.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from ...database.connections.connection import BlockingConnection
    from ...database.statements.control import Deploy
    from ...recovery.registry.workers import WorkerList
    from ...recovery.sweep import SweepReport
    from ..job_status import ConcurrencyChange


class SyncWorkersClient:
    """Worker pools, by the ids that the jobs they have locked show in `locked_by`.

    Python workers obey `pause`, `resume`, `stop` and `set_concurrency` at once. Workers of other runtimes are
    listed if they send heartbeats or have jobs locked, and cannot be asked anything.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(self, *, all: bool = False, connection: BlockingConnection | None = None) -> WorkerList:
        """Worker pools, what each runs, and whether it is alive.

        Rust workers with recovery send heartbeats. Other pools of other runtimes appear while they have jobs
        locked. Finding those takes a scan of the jobs table: a large one is scanned only with `all`, and
        `is_complete` of the result says whether it was.
        """
        return self._calls.run(connection, lambda utils: utils.workers.list(all=all), is_long=all)

    def pause(
        self, worker_id: str, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> None:
        """Ask a Python worker to fetch no more jobs, until `resume`. Running jobs go on.

        Jobs that it has prefetched are returned. Raises WorkerNotFoundError if there is no such worker.
        """
        return self._calls.run(connection, lambda utils: utils.workers.pause(worker_id, reason=reason))

    def resume(self, worker_id: str, *, connection: BlockingConnection | None = None) -> bool:
        """Let a paused worker fetch jobs again; returns whether it was paused."""
        return self._calls.run(connection, lambda utils: utils.workers.resume(worker_id))

    def stop(
        self, worker_id: str, *, reason: str | None = None, connection: BlockingConnection | None = None
    ) -> None:
        """Ask a Python worker to shut down gracefully, as if it had received SIGTERM.

        Raises WorkerNotFoundError if there is no such worker. Returns when it was asked, not when it ends.
        """
        return self._calls.run(connection, lambda utils: utils.workers.stop(worker_id, reason=reason))

    def set_concurrency(
        self, worker_id: str, concurrency: int, *, lane: str = "main", timeout: float | timedelta = 6.0
    ) -> ConcurrencyChange:
        """Let a running Python worker run this many jobs at once, or this many of one of its lanes.

        More slots take jobs at once. Of fewer, those above the number end after the jobs that they run; none
        is cancelled, and prefetched jobs that are too many are returned. It lasts until the worker restarts.

        Raises WorkerNotFoundError if there is no such worker, and WorkerRequestError if it does not answer
        within `timeout`, as one of an earlier version.
        """
        return self._calls.run(
            None,
            lambda utils: utils.workers.set_concurrency(worker_id, concurrency, lane=lane, timeout=timeout),
        )

    def sweep(
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
        return self._calls.run(
            None,
            lambda utils: utils.workers.sweep(
                dry_run=dry_run, recovery_delay=recovery_delay, max_recoveries=max_recoveries
            ),
            is_long=True,
        )

    def recover(
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
        return self._calls.run(
            None,
            lambda utils: utils.workers.recover(
                worker_id, force=force, dry_run=dry_run, recovery_delay=recovery_delay
            ),
        )

    def list_deploys(
        self, *, since: datetime | timedelta, connection: BlockingConnection | None = None
    ) -> builtins.list[Deploy]:
        """When versions of the application (`app_version`) were started, the latest first.

        `since` is a time, or a period before now.
        """
        return self._calls.run(connection, lambda utils: utils.workers.list_deploys(since=since))

"""Reading jobs, queues and statistics; cleaning up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...database.connections.connection import UserConnection
from .base import ClientBase, rereadable

if TYPE_CHECKING:
    # Methods import these when called: a worker, and a program that only adds jobs, start without them.
    from ...database.statements.cleanup import CleanupReport, CleanupTask
    from ...database.statements.inspection import JobDetails, JobFilter, QueueSummary, Statistics


class Inspecting(ClientBase):
    """Reads the state of the queue, and cleans up."""

    async def force_unlock_workers(
        self, worker_ids: Iterable[str], *, connection: UserConnection | None = None
    ) -> None:
        """Unlock every job and queue of these pools (ids as in `locked_by`). They must be dead."""
        from ...database.statements import cleanup

        worker_ids = rereadable(worker_ids)
        await self._manage(
            connection, lambda session: cleanup.force_unlock_workers(session, self.schema, worker_ids)
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
        Identifiers that running Python workers have are kept, too. Permanently failed jobs are deleted only
        with `DELETE_PERMAFAILED_JOBS`.
        """
        from ...database.statements import cleanup

        async with self._connection(connection) as session:
            return await cleanup.cleanup(
                session, self.schema, tasks, task_identifiers_to_keep=task_identifiers_to_keep
            )

    async def get_job(self, job_id: int, *, connection: UserConnection | None = None) -> JobDetails | None:
        """One job with its state and its queue's name, or None."""
        from ...database.statements import inspection

        async with self._connection(connection) as session:
            return await inspection.get_job(session, self.schema, job_id)

    async def list_jobs(
        self, filter: JobFilter | None = None, *, connection: UserConnection | None = None
    ) -> list[JobDetails]:
        """One page of the jobs that match the filter, in its order."""
        from ...database.statements import inspection
        from ...database.statements.inspection import JobFilter

        async with self._connection(connection) as session:
            return await inspection.list_jobs(
                session, self.schema, filter if filter is not None else JobFilter()
            )

    async def set_queue_concurrency(
        self, queue_name: str, concurrency: int | None, *, connection: UserConnection | None = None
    ) -> None:
        """Let up to `concurrency` jobs of a named queue run at once; None leaves that to its tasks again.

        It takes effect at once and survives restarts. Jobs that run when it is lowered go on. Node workers
        keep it, too.
        """
        from ...database.statements.limits import set_queue_concurrency

        await self._manage(
            connection, lambda session: set_queue_concurrency(session, self.schema, queue_name, concurrency)
        )

    async def list_queues(
        self, *, limit: int = 100, exact: bool = False, connection: UserConnection | None = None
    ) -> list[QueueSummary]:
        """Named queues, longest first, with the pools that have locked them; counts as in `statistics`."""
        from ...database.statements import inspection

        async with self._connection(connection) as session:
            return await inspection.list_queues(session, self.schema, limit=limit, exact=exact)

    async def statistics(
        self, *, exact: bool = False, connection: UserConnection | None = None
    ) -> Statistics:
        """The number of jobs by state and by task; estimated for a large table, unless `exact`."""
        from ...database.statements import inspection

        async with self._connection(connection) as session:
            return await inspection.statistics(session, self.schema, exact=exact)

"""`utils.history`: finished jobs that were kept, and the errors of attempts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ...database.connections.connection import BlockingConnection
from ...values.job import Job
from ..blocking import SyncMember, blocking
from ..connections import ConnectionT, Member

if TYPE_CHECKING:
    from ...history.error_groups import ErrorGroup
    from ...history.records import AttemptError, FinishedJob, HistoryFilter


class HistoryClient(Member[ConnectionT]):
    """Jobs that have ended and were kept, and the errors of all attempts.

    Without `keep`, a job is kept only if it failed permanently or expired. The errors of failed attempts are
    kept for every job.
    """

    async def list_finished(
        self, filter: HistoryFilter | None = None, *, connection: ConnectionT | None = None
    ) -> list[FinishedJob]:
        """One page of the finished jobs that were kept, the latest first."""
        from ...history.records import HistoryFilter, list_finished_jobs

        return await self._connections.call(
            connection, list_finished_jobs, filter if filter is not None else HistoryFilter()
        )

    async def of_job(self, job: Job | int, *, connection: ConnectionT | None = None) -> list[FinishedJob]:
        """What the history has of a job, the latest first; a job that was retried by hand was finished
        several times.
        """
        from ...history.records import history_of_job
        from ..job_status import id_of

        return await self._connections.call(connection, history_of_job, id_of(job))

    async def errors_of_job(
        self, job: Job | int, *, connection: ConnectionT | None = None
    ) -> list[AttemptError]:
        """The errors of a job's attempts, the latest first."""
        from ...history.records import errors_of_job
        from ..job_status import id_of

        return await self._connections.call(connection, errors_of_job, id_of(job))

    async def list_errors(
        self,
        *,
        fingerprint: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 50,
        connection: ConnectionT | None = None,
    ) -> list[AttemptError]:
        """The latest errors of all jobs, or of those with one fingerprint."""
        from ...history import records

        return await self._connections.call(
            connection, records.list_errors, fingerprint=fingerprint, since=since, before=before, limit=limit
        )

    async def list_error_groups(
        self,
        *,
        since: datetime | None = None,
        task_identifier: str | None = None,
        limit: int = 50,
        connection: ConnectionT | None = None,
    ) -> list[ErrorGroup]:
        """Kinds of errors, the one that occurred last first: how often, since when, in which job last."""
        from ...history import error_groups

        return await self._connections.call(
            connection,
            error_groups.list_error_groups,
            since=since,
            task_identifier=task_identifier,
            limit=limit,
        )


class SyncHistoryClient(SyncMember):
    """The blocking form of `HistoryClient`."""

    _member = "history"

    list_finished = blocking(HistoryClient[BlockingConnection].list_finished)
    of_job = blocking(HistoryClient[BlockingConnection].of_job)
    errors_of_job = blocking(HistoryClient[BlockingConnection].errors_of_job)
    list_errors = blocking(HistoryClient[BlockingConnection].list_errors)
    list_error_groups = blocking(HistoryClient[BlockingConnection].list_error_groups)

"""The blocking `utils.history`: finished jobs that were kept, and the errors of attempts.

Written by `make reference` from `members/history.py`: change that file, not this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sync_calls import SyncCalls

if TYPE_CHECKING:
    from datetime import datetime

    from ...database.connections.connection import BlockingConnection
    from ...history.error_groups import ErrorGroup
    from ...history.records import AttemptError, FinishedJob, HistoryFilter
    from ...values.job import Job


class SyncHistoryClient:
    """Jobs that have ended and were kept, and the errors of all attempts.

    Without `keep`, a job is kept only if it failed permanently or expired. The errors of failed attempts are
    kept for every job.
    """

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list_finished(
        self, filter: HistoryFilter | None = None, *, connection: BlockingConnection | None = None
    ) -> list[FinishedJob]:
        """One page of the finished jobs that were kept, the latest first."""
        return self._calls.run(connection, lambda utils: utils.history.list_finished(filter))

    def of_job(self, job: Job | int, *, connection: BlockingConnection | None = None) -> list[FinishedJob]:
        """What the history has of a job, the latest first; a job that was retried by hand was finished
        several times.
        """
        return self._calls.run(connection, lambda utils: utils.history.of_job(job))

    def errors_of_job(
        self, job: Job | int, *, connection: BlockingConnection | None = None
    ) -> list[AttemptError]:
        """The errors of a job's attempts, the latest first."""
        return self._calls.run(connection, lambda utils: utils.history.errors_of_job(job))

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
        return self._calls.run(
            connection,
            lambda utils: utils.history.list_errors(
                fingerprint=fingerprint, since=since, before=before, limit=limit
            ),
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
        return self._calls.run(
            connection,
            lambda utils: utils.history.list_error_groups(
                since=since, task_identifier=task_identifier, limit=limit
            ),
        )

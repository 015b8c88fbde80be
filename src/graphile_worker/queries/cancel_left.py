"""Cancelling jobs that a step of a bulk change has skipped, because transactions had locked their rows.

Usually that is a held batch of a worker, which ends within a fraction of a second. Its jobs may run on, and a
cancel of all jobs of a task would have missed them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..db.connection import Connection
from ..db.retry import is_conflict
from ..errors import JobBusyError
from ..job import Job
from ..schema_name import SchemaName
from .cancel import CancelReport, cancel_jobs
from .lock_waits import bounded_waits


async def cancel_left(
    connection: Connection,
    schema: SchemaName,
    job_ids: Sequence[int],
    reason: str | None,
    on_kept: Callable[[Connection, list[Job]], Awaitable[None]] | None,
) -> CancelReport | None:
    """Wait for their transactions and cancel these jobs; None if that takes too long.

    `on_kept` gets those that were removed and ask to be kept, in the same transaction.
    """

    async def change() -> CancelReport:
        report = await cancel_jobs(connection, schema, job_ids, reason=reason)
        kept = [job for job in report.removed if job.raw_flags is not None]
        if kept and on_kept is not None:
            await on_kept(connection, kept)
        return report

    try:
        return await bounded_waits(connection, schema, change)
    except JobBusyError:
        return None
    except Exception as error:
        if is_conflict(error):  # all was rolled back
            return None
        raise

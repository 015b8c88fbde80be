"""How a client changes and ends jobs, by id, by key or by a filter: `JobChanges`; and how it pauses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ..database.connections.connection import Connection
from ..database.statements import bulk_changes, manage_jobs, pauses
from ..errors import InvalidArgumentError
from ..history.removed import ManualOutcome, keep_removed
from ..values.job import Job
from ..values.spec import TaskLike
from .connections import ClientConnections, rereadable

if TYPE_CHECKING:
    from ..database.statements.bulk_changes import BulkChange, BulkOptions, BulkReport
    from ..database.statements.job_filter import JobFilter
    from ..database.statements.manage_jobs import CancelReport
    from ..values.job import Pause

T = TypeVar("T")


class JobChanges:
    """Changes jobs; those that end and were added with `keep` are kept."""

    def __init__(self, connections: ClientConnections) -> None:
        self._connections = connections
        self._schema = connections.schema

    async def cancel(
        self, connection: object, ids: Iterable[int], reason: str | None, *, job_key: str | None = None
    ) -> CancelReport:
        """Delete these jobs, or ask their workers to end them."""
        return await self.end(
            connection,
            cancelled(reason),
            lambda session: manage_jobs.cancel_jobs(
                session, self._schema, ids, job_key=job_key, reason=reason
            ),
            lambda report: report.removed,
        )

    async def end(
        self,
        connection: object,
        outcome: ManualOutcome,
        work: Callable[[Connection], Awaitable[T]],
        ended: Callable[[T], Sequence[Job]] | None = None,
    ) -> T:
        """Remove or fail jobs; in the same transaction, keep those that ask for it.

        `ended` finds these jobs in the result; without it, the result is a list of them.
        """

        async def both(session: Connection) -> T:
            result: Any = await work(session)
            jobs = result if ended is None else ended(result)
            if any(job.raw_flags is not None for job in jobs):
                await self._keep(session, jobs, outcome)
            return result  # type: ignore[no-any-return]

        return await self.named(connection, both)

    async def named(self, connection: object, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Change jobs that are named by id or key, in one transaction that does not wait for long."""
        return await self._connections.manage(
            connection,
            lambda session: manage_jobs.bounded_waits(session, self._schema, lambda: work(session)),
        )

    async def in_steps(
        self,
        filter: JobFilter,
        change: BulkChange,
        connection: object,
        options: BulkOptions,
        outcome: ManualOutcome | None = None,
        *,
        job_ids: object = None,
    ) -> BulkReport:
        """Change the jobs that match a filter. `outcome`: how they end by this change."""
        if job_ids is not None:
            raise InvalidArgumentError("filter", "give either job_ids or a filter, not both")

        async def keep_ends(session: Connection, jobs: list[Job]) -> None:
            if outcome is not None:
                await self._keep(session, jobs, outcome)

        connections = self._connections
        walk = bulk_changes.BulkWalk(self._schema, filter, change, options, on_kept=keep_ends)
        return await bulk_changes.change_in_steps(
            walk, lambda work: connections.manage(connection, work), options, connections.clock
        )

    async def _keep(self, session: Connection, jobs: Sequence[Job], outcome: ManualOutcome) -> None:
        retention, redactors = self._connections.history_retention, self._connections.hooks.table.redactors
        await keep_removed(
            session, self._schema, jobs, outcome, history_retention=retention, redactors=redactors
        )


def cancelled(reason: str | None) -> ManualOutcome:
    """The end of a job that was cancelled for this reason."""
    return ManualOutcome("cancelled", *manage_jobs.failure_values(reason))


def ids_of(job_ids: Iterable[int] | None, options: BulkOptions) -> Iterable[int]:
    """The ids that were given in place of a filter."""
    if job_ids is None:
        raise InvalidArgumentError("job_ids", "name the jobs by id, or pass a filter")
    if options:
        raise InvalidArgumentError(next(iter(options)), "is for a filter and has no effect on job ids")
    return rereadable(job_ids)


# -- pausing and resuming one thing: a named queue, a task, or every task ------------------------------------


async def pause(
    connections: ClientConnections,
    connection: object,
    *,
    queue_name: str | None = None,
    task: str | TaskLike[Any, Any] | None = None,
    all: bool = False,
    until: datetime | timedelta | None,
    reason: str | None,
) -> Pause:
    """Start no more jobs of one of them."""
    if queue_name is None or task is not None or all:
        name = _task_name(queue_name, task, all)
        return await connections.change(connection, pauses.pause_task, name, until, reason)
    return await connections.change(connection, pauses.pause_queue, queue_name, until, reason)


async def resume(
    connections: ClientConnections,
    connection: object,
    *,
    queue_name: str | None = None,
    task: str | TaskLike[Any, Any] | None = None,
    all: bool = False,
) -> bool:
    """End the pause of one of them; returns whether it was paused."""
    if queue_name is None or task is not None or all:
        name = _task_name(queue_name, task, all)
        return await connections.change(connection, pauses.resume_task, name)
    return await connections.change(connection, pauses.resume_queue, queue_name)


def _task_name(queue_name: str | None, task: str | TaskLike[Any, Any] | None, all: bool) -> str:
    """The name under which the pause of a task, or of all, is stored."""
    values = {"queue_name": queue_name is not None, "task": task is not None, "all": all}
    given = [name for name, is_given in values.items() if is_given]
    if len(given) != 1:
        got = "none of them" if not given else " and ".join(given)
        raise InvalidArgumentError(
            given[-1] if given else "queue_name", f"give one of queue_name, task and all=True; got {got}"
        )
    if task is None:
        return pauses.EVERY_TASK
    identifier = task if isinstance(task, str) else task.identifier
    if not identifier:
        raise InvalidArgumentError("task", "must not be empty; for every task, give all=True")
    return identifier

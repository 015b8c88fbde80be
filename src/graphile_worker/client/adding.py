"""AddingClient: the part of `WorkerUtils` that adds jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from msgspec.structs import astuple

from ..database.connections.connection import Connection, UserConnection
from ..database.statements import add, add_many
from ..errors import InvalidArgumentError
from ..hooks.events import AddSource, JobsAdded
from ..hooks.watchers import WatchedAdd, WatchedAdds
from ..values.job import Job
from ..values.spec import JobOptions, JobSpec, TaskLike, refuse_unknown_options
from .connections import ClientConnections
from .handle import AddedTask, JobHandle
from .task_name_check import TaskNameCheck, checked_names

if TYPE_CHECKING:
    from .members.jobs import JobsClient

R = TypeVar("R")
Arguments = ParamSpec("Arguments")


class AddingClient:
    """Adds jobs, one or many."""

    def __init__(
        self, connections: ClientConnections, *, source: AddSource = "client", checks_names: bool = True
    ) -> None:
        """`checks_names`: whether to warn about jobs for tasks that no worker knows."""
        self.pool = connections.pool
        self.schema = connections.schema
        self.hooks = connections.hooks
        self._connections = connections
        self._source = source
        self._borrow = connections.borrow
        self._now = connections.local_now
        self._observed = self.hooks.events.observed
        self._add_watchers = self.hooks.table.add_watchers
        self._plain_jobs = add.PlainJobs(self.schema)
        # The fast path must not be taken inside a caller's transaction: see add_plain_job.
        self._adds_plain_jobs = not getattr(self.pool, "may_be_in_transaction", False)
        self._task_name_check: TaskNameCheck | None = None
        if checks_names and self._adds_plain_jobs:
            self._task_name_check = TaskNameCheck(
                self.schema, connections.borrow, self.hooks._background_context
            )
        self._checked_names = checked_names(self.schema)

    @cached_property
    def jobs(self) -> JobsClient:
        """Reads, follows, cancels and retries jobs."""
        from .members.jobs import JobsClient

        return JobsClient(self._connections)

    @overload
    async def add_job(
        self,
        task: str,
        payload: object = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any]: ...

    @overload
    async def add_job(
        self, spec: JobSpec, /, *, connection: UserConnection | None = None
    ) -> JobHandle[Any]: ...

    @overload
    async def add_job(
        self,
        task: TaskLike[None, R],
        payload: None = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[R]: ...

    @overload
    async def add_job(
        self, task: AddedTask[Arguments, R], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> JobHandle[R]: ...

    async def add_job(  # type: ignore[misc]
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any]:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`. The handle can wait for the
        result, if the job or its task has `keep`. If the job is unique and there is one already, that one is
        returned, and its `is_existing` is true.
        """
        if type(task) is str or not isinstance(task, JobSpec):
            try:
                spec = JobSpec(task, payload, **options)
            except TypeError as error:
                refuse_unknown_options(options, error)
                raise
        else:
            spec = _whole(task, payload, options)
        if self.hooks.table.before_add:
            spec = await self.hooks._intercept_add(spec)
        if self._add_watchers:
            job = await self._add_watched(spec, connection)
        else:
            job = await self._add(spec, connection)
        if JobsAdded in self._observed:
            self.hooks.events.emit(JobsAdded(specs=(spec,), jobs=(job,), source=self._source))
        if job.task_identifier not in self._checked_names and self._task_name_check is not None:
            if isinstance(task, str | JobSpec):
                self._task_name_check.check(job)
            else:  # the name of a task object is not misspelt
                self._checked_names.add(job.task_identifier)
        return JobHandle(
            *astuple(job),
            _client=self,
            _task=None if isinstance(task, str | JobSpec) else task,
            _is_existing=job.is_existing,
        )

    async def _add(self, spec: JobSpec, connection: UserConnection | None) -> Job:
        try:
            async with self._borrow(connection) as session:
                job: Job | None = None
                if (
                    spec.job_key is None
                    and spec.queue_name is None
                    and (self._adds_plain_jobs if connection is None else not session.is_in_transaction())
                ):
                    job = await self._plain_jobs.add(session, spec, self._now())
                if job is None:
                    job = await add.add_job(session, self.schema, spec, now=self._now())
        except Exception as error:
            if self._connections.may_retry(connection, error):
                job = await self._connections.retry(
                    lambda session: add.add_job(session, self.schema, spec, now=self._now())
                )
            elif (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            else:
                raise
        return job

    async def _add_watched(self, spec: JobSpec, connection: UserConnection | None) -> Job:
        watched = WatchedAdd(self._add_watchers, (spec,))
        try:
            job = await self._add(watched.specs[0], connection)
        except BaseException as error:
            watched.ended(None, error)
            raise
        watched.ended((job,))
        return job

    async def add_jobs(
        self, specs: Iterable[JobSpec], *, return_jobs: bool = True, connection: UserConnection | None = None
    ) -> list[Job]:
        """Add many jobs in one transaction; returns them in the order of the specs.

        With `return_jobs=False` the result is empty, and a generator of millions of specs needs no more
        memory than a few thousand of them. A generator can be read only once, so after a deadlock a call
        with one fails where others are retried.
        """
        if not isinstance(specs, Iterable):
            raise InvalidArgumentError("specs", f"expected a list of JobSpec, got {specs!r}")
        if self.hooks.table.before_add:
            specs = [await self.hooks._intercept_add(spec) for spec in specs]
        is_observed = JobsAdded in self._observed
        if is_observed:
            specs = list(specs)
        if self._add_watchers:
            watched = WatchedAdds(self._add_watchers, specs)
            try:
                jobs = await self._add_all(watched.to_send, return_jobs, connection)
            except BaseException as error:
                watched.ended(None, error)
                raise
            watched.ended(jobs if return_jobs else None)
        else:
            jobs = await self._add_all(specs, return_jobs, connection)
        if is_observed and specs:
            self.hooks.events.emit(JobsAdded(specs=tuple(specs), jobs=tuple(jobs), source=self._source))
        if jobs and self._task_name_check is not None:
            for job in (jobs[0], jobs[-1]):  # usually all have the same task
                if job.task_identifier not in self._checked_names:
                    self._task_name_check.check(job)
        return jobs

    async def _add_all(
        self, specs: Iterable[JobSpec], return_jobs: bool, connection: UserConnection | None
    ) -> list[Job]:
        async def add_all(session: Connection) -> list[Job]:
            return await add_many.add_jobs(
                session, self.schema, specs, return_jobs=return_jobs, now=self._now()
            )

        try:
            async with self._borrow(connection) as session:
                return await add_all(session)
        except Exception as error:
            if self._connections.may_retry(connection, error) and not isinstance(specs, Iterator):
                return await self._connections.retry(add_all)
            if (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            raise


def _whole(spec: JobSpec, payload: object, options: JobOptions) -> JobSpec:
    if payload is not None or options:
        raise InvalidArgumentError(
            "spec", "a JobSpec is added as it is; change its payload and options with spec.replace(...)"
        )
    return spec

"""Adding jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload

from msgspec.structs import astuple

from ...database.connections.connection import Connection, UserConnection
from ...database.statements import add, add_many
from ...errors import InvalidArgumentError
from ...hooks.events import JobsAdded
from ...hooks.watchers import WatchedAdd, WatchedAdds
from ...values.job import Job
from ...values.spec import JobOptions, JobSpec, TaskLike, refuse_unknown_options
from ..handle import JobHandle, JobReference
from .base import ClientBase

if TYPE_CHECKING:
    from ..handle import JobFollower
    from ..task_arguments import AddedTask

R = TypeVar("R")
Arguments = ParamSpec("Arguments")


class AddingJobs(ClientBase):
    """Adds jobs, one or many."""

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
            _client=cast("JobFollower", self),
            _task=None if isinstance(task, str | JobSpec) else task,
            _is_existing=job.is_existing,
        )

    async def _add(self, spec: JobSpec, connection: UserConnection | None) -> Job:
        try:
            async with self._connection(connection) as session:
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
            if self._may_retry(connection, error):
                job = await self._retry(
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

    @overload
    def handle(self, job: JobHandle[R]) -> JobHandle[R]: ...

    @overload
    def handle(self, job: Job) -> JobHandle[Any]: ...

    @overload
    def handle(self, job: int) -> JobReference: ...

    def handle(self, job: Job | int) -> JobHandle[Any] | JobReference:
        """A handle for a job that was added elsewhere, or for its id, to wait for its end."""
        client = cast("JobFollower", self)
        if isinstance(job, Job):
            fields = astuple(job)[: len(Job.__struct_fields__)]
            task = getattr(job, "_task", None)
            return JobHandle(*fields, _client=client, _task=task, _is_existing=job.is_existing)
        if isinstance(job, int) and not isinstance(job, bool):
            return JobReference(id=job, _client=client)
        raise InvalidArgumentError("job", f"expected a job or its id, got {job!r}")

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
            async with self._connection(connection) as session:
                return await add_all(session)
        except Exception as error:
            if self._may_retry(connection, error) and not isinstance(specs, Iterator):
                return await self._retry(add_all)
            if (payload_error := add.payload_error(error)) is not None:
                raise payload_error from error
            raise


def _whole(spec: JobSpec, payload: object, options: JobOptions) -> JobSpec:
    if payload is not None or options:
        raise InvalidArgumentError(
            "spec", "a JobSpec is added as it is; change its payload and options with spec.replace(...)"
        )
    return spec

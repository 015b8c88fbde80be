"""SyncHelpers: the helpers for tasks that are plain functions and run in a thread.

Each call is passed to the worker's event loop and blocks the thread, not the worker, until it has a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar, Unpack, overload

from ..database.connections.connection import Row
from ..values.job import Job
from ..values.spec import JobOptions, JobSpec, TaskLike

T = TypeVar("T")
P = TypeVar("P")


class _AsyncHelpers(Protocol):
    """The asynchronous methods that have a blocking form."""

    async def add_job(self, task: Any, payload: Any = None, **options: Unpack[JobOptions]) -> Job: ...

    async def add_jobs(self, specs: Iterable[JobSpec], *, return_jobs: bool = True) -> list[Job]: ...

    async def query(self, sql: str, *args: Any) -> Sequence[Row]: ...

    async def get_queue_name(self, queue_id: int | None = None) -> str | None: ...

    async def progress(
        self, share: float | None = None, note: str | None = None, *, data: object = None
    ) -> None: ...


class SyncHelpers:
    """Blocking forms of the asynchronous helpers."""

    __slots__ = ("_helpers", "_loop")

    def __init__(self, helpers: _AsyncHelpers, loop: asyncio.AbstractEventLoop) -> None:
        self._helpers = helpers
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine on the worker's loop and wait for its result."""
        if asyncio._get_running_loop() is self._loop:
            coroutine.close()
            raise RuntimeError(
                "helpers.sync blocks, so it must not be used in an async task: there, await the method of "
                "the same name on helpers itself"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise
        return future.result()

    @overload
    def add_job(self, task: TaskLike[P], payload: P, **options: Unpack[JobOptions]) -> Job: ...
    @overload
    def add_job(
        self, task: str | TaskLike[None], payload: object = None, **options: Unpack[JobOptions]
    ) -> Job: ...
    @overload
    def add_job(self, spec: JobSpec, /) -> Job: ...
    def add_job(self, task: Any, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job, on a connection of the worker."""
        return self.run(self._helpers.add_job(task, payload, **options))

    def add_jobs(self, specs: Iterable[JobSpec], *, return_jobs: bool = True) -> list[Job]:
        """Add many jobs in one transaction; the result is in the order of the specs."""
        return self.run(self._helpers.add_jobs(specs, return_jobs=return_jobs))

    def query(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run one statement with `$1` parameters on a connection of the worker's pool; its rows."""
        return self.run(self._helpers.query(sql, *args))

    def get_queue_name(self, queue_id: int | None = None) -> str | None:
        """The name of this job's queue, or of the queue with this id."""
        return self.run(self._helpers.get_queue_name(queue_id))

    def progress(self, share: float | None = None, note: str | None = None, *, data: object = None) -> None:
        """Report how far the task is."""
        self.run(self._helpers.progress(share, note, data=data))

"""RemoteHelpers: the helpers of a task that runs outside of the worker.

Job, logger, abort signal and progress are there. What needs the worker's database connections is not, and
says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar, cast

from ..errors import JobError
from ..history.progress import ProgressReport
from ..tasks.helpers import JobHelpers
from ..tasks.queue_names import QueueNames
from ..tasks.services import Extensions, ProgressSink, WorkerServices
from ..tasks.sync_helpers import SyncHelpers

T = TypeVar("T")


class RemoteHelpers(JobHelpers):
    """What a task gets outside of the worker: `job`, `logger`, `abort_signal` and `progress`."""

    @property
    def sync(self) -> SyncHelpers:
        """Blocking forms of the methods, for tasks that are plain functions."""
        return _RemoteSyncHelpers(self, self._services.loop)

    def __repr__(self) -> str:
        return f"<RemoteHelpers of job {self.job.id} ({self.job.task_identifier})>"


def remote_services(
    *, progress: Callable[[int, ProgressReport], None], logger: logging.Logger
) -> WorkerServices:
    """What all tasks of this process share."""
    sink = ProgressSink()
    sink.connect(progress)
    return WorkerServices(
        client=cast(Any, _Nothing()),
        acquire=_no_connection,
        queue_names=cast(QueueNames, _Nothing()),
        loop=cast(asyncio.AbstractEventLoop, None),
        extensions=_NO_EXTENSIONS,
        progress=sink,
        logger=logger,
    )


class _RemoteSyncHelpers(SyncHelpers):
    __slots__ = ()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine, in an event loop of its own, and wait for its result."""
        return asyncio.run(coroutine)

    def progress(self, share: float | None = None, note: str | None = None, *, data: object = None) -> None:
        """Report how far the task is."""
        helpers = cast(RemoteHelpers, self._helpers)
        helpers._services.progress.report(helpers.job.id, share, note, data)


class _Nothing:
    """In place of the client: every method is missing here."""

    async def add_job(self, *args: Any, **options: Any) -> NoReturn:
        raise _missing("add_job")

    async def add_jobs(self, *args: Any, **options: Any) -> NoReturn:
        raise _missing("add_jobs")

    async def get(self, queue_id: int) -> NoReturn:
        raise _missing("get_queue_name")


def _no_connection() -> NoReturn:
    raise _missing("query and helpers.with_pg_client")


def _missing(what: str) -> JobError:
    return JobError(
        f"helpers.{what} needs the database connections of the worker, which do not exist here, because the "
        "task runs in an executor; open a client of your own, for example SyncWorkerUtils, or let a task do "
        "it that runs in the worker"
    )


class _NoExtensions(Extensions):
    def get(self, kind: type[Any], default: Any = ...) -> Any:
        if default is not ...:
            return default
        raise JobError(
            f"helpers.extension({kind.__name__}) does not exist here: extensions stay in the worker, and the "
            "task runs in an executor; make the object at the top level of a module, or in the initializer"
        )


_NO_EXTENSIONS = _NoExtensions()

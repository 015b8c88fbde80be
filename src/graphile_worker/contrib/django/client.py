"""Adding and managing jobs on Django's own connection, inside whatever `atomic()` is open."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.db import connections

from ...client.handle import SyncJobHandle
from ...client.sync_worker_utils import SyncWorkerUtils
from ...config.plugins import load_plugins
from ...hooks import Hooks
from ...values.job import Job
from ...values.spec import JobOptions, JobSpec, TaskLike
from .conf import plugin_name, worker_settings

P = TypeVar("P")
R = TypeVar("R")


def utils(using: str | None = None) -> SyncWorkerUtils:
    """A client on Django's connection: the jobs belong to the transaction that is open there.

    `using` is the alias of the database, by default that of the setting GRAPHILE_WORKER.
    """
    chosen = worker_settings()
    connection: Any = connections[using or chosen.database]
    hooks = _hooks(tuple(chosen.client_plugins)) if chosen.client_plugins else None
    return SyncWorkerUtils.bound(connection, options=chosen.worker_options, hooks=hooks)


@lru_cache(maxsize=4)
def _hooks(plugins: tuple[str, ...]) -> Hooks:
    """The hooks of all clients of this process."""
    return Hooks(plugins=load_plugins([plugin_name(name) for name in plugins], {}))


@overload
def add_job(
    task: str, payload: Any = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[Any]: ...
@overload
def add_job(
    task: TaskLike[None, R], payload: None = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[R]: ...
@overload
def add_job(
    task: TaskLike[P, R], payload: P, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[R]: ...
def add_job(
    task: Any, payload: Any = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[Any]:
    """Add a job; it is rolled back with the transaction, and no worker sees it before the commit."""
    return utils(using).add_job(task, payload, **options)


def add_jobs(specs: Iterable[JobSpec], *, using: str | None = None, return_jobs: bool = True) -> list[Job]:
    """Add many jobs."""
    return utils(using).add_jobs(specs, return_jobs=return_jobs)


@overload
async def aadd_job(
    task: str, payload: Any = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[Any]: ...
@overload
async def aadd_job(
    task: TaskLike[None, R], payload: None = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[R]: ...
@overload
async def aadd_job(
    task: TaskLike[P, R], payload: P, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[R]: ...
async def aadd_job(
    task: Any, payload: Any = None, *, using: str | None = None, **options: Unpack[JobOptions]
) -> SyncJobHandle[Any]:
    """`add_job` for asynchronous code; the methods of the job that it returns are blocking."""
    job: SyncJobHandle[Any] = await sync_to_async(add_job, thread_sensitive=True)(
        task, payload, using=using, **options
    )
    return job


async def aadd_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, return_jobs: bool = True
) -> list[Job]:
    """`add_jobs` for asynchronous code."""
    jobs: list[Job] = await sync_to_async(add_jobs, thread_sensitive=True)(
        list(specs), using=using, return_jobs=return_jobs
    )
    return jobs

"""WorkerServices: what all tasks of one worker share. The worker builds it once; helpers refer to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Unpack

import msgspec

from ..db.connection import Connection, UserConnection
from ..job import Job
from ..spec import JobOptions, JobSpec
from .abort_signal import AbortSignal
from .extensions import Extensions
from .overrides import Overrides
from .progress_sink import ProgressSink
from .queue_names import QueueNames

job_logger = logging.getLogger("graphile_worker.job")


class JobAdder(Protocol):
    """The part of a client that helpers use."""

    def add_job(
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: UserConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Awaitable[Job]: ...

    def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: UserConnection | None = None,
    ) -> Awaitable[list[Job]]: ...


class WorkerServices(msgspec.Struct, frozen=True, kw_only=True):
    """Shared by every job of one worker."""

    client: JobAdder
    acquire: Callable[[], AbstractAsyncContextManager[Connection]]
    """Borrows a connection from the worker's pool for the length of an `async with` block."""
    queue_names: QueueNames
    loop: asyncio.AbstractEventLoop
    """The worker's event loop; tasks in threads pass their calls to it."""
    abort_signal: AbortSignal = msgspec.field(default_factory=AbortSignal)
    """The worker's own; the signal of each job follows it."""
    extensions: Extensions = msgspec.field(default_factory=Extensions)
    overrides: Overrides | None = None
    progress: ProgressSink = msgspec.field(default_factory=ProgressSink)
    logger: logging.Logger = job_logger
    executables_inherit_database: bool = True
    """Whether executable tasks inherit the environment variables for the worker's database."""
    environments: Sequence[Callable[[], Mapping[str, str]]] = ()
    """What `Hooks.carry_environment` was given: further variables for executable tasks."""

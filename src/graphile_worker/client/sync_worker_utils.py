"""SyncWorkerUtils: the client for blocking code, and `make_sync_worker_utils`, which opens it.

Its methods are those of `WorkerUtils`; `blocking` makes them. `SyncCalls` knows where calls run: those with a
connection of the caller, and those of a bound client, in the caller's thread, without an event loop; all
others on the client's own thread, see `background`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload
from weakref import finalize

from ..config.calls import call_hooks, call_options
from ..database.connections.bound import BlockingClock, BoundConnection, no_connection_to_lend, run_blocking
from ..database.connections.connection import BlockingConnection, Pool
from ..database.connections.dsn import Dsn
from ..database.connections.foreign import as_blocking_connection
from ..database.connections.open import resolve_connection
from ..errors import ConfigError, ConnectionConfigError, InvalidArgumentError
from ..hooks import Hooks
from ..values.job import Job
from ..values.options import CLIENT_OPTIONS, WorkerOptions
from ..values.schema_name import SchemaName
from ..values.spec import JobSpec
from .api import make_worker_utils, with_plugins
from .background import Background, lend
from .blocking import blocking, like, read_here
from .connections import ClientConnections, bound_options
from .handle import sync_handle_of
from .worker_utils import ManagingClient, WorkerUtils

if TYPE_CHECKING:
    from datetime import datetime

    from ..database.statements.bulk_changes import BulkOptions, BulkReport
    from ..database.statements.inspection import JobFilter
    from ..database.statements.manage_jobs import CancelReport
    from ..values.spec import JobOptions, TaskLike
    from .api import SyncClientArguments
    from .background import SyncConnection
    from .handle import SyncAddedTask, SyncJobHandle, SyncJobReference
    from .members.history import SyncHistoryClient
    from .members.jobs import SyncJobsClient
    from .members.limits import SyncLimitsClient
    from .members.queues import SyncQueuesClient
    from .members.schedules import SyncSchedulesClient
    from .members.statistics import SyncStatisticsClient
    from .members.workers import SyncWorkersClient

T = TypeVar("T")
R = TypeVar("R")
Arguments = ParamSpec("Arguments")

OBJECTS = ("events", "hooks", "plugins", "options", "call_timeout")
"""Arguments of `make_sync_worker_utils` that are not options; `SyncClientArguments` has their types."""
CALL_TIMEOUT = 30.0  # seconds


def make_sync_worker_utils(**arguments: Unpack[SyncClientArguments]) -> SyncWorkerUtils:
    """A client for blocking code: `with make_sync_worker_utils(…) as utils`, or call `release` at the end.

    It may be a global variable that all threads share: the first call connects, and a forked process
    connects by itself. The database is `connection_string`, else DATABASE_URL, else what the PG* variables
    say. What is not given comes from `options` if there is such an object, else from the environment and
    the configuration file. The schema is not installed unasked: call `utils.migrate()`, or run
    `graphile-worker migrate`.

    A call fails with ConnectionFailedError if the server has not answered after `call_timeout` seconds, 30 by
    default; None is no limit. What can take long by nature, such as `migrate`, `add_jobs`, `wait_for` and
    changes in steps, has none.
    """
    chosen = call_options(arguments, objects=OBJECTS, options=CLIENT_OPTIONS)
    hooks = with_plugins(call_hooks(arguments), arguments.get("plugins", ()), chosen, _database(chosen))
    timeout = _seconds(arguments.get("call_timeout", CALL_TIMEOUT))
    without = chosen.with_values(plugins=[])  # they are in the hooks
    background = Background(lambda: make_worker_utils(options=without, hooks=hooks), timeout)
    return SyncWorkerUtils(chosen, hooks, home=background)


def _database(options: WorkerOptions) -> Pool | Dsn | None:
    """The database as far as it is known now; if it is not, the first call says so."""
    try:
        return resolve_connection(options.connection_string)
    except ConnectionConfigError:
        return None


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise InvalidArgumentError(
            "call_timeout", f"expected seconds, a timedelta, or None for no limit; got {timeout!r}"
        )
    return float(seconds)


class SyncCalls:
    """Runs the calls of a blocking client and of its members. Its thread ends with the last of them."""

    def __init__(
        self, options: WorkerOptions, hooks: Hooks, *, home: Background | BlockingConnection
    ) -> None:
        """`home`: where calls without a connection run."""
        refuse_coroutines(hooks)
        self.schema: SchemaName = options.schema_name
        self.hooks = hooks
        self._options = options
        self.background = home if isinstance(home, Background) else None
        self.bound = None if isinstance(home, Background) else self._on(home)
        if self.background is not None:
            finalize(self, self.background.close_soon).atexit = False

    def run(
        self,
        connection: BlockingConnection | None,
        call: Callable[[Any], Coroutine[Any, Any, T]],
        *,
        is_long: bool = False,
    ) -> T:
        """The result of a call. A long one has no time limit."""
        if self.background is not None and connection is None:
            return self.background.run(call, is_long=is_long)
        return run_blocking(call(self._client(connection)))

    def _client(self, connection: BlockingConnection | None) -> WorkerUtils:
        """The client for calls in this thread."""
        if connection is not None:
            return self._on(connection)
        assert self.bound is not None  # noqa: S101
        return self.bound

    def _on(self, connection: BlockingConnection) -> WorkerUtils:
        return WorkerUtils(
            ClientConnections(
                BoundConnection(as_blocking_connection(connection)),
                schema=self.schema,
                use_local_time=self._options.use_local_time,
                hooks=self.hooks,
                clock=BlockingClock(),
                history_retention=self._options.history.retention,
            )
        )


def refuse_coroutines(hooks: Hooks) -> None:
    """Calls on the caller's connection have no event loop, so interceptors must be plain functions."""
    for interceptor in hooks.table.before_add:
        if inspect.iscoroutinefunction(interceptor):
            raise ConfigError(
                f"before_add: {interceptor.__qualname__} is a coroutine function; a blocking client takes "
                "plain functions"
            )


class SyncWorkerUtils:
    """Adds and manages jobs from blocking code. Made by `make_sync_worker_utils`; safe for many threads.

    Its own methods add jobs, and are those that Graphile Worker for Node has. The rest is in its members, by
    subject: `utils.jobs`, `utils.queues`, `utils.workers`, `utils.limits`, `utils.schedules`,
    `utils.history` and `utils.statistics`.

    Methods that take a `connection` use it, and so its transaction, in place of one of the client's own. It
    is a connection of psycopg, psycopg2 or Django, or a Session or Connection of SQLAlchemy. The client never
    begins, commits or rolls back your transaction.
    """

    _member = ""

    def __init__(
        self, options: WorkerOptions, hooks: Hooks, *, home: Background | BlockingConnection
    ) -> None:
        """`home`: where calls without a connection run."""
        self.schema: SchemaName = options.schema_name
        """The schema of the jobs."""
        self.hooks: Hooks = hooks
        """Events and interceptors of this client."""
        self._calls = SyncCalls(options, hooks, home=home)

    @classmethod
    def bound(
        cls,
        connection: BlockingConnection,
        *,
        schema: str | None = None,
        hooks: Hooks | None = None,
        use_local_time: bool | None = None,
        options: WorkerOptions | None = None,
    ) -> Self:
        """A client for this connection or session alone: all its methods work in your transaction.

        It starts no thread, opens nothing and needs no closing, so it can be made for each request. Options
        that are not given come from `options` if there is such an object, else from the environment and the
        configuration file.
        """
        chosen = bound_options(schema, use_local_time, options)
        return cls(chosen, hooks if hooks is not None else Hooks(), home=connection)

    # -- opening and closing -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_released:
            self.release()

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._calls.background is not None and self._calls.background.is_closed

    def release(self) -> None:
        """Close the client's connections and end its thread. A bound client has nothing to close."""
        if self._calls.background is not None:
            self._calls.background.close()

    # -- adding --------------------------------------------------------------------------------------------

    @overload
    def add_job(
        self,
        task: str,
        payload: object = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[Any]: ...

    @overload
    def add_job(
        self, spec: JobSpec, /, *, connection: BlockingConnection | None = None
    ) -> SyncJobHandle[Any]: ...

    @overload
    def add_job(
        self,
        task: TaskLike[None, R],
        payload: None = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[R]: ...

    @overload
    def add_job(
        self, task: SyncAddedTask[Arguments, R], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> SyncJobHandle[R]: ...

    def add_job(  # type: ignore[misc]
        self,
        task: Any,
        payload: Any = None,
        *,
        connection: BlockingConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncJobHandle[Any]:
        """Add one job, or change the one with the same key; returns it as the database stored it.

        The first argument is a task, a task identifier, or a whole `JobSpec`. The handle can wait for the
        result, if the job or its task has `keep`. If the job is unique and there is one already, that one is
        returned, and its `is_existing` is true.
        """
        result: Job = self._calls.run(connection, lambda utils: utils.add_job(task, payload, **options))
        return sync_handle_of(self, result)

    def add_jobs(
        self,
        specs: Iterable[JobSpec],
        *,
        return_jobs: bool = True,
        connection: BlockingConnection | None = None,
    ) -> list[Job]:
        """Add many jobs in one transaction; returns them in the order of the specs.

        With `return_jobs=False` the result is empty. A generator is read in your thread. With your own
        connection it is read while jobs are added, so that millions of specs need no more memory than a few
        thousand of them; otherwise it is read before the first job is added.
        """
        if connection is None and self._calls.bound is None:
            specs = read_here(specs)
        return self._calls.run(
            connection, lambda utils: utils.add_jobs(specs, return_jobs=return_jobs), is_long=True
        )

    # -- changing jobs -------------------------------------------------------------------------------------

    remove_job = blocking(ManagingClient[BlockingConnection].remove_job)

    @overload
    def complete_jobs(
        self, job_ids: Iterable[int], *, connection: BlockingConnection | None = None
    ) -> list[Job]: ...

    @overload
    def complete_jobs(
        self,
        *,
        filter: JobFilter,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    @like(WorkerUtils.complete_jobs, is_long="filter")
    def complete_jobs(self, *args: Any, **keywords: Any) -> Any:
        """Delete jobs as if they had run, by id or by filter; returns those deleted, or a report."""

    @overload
    def permanently_fail_jobs(
        self,
        job_ids: Iterable[int],
        reason: str | None = None,
        *,
        connection: BlockingConnection | None = None,
    ) -> list[Job]: ...

    @overload
    def permanently_fail_jobs(
        self,
        *,
        reason: str | None = None,
        filter: JobFilter,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    @like(WorkerUtils.permanently_fail_jobs, is_long="filter")
    def permanently_fail_jobs(self, *args: Any, **keywords: Any) -> Any:
        """Fail jobs permanently with this last error, by id or by filter; returns those failed, or a
        report.
        """

    @overload
    def reschedule_jobs(
        self,
        job_ids: Iterable[int],
        *,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: BlockingConnection | None = None,
    ) -> list[Job]: ...

    @overload
    def reschedule_jobs(
        self,
        *,
        filter: JobFilter,
        run_at: datetime | timedelta | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        max_attempts: int | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    @like(WorkerUtils.reschedule_jobs, is_long="filter")
    def reschedule_jobs(self, *args: Any, **keywords: Any) -> Any:
        """Change the given values (0 is a value) of jobs, by id or by filter."""

    @overload
    def cancel_jobs(
        self,
        job_ids: Iterable[int],
        *,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
    ) -> CancelReport: ...

    @overload
    def cancel_jobs(
        self,
        *,
        filter: JobFilter,
        reason: str | None = None,
        connection: BlockingConnection | None = None,
        **options: Unpack[BulkOptions],
    ) -> BulkReport: ...

    @like(WorkerUtils.cancel_jobs, is_long="filter")
    def cancel_jobs(self, *args: Any, **keywords: Any) -> Any:
        """Cancel jobs, by id or by filter: waiting jobs are deleted, workers are told to end running ones."""

    # -- pausing, workers, the schema and cleaning up ------------------------------------------------------

    pause = blocking(ManagingClient[BlockingConnection].pause)
    resume = blocking(ManagingClient[BlockingConnection].resume)
    set_limit = blocking(ManagingClient[BlockingConnection].set_limit)
    list_workers = blocking(ManagingClient[BlockingConnection].list_workers, is_long="all")
    sweep_stale_workers = blocking(ManagingClient[BlockingConnection].sweep_stale_workers, is_long=True)
    force_unlock_workers = blocking(ManagingClient[BlockingConnection].force_unlock_workers)
    cleanup = blocking(ManagingClient[BlockingConnection].cleanup, is_long=True)
    migrate = blocking(ManagingClient[BlockingConnection].migrate, is_long=True)

    @contextmanager
    def with_pg_client(self) -> Iterator[SyncConnection]:
        """A connection of the client's own: `with utils.with_pg_client() as connection`."""
        if self._calls.background is None:
            raise no_connection_to_lend()
        with lend(self._calls.background) as connection:
            yield connection

    # -- members by subject --------------------------------------------------------------------------------

    @cached_property
    def jobs(self) -> SyncJobsClient:
        """Reads, follows, cancels and retries jobs."""
        from .members.jobs import SyncJobsClient

        return SyncJobsClient(self._calls)

    @cached_property
    def queues(self) -> SyncQueuesClient:
        """Lists, pauses, resumes and widens named queues."""
        from .members.queues import SyncQueuesClient

        return SyncQueuesClient(self._calls)

    @cached_property
    def workers(self) -> SyncWorkersClient:
        """Lists, pauses, resumes and stops workers, and recovers the jobs of dead ones."""
        from .members.workers import SyncWorkersClient

        return SyncWorkersClient(self._calls)

    @cached_property
    def limits(self) -> SyncLimitsClient:
        """Lists limits and sets their bounds."""
        from .members.limits import SyncLimitsClient

        return SyncLimitsClient(self._calls)

    @cached_property
    def schedules(self) -> SyncSchedulesClient:
        """Lists, pauses and resumes recurring jobs, and runs them now."""
        from .members.schedules import SyncSchedulesClient

        return SyncSchedulesClient(self._calls)

    @cached_property
    def history(self) -> SyncHistoryClient:
        """Lists finished jobs and the errors of attempts."""
        from .members.history import SyncHistoryClient

        return SyncHistoryClient(self._calls)

    @cached_property
    def statistics(self) -> SyncStatisticsClient:
        """Counts jobs, and reads what workers did over time."""
        from .members.statistics import SyncStatisticsClient

        return SyncStatisticsClient(self._calls)

    @overload
    def wait_for(self, job: SyncJobHandle[R], *, timeout: float | timedelta | None = None) -> R: ...

    @overload
    def wait_for(
        self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None
    ) -> Any: ...

    def wait_for(self, job: Job | SyncJobReference | int, *, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job has ended and return what its task returned. Short for `jobs.wait_for`."""
        return self.jobs.wait_for(job, timeout=timeout)

"""Entry points of a program: open a client, add a single job, install the schema.

`ClientArguments` and `SyncClientArguments` are the arguments of `make_worker_utils` and
`make_sync_worker_utils` as type checkers and editors see them; the reference pages are made from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

from ..config.calls import AwaitableContext, call_hooks, call_options
from ..database.connections.connection import AnyPool, Pool
from ..database.connections.dsn import Dsn
from ..database.connections.open import open_pool, resolve_connection, target_of
from ..database.migrations import MigrationReport
from ..hooks import Events, Hooks, Plugin
from ..values.clock import Clock
from ..values.job import Job
from ..values.options import CLIENT_OPTIONS, ClientOptionValues, WorkerOptions
from ..values.spec import JobOptions, JobSpec, TaskLike
from .connections import ClientConnections
from .worker_utils import WorkerUtils

P = TypeVar("P")

OBJECTS = ("pg_pool", "events", "hooks", "plugins", "clock", "options")
"""Arguments of `make_worker_utils` that are not options; `ClientArguments` has their types."""


def make_worker_utils(**arguments: Unpack[ClientArguments]) -> AwaitableContext[WorkerUtils]:
    """Open a client: `async with make_worker_utils(…) as utils`, or `await` it and call `release` at the end.

    The database is `pg_pool`, else `connection_string`, else DATABASE_URL, else what the PG* variables say.
    What is not given comes from `options` if there is such an object, else from the environment and the
    configuration file. A pool of the caller stays open; one that was made here is closed.
    The schema is not installed unasked: call `utils.migrate()`, or run `graphile-worker migrate`.
    """
    chosen = call_options(arguments, objects=OBJECTS, options=CLIENT_OPTIONS)
    hooks = call_hooks(arguments)
    pg_pool = arguments.get("pg_pool")
    # The caller's pool wins over a configured connection string.
    database = chosen.connection_string if pg_pool is None else arguments.get("connection_string")

    async def open_() -> WorkerUtils:
        found = resolve_connection(database, pg_pool)
        owns_pool = isinstance(found, Dsn)
        # Before anything is opened: nothing would close it if a plugin cannot be installed.
        installed = with_plugins(hooks, arguments.get("plugins", ()), chosen, found)
        pool = (
            await open_pool(
                found, max_pool_size=chosen.max_pool_size, prepared_statements=chosen.prepared_statements
            )
            if isinstance(found, Dsn)
            else found
        )
        connections = ClientConnections(
            pool,
            schema=chosen.schema_name,
            owns_pool=owns_pool,
            use_local_time=chosen.use_local_time,
            hooks=installed,
            clock=arguments.get("clock"),
            history_retention=chosen.history.retention,
        )
        _clients.add(connections)
        return WorkerUtils(connections)

    async def close(utils: WorkerUtils) -> None:
        if not utils.is_released:
            await utils.release()

    return AwaitableContext(open_, close)


_clients: WeakSet[ClientConnections] = WeakSet()
_FORKED = (
    "this client was opened before the process was forked, and its connections belong to the parent; open "
    "one in the child, for example in post_fork of gunicorn"
)


def _release_all() -> None:
    """In a forked child: a call would wait for ever, for an answer that the parent reads."""
    for client in list(_clients):
        client.refuse(_FORKED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)


def with_plugins(
    hooks: Hooks, plugins: Iterable[Plugin | str], options: WorkerOptions, database: Pool | Dsn | None
) -> Hooks:
    """The hooks of one client, with the configured plugins and these installed."""
    plugins = (*options.plugins, *plugins)
    if not plugins:
        return hooks
    from ..config.plugins import load_plugins

    hooks = hooks.for_run()  # plugins must not accumulate in an object that serves several clients
    hooks._target = target_of(options.schema, database)
    for plugin in load_plugins(plugins, options.plugin_options):
        plugin.install(hooks)
    return hooks


class DatabaseArguments(TypedDict, total=False):
    """Where `add_job_adhoc` adds a job, and how."""

    connection_string: str | None
    pg_pool: AnyPool | None
    schema: str | None
    prepared_statements: bool | None
    use_local_time: bool | None


class AdhocArguments(DatabaseArguments, JobOptions, total=False):
    """The arguments of `add_job_adhoc` after the payload."""


@overload
async def add_job_adhoc(task: str, payload: object = None, **options: Unpack[AdhocArguments]) -> Job: ...


@overload
async def add_job_adhoc(spec: JobSpec, /, **options: Unpack[DatabaseArguments]) -> Job: ...


@overload
async def add_job_adhoc(
    task: TaskLike[None, Any], payload: None = None, **options: Unpack[AdhocArguments]
) -> Job: ...


@overload
async def add_job_adhoc(task: TaskLike[P, Any], payload: P, **options: Unpack[AdhocArguments]) -> Job: ...


async def add_job_adhoc(task: Any, payload: Any = None, **options: Unpack[AdhocArguments]) -> Job:
    """Add one job over a connection opened for it alone; for scripts, not for servers."""
    of_job: dict[str, Any] = {**options}
    database = {name: of_job.pop(name) for name in DatabaseArguments.__annotations__ if name in of_job}
    async with make_worker_utils(max_pool_size=1, **database) as utils:
        return await utils.add_job(task, payload, **of_job)


async def run_migrations(
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    prepared_statements: bool | None = None,
) -> MigrationReport:
    """Install the schema, or upgrade it to the revision that this package supports."""
    async with make_worker_utils(
        connection_string=connection_string,
        pg_pool=pg_pool,
        schema=schema,
        max_pool_size=1,
        prepared_statements=prepared_statements,
    ) as utils:
        return await utils.migrate()


class SharedArguments(ClientOptionValues, total=False):
    """The arguments of both."""

    events: Events | None
    """The `Events` object to report to."""
    hooks: Hooks | None
    """A `Hooks` object: events and interceptors together, in place of `events`."""
    plugins: Iterable[Plugin | str]
    """Objects with `install(hooks)`, called when the client is opened; they serve this client only.

    Names of plugins may be among them. Those of the configuration are used too.
    """
    options: WorkerOptions | None
    """A `WorkerOptions` object to start from, in place of the environment and the configuration file."""


class ClientArguments(SharedArguments, total=False):
    """The arguments of `make_worker_utils`."""

    pg_pool: AnyPool | None
    """Your own asyncpg pool in place of `connection_string`; it stays open."""
    clock: Clock | None
    """The source of time; for tests."""


class SyncClientArguments(SharedArguments, total=False):
    """The arguments of `make_sync_worker_utils`."""

    call_timeout: float | timedelta | None
    """Seconds that a call waits for the server, 30 by default; None: without limit.

    Calls that can take long by nature, such as `migrate` or a change in steps, have no limit.
    """

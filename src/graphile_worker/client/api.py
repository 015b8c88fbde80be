"""Entry points of a program: open a client, add a single job, install the schema."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack, overload

from ..awaitable import AwaitableContext
from ..clock import Clock, SystemClock
from ..config import combine
from ..db.connection import AnyPool
from ..db.dsn import Dsn
from ..db.open import open_pool, resolve_connection
from ..errors import ConfigError
from ..hooks import Events, Hooks
from ..job import Job
from ..migrate import MigrationReport
from ..options import WorkerOptions
from ..spec import JobOptions, JobSpec, TaskLike
from .worker_utils import WorkerUtils

P = TypeVar("P")


def make_worker_utils(
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    max_pool_size: int | None = None,
    prepared_statements: bool | None = None,
    use_local_time: bool | None = None,
    events: Events | None = None,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
    options: WorkerOptions | None = None,
) -> AwaitableContext[WorkerUtils]:
    """A client: `async with make_worker_utils(…) as utils`, or `await` it and call `release` at the end.

    The database is `pg_pool`, else `connection_string`, else DATABASE_URL, else the PG* variables.
    Other settings come from `options`, if given, else from the environment and the configuration file.
    The client closes its own pool, but not a `pg_pool`. It does not install the schema: call
    `utils.migrate()`, or run `graphile-worker migrate`.
    """
    if events is not None and hooks is not None:
        raise ConfigError("both events and hooks are set; give Hooks(events=...) alone")
    given = {
        "connection_string": connection_string,
        "schema": schema,
        "max_pool_size": max_pool_size,
        "prepared_statements": prepared_statements,
        "use_local_time": use_local_time,
    }
    chosen = combine(options, given)
    # A given pool takes precedence over a string from the environment.
    database = chosen.connection_string if pg_pool is None else connection_string

    async def open_() -> WorkerUtils:
        found = resolve_connection(database, pg_pool)
        owns_pool = isinstance(found, Dsn)
        pool = (
            await open_pool(
                found,
                max_pool_size=chosen.max_pool_size,
                prepared_statements=chosen.prepared_statements,
            )
            if isinstance(found, Dsn)
            else found
        )
        return WorkerUtils(
            pool,
            schema=chosen.schema_name,
            owns_pool=owns_pool,
            use_local_time=chosen.use_local_time,
            hooks=hooks if hooks is not None else Hooks(events=events),
            clock=clock if clock is not None else SystemClock(),
        )

    async def close(utils: WorkerUtils) -> None:
        if not utils.is_released:
            await utils.release()

    return AwaitableContext(open_, close)


@overload
async def add_job_adhoc(
    task: TaskLike[P],
    payload: P,
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    prepared_statements: bool | None = None,
    use_local_time: bool | None = None,
    **options: Unpack[JobOptions],
) -> Job: ...


@overload
async def add_job_adhoc(
    task: str | TaskLike[None],
    payload: object = None,
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    prepared_statements: bool | None = None,
    use_local_time: bool | None = None,
    **options: Unpack[JobOptions],
) -> Job: ...


@overload
async def add_job_adhoc(
    spec: JobSpec,
    /,
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    prepared_statements: bool | None = None,
    use_local_time: bool | None = None,
) -> Job: ...


async def add_job_adhoc(
    task: Any,
    payload: Any = None,
    *,
    connection_string: str | None = None,
    pg_pool: AnyPool | None = None,
    schema: str | None = None,
    prepared_statements: bool | None = None,
    use_local_time: bool | None = None,
    **options: Unpack[JobOptions],
) -> Job:
    """Add one job over a connection opened for it alone; for scripts, not for servers."""
    async with make_worker_utils(
        connection_string=connection_string,
        pg_pool=pg_pool,
        schema=schema,
        max_pool_size=1,
        prepared_statements=prepared_statements,
        use_local_time=use_local_time,
    ) as utils:
        return await utils.add_job(task, payload, **options)


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

"""Jobs in tests: `RunJobs` runs those in the queue, `AddedJobs` lists them.

`make_job` makes a Job without a database, for tests of functions that take one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from ..client import WorkerUtils
from ..config import combine
from ..config.calls import check_names
from ..cron.crontab import check_identifiers
from ..cron.load import collect_cron_items
from ..database.connections.connection import Pool, UserConnection
from ..database.connections.open import close_pool, open_pool
from ..database.sql import load
from ..database.statements.inspection import MAX_LIMIT, JobFilter, ready_tasks
from ..errors import ConfigError
from ..hooks import Events, Plugin
from ..runner import run_once
from ..runner.application import App, Lifespan, as_app, tasks_of
from ..runner.lifespan import entered
from ..tasks.decorator import declared_tasks
from ..tasks.loading.load import load_tasks
from ..tasks.registry import TaskList, TaskRegistry, build_registry
from ..values.clock import SystemClock
from ..values.job import Job
from ..values.option_groups import NodeOptions
from ..values.options import OPTION_NAMES, WorkerOptions
from ..values.payload import encode
from ..values.schema_name import SchemaName
from ..values.text import similar_names
from .fake_clock import ClockSchedule, FakeClock
from .results import JobsRun, Observed, UnknownTask, identifier_of

if TYPE_CHECKING:
    from ..cron import ParsedCronItem
    from ..values.flags import FlagSource
    from ..values.options import WorkerOptionValues

PATIENCE = 60.0
CLOSE_WITHIN = 5.0
CONNECTIONS = 10


class RunJobs:
    """`await run_jobs([send_email])`: runs every job that is ready, and returns how each attempt ended.

    With a clock, "now" is the clock's time: for the worker, its tasks, clients with the same clock, the
    back-off of failed jobs, and jobs that were added without a `run_at`.
    """

    def __init__(
        self,
        url: str,
        *,
        options: WorkerOptions | None = None,
        clock: FakeClock | None = None,
        app: App | None = None,
    ) -> None:
        options = options if options is not None else WorkerOptions()
        self._options = options.with_values(
            connection_string=url,
            concurrency=1,  # one by one, so that the order is deterministic
            max_pool_size=CONNECTIONS,
            handle_signals=False,
            recovery=False,
            use_local_time=clock is not None,
            local_queue=None,
            node=NodeOptions(),
            plugins=[],  # a test suite reports to nothing outside
            plugin_options={},
        )
        self._clock = clock
        self._app = app

    async def __call__(
        self,
        task_list: TaskList | None = None,
        *,
        app: App | Lifespan | str | None = None,
        until: datetime | timedelta | None = None,
        crontab: str | None = None,
        parsed_cron_items: Sequence[ParsedCronItem] | None = None,
        timeout: float = PATIENCE,
        events: Events | None = None,
        plugins: Iterable[Plugin | str] = (),
        extensions: Iterable[object] | Mapping[type[Any], object] = (),
        dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
        forbidden_flags: FlagSource = None,
        accepted_flags: FlagSource = None,
        flag_allowlist: FlagSource = None,
        logger: logging.Logger | None = None,
        **values: Unpack[WorkerOptionValues],
    ) -> JobsRun:
        """Run jobs until none is ready, named queues to their end.

        Jobs that tasks add run too. A failed job stays in the queue for its next attempt, and a job of an
        unknown task stays there too; `JobsRun.check` makes them fail the test.
        With `app`, its tasks, hooks and extensions are used too, and its lifespan is entered for this call.
        `dependency_overrides` maps functions that `Depends` names to those to call instead.
        Without `task_list` and `app`, the tasks come from the configured app or directory. `values` are
        options of a worker.
        With `until`, the clock moves from job to job up to that time, and the recurring jobs of `crontab` or
        `parsed_cron_items` are added at their minutes, as if a worker ran all the time.
        """
        check_names(values, OPTION_NAMES)
        options = combine(self._options, values)
        observed = Observed()
        chosen = as_app(app) if app is not None else self._app if task_list is None else None
        try:
            async with asyncio.timeout(timeout) as limit, _entered(chosen) as whole:
                tasks = _tasks(whole, task_list, options)
                schedule = self._schedule(until, tasks, crontab, parsed_cron_items, whole)
                run = partial(
                    run_once,
                    app=whole,
                    task_list=tasks,
                    options=options,
                    events=events,
                    plugins=(*plugins, observed),
                    extensions=extensions,
                    dependency_overrides=dependency_overrides,
                    forbidden_flags=forbidden_flags,
                    accepted_flags=accepted_flags,
                    flag_allowlist=flag_allowlist,
                    logger=logger,
                )
                unknown = await self._run(run, options, tasks, schedule, observed)
        except TimeoutError:
            if not limit.expired():
                raise
            running = ", ".join(observed.running) or "no job"
            raise TimeoutError(f"run_jobs took longer than {timeout:g} s; still running: {running}") from None
        return JobsRun(observed.runs, unknown)

    async def _run(
        self,
        run: Callable[..., Awaitable[None]],
        options: WorkerOptions,
        tasks: TaskRegistry,
        schedule: ClockSchedule | None,
        observed: Observed,
    ) -> list[UnknownTask]:
        schema = options.schema_name
        pool = await open_pool(options.connection_string or "", max_pool_size=CONNECTIONS)
        try:
            drain = _Drain(partial(run, pg_pool=pool), pool, schema, self._clock, observed)
            await drain()
            if schedule is not None:
                await schedule.pass_time(pool, schema, tuple(tasks), drain)
            return await self._unknown(pool, schema, tasks)
        finally:
            await close_pool(pool, within=CLOSE_WITHIN)

    async def _unknown(self, pool: Pool, schema: SchemaName, tasks: TaskRegistry) -> list[UnknownTask]:
        """Ready jobs of tasks that neither this run nor any `@task` of the process has."""
        async with pool.acquire() as connection:
            now = self._clock.now() if self._clock is not None else None
            ready = await ready_tasks(connection, schema, now=now)
        known = {*tasks, *(task.identifier for task in declared_tasks)}
        return [
            UnknownTask(name, task.jobs, similar_names(name, known))
            for task in ready
            if (name := task.task_identifier) not in known
        ]

    def _schedule(
        self,
        until: datetime | timedelta | None,
        tasks: TaskRegistry,
        crontab: str | None,
        parsed_cron_items: Sequence[ParsedCronItem] | None,
        app: App | None,
    ) -> ClockSchedule | None:
        if until is None:
            if crontab is not None or parsed_cron_items is not None:
                raise ConfigError("crontab: recurring jobs need time to pass; set it with until=")
            return None
        if self._clock is None:
            raise ConfigError("until: there is no clock to move; add the fixture graphile_worker_clock")
        items = collect_cron_items(crontab=crontab, parsed_cron_items=parsed_cron_items)
        if app is not None:
            items = [*app.cron_items, *items]
            check_identifiers(items)
        return ClockSchedule(self._clock, until, items, tasks)


def _entered(app: App | None) -> AbstractAsyncContextManager[App | None]:
    return nullcontext() if app is None else entered(app)


def _tasks(app: App | None, task_list: TaskList | None, options: WorkerOptions) -> TaskRegistry:
    if app is not None:
        return tasks_of(app, options, task_list=task_list)
    return build_registry(task_list) if task_list is not None else load_tasks(options.task_directory)


class AddedJobs:
    """`await added_jobs(send_email)`: the jobs in the queue that can still run, ordered by id."""

    def __init__(self, utils: WorkerUtils) -> None:
        self._utils = utils

    async def __call__(
        self,
        task: Any = None,
        *,
        queue: str | None = None,
        key: str | None = None,
        connection: UserConnection | None = None,
    ) -> list[Job]:
        """Ready and scheduled jobs; optionally only those of a task, of a named queue or with a job key.

        With `connection`, also those that its open transaction has added.
        """
        condition = JobFilter(
            task_identifier=None if task is None else identifier_of(task),
            queue_name=queue,
            job_key=key,
            limit=MAX_LIMIT,
        )
        found = await self._utils.jobs.list(condition, connection=connection)
        return [job for job in found if job.is_available]


class _WorkerClock(SystemClock):
    """Takes the time from a test's clock, but sleeps in real time: the server does not follow the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()


class _Drain:
    """Drains the queue with one worker after another, on one connection pool."""

    def __init__(
        self,
        run: Callable[..., Awaitable[None]],
        pool: Pool,
        schema: SchemaName,
        clock: FakeClock | None,
        observed: Observed,
    ) -> None:
        """`run` runs a worker by the clock that it gets, until no job is ready."""
        self._run = run
        self._pool = pool
        self._schema = schema
        self._clock = clock
        self._observed = observed
        self._follows_clock = False

    async def __call__(self) -> None:
        if self._clock is None:
            await self._run()
            return
        await self._adopt(self._clock)
        before = -1
        # Tasks may have added jobs with code that does not use the clock.
        while len(self._observed.runs) > before:
            before = len(self._observed.runs)
            await self._run(clock=_WorkerClock(self._clock))
            if not await self._adopt(self._clock):
                return

    async def _adopt(self, clock: FakeClock) -> int:
        """Make the database follow the clock; returns how many jobs became ready by that."""
        schema = self._schema
        async with self._pool.acquire() as connection:
            if not self._follows_clock:
                await connection.execute(load("testing/follow_clock", schema))
                self._follows_clock = True
            await connection.execute(load("testing/set_clock", schema), clock.now())
            return int(await connection.fetchval(load("testing/adopt_jobs", schema), clock.now()))


def make_job(
    task_identifier: str = "task",
    payload: Any = None,
    *,
    id: int = 1,
    priority: int = 0,
    run_at: datetime | None = None,
    attempts: int = 1,
    max_attempts: int = 25,
    last_error: str | None = None,
    created_at: datetime | None = None,
    updated_at: datetime | None = None,
    key: str | None = None,
    locked_at: datetime | None = None,
    locked_by: str | None = None,
    revision: int = 0,
    flags: Collection[str] | None = None,
    task_id: int = 1,
    job_queue_id: int | None = None,
) -> Job:
    """A job as a task would get it on its first attempt; times default to now."""
    now = datetime.now(UTC)
    return Job(
        id=id,
        raw_payload=encode(payload),
        priority=priority,
        raw_run_at=(run_at or now).timestamp(),
        attempts=attempts,
        max_attempts=max_attempts,
        last_error=last_error,
        raw_created_at=(created_at or now).timestamp(),
        raw_updated_at=(updated_at or created_at or now).timestamp(),
        key=key,
        raw_locked_at=None if locked_at is None else locked_at.timestamp(),
        revision=revision,
        raw_flags=None if flags is None else msgspec.json.encode(dict.fromkeys(flags, True)).decode(),
        task_id=task_id,
        job_queue_id=job_queue_id,
        locked_by=locked_by,
        task_identifier=task_identifier,
    )

"""A user's program. Type checkers must accept every line."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, assert_type

import asyncpg
import msgspec
import psycopg
import psycopg2.extensions
import sqlmodel.ext.asyncio.session
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from graphile_worker import (
    AbortSignal,
    App,
    CronItem,
    Job,
    JobHandle,
    JobHelpers,
    JobSpec,
    Runner,
    SyncJobHandle,
    SyncWorkerUtils,
    WorkerUtils,
    add_job_adhoc,
    get_current_helpers,
    get_current_job,
    make_sync_worker_utils,
    make_worker_utils,
    parse_cron_items,
    parse_crontab,
    run,
    run_migrations,
    run_once,
    task,
)
from graphile_worker.errors import GraphileWorkerError, JobNotAddedError
from graphile_worker.hooks import CallNext, Events, Hooks, KeptPart, LeaveLocked, Outcome, WorkerContext
from graphile_worker.hooks.events import JobFailed, JobSucceeded
from graphile_worker.options import (
    Clock,
    HistoryOptions,
    JobFilter,
    LocalQueueOptions,
    NodeOptions,
    RecoveryOptions,
    WorkerOptions,
)
from graphile_worker.results import (
    BulkReport,
    CancelReport,
    CleanupReport,
    FinishedState,
    JobDetails,
    JobRecord,
    JobReference,
    JobStatus,
    MigrationReport,
    ParsedCronItem,
    Progress,
    QueueSummary,
    Statistics,
    SweepReport,
    SyncConnection,
    WorkerList,
    WorkerSummary,
)
from graphile_worker.testing import AddedJobs, FakeClock, JobsRun, RunJobs

# -- payloads of every kind --------------------------------------------------------------------------------


@dataclass
class Letter:
    to: str


class Order(TypedDict):
    number: int


class Measure(msgspec.Struct):
    value: float


class Mailer:
    async def send(self, letter: Letter) -> None: ...


# -- tasks of every shape ----------------------------------------------------------------------------------


@task
async def send(payload: Letter, helpers: JobHelpers) -> None:
    mailer = helpers.extension(Mailer)
    assert_type(mailer, Mailer)
    await mailer.send(payload)
    assert_type(helpers.job, Job)
    assert_type(await helpers.get_queue_name(), str | None)
    helpers.logger.info("sent to %s", payload.to)
    await helpers.add_job(send, Letter("b@example.com"), job_key="k", connection=None)
    await helpers.add_job(sweep)
    await helpers.add_job("anything", {"a": 1}, priority=3)
    await helpers.add_job(JobSpec("other"), connection=None)
    await helpers.add_jobs([send.spec(payload, max_attempts=3), JobSpec("other"), JobSpec(send, payload)])
    assert_type(await helpers.abortable(double_later(2)), int)
    async with helpers.with_pg_client() as connection, connection.transaction():
        await helpers.add_job(bill, Order(number=1), connection=connection)


async def double_later(number: int) -> int:
    return 2 * number


@task("mail/receive", queue_name="mail", max_attempts=3, job_key_mode="replace")
def receive(payload: Letter) -> int:
    return 1


@task()
def sweep() -> None: ...


@task
def watch(helpers: JobHelpers) -> None:
    helpers.sync.add_job(receive, Letter("c@example.com"))
    helpers.sync.add_job(sweep, max_attempts=1)
    helpers.sync.add_job(JobSpec("other"))


@task
async def bill(payload: Order) -> None: ...


@task(flags=["slow"], priority=-5)
async def record(payload: Measure) -> None: ...


@task
def count(payload: dict[str, int]) -> None: ...


@task
def loose(payload: Any, helpers: JobHelpers) -> None: ...


partial = task("partial")(functools.partial(receive.function))


# -- adding jobs -------------------------------------------------------------------------------------------


async def add(utils: WorkerUtils, helpers: JobHelpers) -> None:
    job = await utils.add_job(send, Letter("a@example.com"), job_key="welcome:1")
    assert_type(job, JobHandle[None])
    assert_type(job.run_at, datetime)
    assert_type(job.locked_by, str | None)
    await utils.add_job(receive, Letter("a@example.com"), queue_name="letters", flags={"slow"})
    await utils.add_job(bill, Order(number=1), run_at=datetime.now(UTC))
    await utils.add_job(record, Measure(1.5), run_at=timedelta(minutes=5))
    await utils.add_job(count, {"a": 1})
    await utils.add_job(sweep)
    await utils.add_job(watch, job_key="w", job_key_mode="preserve_run_at")
    await utils.add_job(loose, {"anything": 1})
    await utils.add_job("send", {"to": "a"}, priority=3, run_at=timedelta(1))
    await utils.add_job("send")
    assert_type(await utils.add_job(JobSpec(send, Letter("a"))), JobHandle[Any])
    specs = [JobSpec(send, Letter("a")), JobSpec("send", 5, flags=["a"]), JobSpec(sweep)]
    assert_type(await utils.add_jobs([*specs, send.spec(Letter("a@example.com"))]), list[Job])
    await add_job_adhoc(send, Letter("a"), connection_string="postgres:///x", job_key="k")
    await send(Letter("a@example.com"), helpers)
    assert_type(receive(Letter("a@example.com")), int)
    assert_type(await utils.remove_job("welcome:1"), Job | None)
    assert_type(await utils.complete_jobs([1, 2]), list[Job])
    failed = JobFilter(state="failed", error="timeout")
    assert_type(await utils.complete_jobs(filter=failed, dry_run=True), BulkReport)
    assert_type(await utils.permanently_fail_jobs(filter=failed, reason="no"), BulkReport)
    assert_type(
        await utils.reschedule_jobs(filter=failed, attempts=0, on_step=lambda report, ids: print(ids)),
        BulkReport,
    )
    assert_type(await utils.cancel_jobs([1, 2]), CancelReport)
    assert_type(await utils.cancel_jobs(filter=failed, jobs_per_second=50), BulkReport)
    assert_type(await utils.jobs.cancel(12, reason="why"), CancelReport)
    assert_type(await utils.jobs.cancel(job_key="k"), CancelReport)
    assert_type(get_current_job(), Job)
    assert_type(get_current_helpers(), JobHelpers)


async def manage(utils: WorkerUtils) -> None:
    assert_type(await utils.migrate(), MigrationReport)
    assert_type(await utils.jobs.list(JobFilter(state="failed")), list[JobDetails])
    assert_type(await utils.statistics.jobs(), Statistics)
    assert_type(await utils.queues.list(), list[QueueSummary])
    assert_type(await utils.list_workers(), WorkerList)
    assert_type((await utils.list_workers(all=True))[0], WorkerSummary)
    assert_type(await utils.cleanup(), CleanupReport)
    assert_type(await utils.sweep_stale_workers(dry_run=True), SweepReport)
    assert_type(get_current_helpers().abort_signal, AbortSignal)
    clock: Clock = FakeClock(datetime.now(UTC))
    hooks = Hooks()
    hooks.on_recovery(lambda job: LeaveLocked() if job.attempts else None)
    await run_once(task_list=[send], clock=clock, hooks=hooks)


async def add_in_a_transaction_of_the_application() -> None:
    connection = await asyncpg.connect("postgres:///x")
    pool = await asyncpg.create_pool("postgres:///x")
    async with make_worker_utils(pg_pool=pool) as utils, connection.transaction():
        try:
            await utils.add_job(send, Letter("a"), connection=connection)
        except JobNotAddedError as error:
            assert_type(error.sqlstate, str | None)
        except GraphileWorkerError:
            logging.exception("not added")


async def add_through_another_library(
    utils: WorkerUtils,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    of_sqlmodel: sqlmodel.ext.asyncio.session.AsyncSession,
    of_sqlalchemy: AsyncConnection,
    of_psycopg: psycopg.AsyncConnection[tuple[object, ...]],
) -> None:
    await utils.add_job(send, Letter("a"), connection=session)
    await utils.add_jobs([JobSpec("other")], connection=scoped)
    await utils.remove_job("k", connection=of_sqlmodel)
    await utils.statistics.jobs(connection=of_sqlalchemy)
    await utils.migrate(connection=of_psycopg)
    assert_type(WorkerUtils.bound(session, schema="jobs"), WorkerUtils)
    await WorkerUtils.bound(of_psycopg).add_job(send, Letter("a"))
    await get_current_helpers().add_job(send, Letter("a"), connection=session)


def add_from_blocking_code(
    session: Session,
    scoped: scoped_session[Session],
    of_sqlmodel: sqlmodel.Session,
    of_sqlalchemy: Connection,
    of_psycopg: psycopg.Connection[tuple[object, ...]],
    of_psycopg2: psycopg2.extensions.connection,
) -> None:
    with make_sync_worker_utils(schema="jobs", call_timeout=timedelta(seconds=5)) as utils:
        assert_type(utils, SyncWorkerUtils)
        assert_type(utils.add_job(send, Letter("a")), SyncJobHandle[None])
        assert_type(utils.add_job("other", [1], job_key="k"), SyncJobHandle[Any])
        handle = utils.add_job(send, Letter("a"), keep=True)
        assert_type(handle, SyncJobHandle[None])
        assert_type(handle.status(), JobStatus)
        assert_type(utils.add_jobs([JobSpec(send, Letter("a"))], connection=session), list[Job])
        assert_type(utils.complete_jobs([1]), list[Job])
        assert_type(utils.complete_jobs(filter=JobFilter(), stop=threading.Event()), BulkReport)
        assert_type(utils.statistics.jobs(connection=scoped), Statistics)
        assert_type(utils.jobs.list(), list[JobDetails])
        assert_type(utils.queues.list(), list[QueueSummary])
        assert_type(utils.workers.list(), WorkerList)
        for progress in utils.jobs.watch(handle):
            assert_type(progress, Progress)
        with utils.with_pg_client() as connection, connection.transaction():
            assert_type(connection, SyncConnection)
    assert_type(SyncWorkerUtils.bound(of_sqlmodel), SyncWorkerUtils)
    SyncWorkerUtils.bound(of_sqlalchemy).migrate()
    SyncWorkerUtils.bound(of_psycopg).remove_job("k", connection=of_psycopg2)


# -- hooks -------------------------------------------------------------------------------------------------


class OnlyInstalled:
    def install(self, hooks: Hooks) -> None:
        @hooks.around_run
        async def around(job: Job, call_next: CallNext) -> Outcome:
            outcome = await call_next()
            assert_type(outcome.error, BaseException | None)
            return outcome


class Started(OnlyInstalled):
    async def start(self, worker: WorkerContext) -> None:
        assert_type(worker.events, Events)
        assert_type(worker.options, WorkerOptions)

    async def stop(self) -> None: ...


async def work_with_plugins() -> None:
    await run_once(task_list=[send], plugins=[OnlyInstalled(), Started()])


# -- running -----------------------------------------------------------------------------------------------


class Watcher:
    def install(self, hooks: Hooks) -> None: ...


async def work() -> None:
    await run_migrations(connection_string="postgres:///x")
    events = Events()

    @events.on(JobFailed)
    def complain(event: JobFailed) -> None:
        assert_type(event.job, Job)
        assert_type(event.error, BaseException)

    events.on(JobSucceeded, lambda event: print(event.duration))
    options = WorkerOptions(concurrency=5, local_queue=LocalQueueOptions(size=10))
    options = options.with_values(grace=timedelta(minutes=1), local_queue=None)
    assert_type(WorkerOptions(poll_interval=timedelta(seconds=1)).poll_interval, float)
    tasks: list[Callable[..., Any]] = [send, receive, sweep, watch, bill, record, count, loose, partial]
    async with run(
        options=options, task_list=[send, receive, double_later], events=events, extensions=[Mailer()]
    ) as runner:
        assert_type(runner, Runner)
        await runner.add_job("send", {"to": "a"})
        assert_type(await runner.add_job(send, Letter("a"), run_at=timedelta(minutes=5)), JobHandle[None])
        assert_type(await runner.add_jobs([JobSpec(send, Letter("a"))], return_jobs=False), list[Job])
        assert_type(runner.is_stopping, bool)
        await runner.wait()
    await run(
        connection_string="postgres:///x",
        schema=None,
        poll_interval=timedelta(seconds=1),
        grace=5,
        local_queue={"size": 10},
        forbidden_flags=lambda: ["slow"],
        plugins=[Watcher()],
    )
    pool = await asyncpg.create_pool("postgres:///x")
    await run_once(pg_pool=pool, task_list=[send], handle_signals=False)
    await run_once(pg_pool=await asyncpg.connect("postgres:///x"), task_list=[send])
    await make_worker_utils(schema="x", max_pool_size=1, events=events, plugins=[Watcher()])
    await run_once(task_list={"send": send, "other": lambda: None}, crontab="* * * * * send", concurrency=3)
    items: list[ParsedCronItem] = [
        *parse_crontab("0 4 * * * send"),
        *parse_cron_items([CronItem(task="send", match="0 4 * * *")]),
    ]
    utils = await make_worker_utils(options=options, hooks=Hooks())
    await asyncio.gather(utils.release(), run_once(task_list=tasks, parsed_cron_items=items))


# -- an app ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan() -> AsyncIterator[Mailer]:
    yield Mailer()


@asynccontextmanager
async def lifespan_of(app: App) -> AsyncIterator[list[object]]:
    yield [Mailer(), len(app.tasks)]


app = App(
    tasks=[send, loose],
    lifespan=lifespan,
    extensions={Mailer: Mailer()},
    cron_items=[CronItem(task=send, match="* * * * *")],
    forbidden_flags=["slow"],
    concurrency=3,
    grace=timedelta(seconds=5),
)


@app.task
async def post(payload: Letter, helpers: JobHelpers) -> int:
    return len(payload.to)


@app.task("posts/again", max_attempts=3)
def post_again(payload: Letter) -> None: ...


async def work_with_an_app(utils: WorkerUtils, run_jobs: RunJobs) -> None:
    await utils.add_job(post, Letter("a"))
    await utils.add_job(post_again, Letter("a"))
    assert_type(post_again(Letter("a")), None)
    await run_once(app=app)
    await run_once(app=lifespan)
    await run_once(app=App(tasks=[[send], {"loose": loose}, asyncio], lifespan=lifespan_of))
    async with run(app="shop.worker:app") as runner:
        await runner.wait()
    (await run_jobs(app=app, extensions=[Mailer()])).check()
    (await run_jobs(app.tasks)).check()


# -- time limits ------------------------------------------------------------------------------------------


@task(timeout=timedelta(minutes=1), on_timeout="wait")
async def limited(payload: Letter) -> None: ...


async def with_limits(utils: WorkerUtils) -> None:
    await utils.add_job(limited, Letter("a"), timeout=30)
    await utils.add_jobs([limited.spec(Letter("a"), timeout=timedelta(seconds=0.5))])
    run(job_timeout=60, timeout_grace=timedelta(seconds=1), max_leaked_tasks=0)


# -- results -----------------------------------------------------------------------------------------------


@task(keep=timedelta(days=1), keep_payload=True)
async def kept(payload: Letter) -> int:
    return len(payload.to)


@task(keep=False)
async def secret(payload: Letter) -> None: ...


async def with_results(utils: WorkerUtils, hooks: Hooks) -> None:
    handle = await utils.add_job(send, Letter("a"), keep=True, keep_payload=True)
    assert_type(handle, JobHandle[None])
    assert_type(await utils.add_job("loose", {"a": 1}, keep=timedelta(hours=1)), JobHandle[Any])
    assert_type(await utils.add_job(kept, Letter("a")), JobHandle[int])
    assert_type(utils.jobs.handle(handle), JobHandle[None])
    assert_type(utils.jobs.handle(1), JobReference)
    assert_type(await handle.status(), JobStatus)
    assert_type(await handle.cancel("why"), bool)
    assert_type(await utils.cancel_jobs([1], reason="why"), CancelReport)
    assert_type(await utils.cancel_jobs(filter=JobFilter(task_identifier="a"), reason="why"), BulkReport)
    assert_type(await utils.jobs.get_record(handle), JobRecord)
    assert_type((await utils.history.of_job(1))[0].state, FinishedState)
    await utils.wait_for(handle, timeout=timedelta(seconds=5))
    await utils.wait_for(1, timeout=0.5)
    run(history="all", recovery=False)
    run(history=HistoryOptions(mode="all", retention=timedelta(days=3)), node=NodeOptions())
    run(recovery=RecoveryOptions(grace=timedelta(minutes=1), delay=2, max_recoveries=3))

    @hooks.redact
    def hide(part: KeptPart, task_identifier: str, value: object) -> object:
        return None if part == "payload" else value


# -- testing -----------------------------------------------------------------------------------------------


async def test_send(
    run_jobs: RunJobs,
    added_jobs: AddedJobs,
    graphile_worker_clock: FakeClock,
    graphile_worker_utils: WorkerUtils,
) -> None:
    await graphile_worker_utils.add_job(send, Letter("a"))
    assert_type(await added_jobs(send), list[Job])
    await graphile_worker_clock.advance(timedelta(days=1))
    ran = await run_jobs([send], extensions=[Mailer()], until=timedelta(hours=1))
    assert_type(ran.check(), JobsRun)
    assert [job.payload for job in ran.of(send).succeeded] == [{"to": "a"}]
    assert_type(ran.failed[0].error, BaseException | None)


@task
async def injected(payload: Letter, *, mailer: threading.Lock) -> int:
    return 1


@task(max_attempts=2)
def injected_with_helpers(payload: Letter, helpers: JobHelpers, *, mailer: threading.Lock) -> int:
    return 1


async def use_injected(utils: WorkerUtils, letter: Letter) -> None:
    await utils.add_job(injected, letter)
    await utils.add_job(injected_with_helpers, letter)
    assert_type(await injected(letter, mailer=threading.Lock()), int)


@task
async def without_payload(*, mailer: Mailer) -> None: ...


@app.task(max_attempts=2)
def without_payload_either(*, mailer: Mailer, job: Job) -> int:
    return job.id


async def injected_tasks(utils: WorkerUtils) -> None:
    await utils.add_job(without_payload)
    await without_payload(mailer=Mailer())
    assert_type(without_payload_either(mailer=Mailer(), job=await utils.add_job(without_payload_either)), int)
    await run_once(app=app, dependency_overrides={lifespan_of: lambda: Mailer()})

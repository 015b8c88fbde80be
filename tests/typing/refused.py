"""Each line marked `# wrong` must be refused by a type checker, and no other line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import psycopg
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from graphile_worker import (
    App,
    Job,
    JobHandle,
    JobHelpers,
    JobSpec,
    Runner,
    SyncWorkerUtils,
    WorkerUtils,
    add_job_adhoc,
    make_sync_worker_utils,
    make_worker_utils,
    run,
    run_once,
    task,
)
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobFailed
from graphile_worker.options import LocalQueueOptions, WorkerOptions
from graphile_worker.testing import RunJobs


@dataclass
class Letter:
    to: str


class Order(TypedDict):
    number: int


class Mailer: ...


# -- tasks -------------------------------------------------------------------------------------------------


@task
async def send(payload: Letter, helpers: JobHelpers) -> None:
    print(helpers.extension(Mailer).sent)  # wrong
    await helpers.add_job(send, {"to": "a"})  # wrong
    await helpers.add_job(send, Letter("a"), max_attempt=3)  # wrong


@task(queue_name=5)  # wrong
def receive(payload: Letter) -> None: ...


@task(job_key_mode="sometimes")  # wrong
def later() -> None: ...


@task(retries=3)  # wrong
def again() -> None: ...


app = App()


@app.task(max_attempts=3)
def post(payload: Letter) -> None: ...


task("name")(5)  # wrong


@task
def plain(payload: Letter, helpers: JobHelpers) -> None:
    helpers.sync.add_job(send, "a@example.com")  # wrong


@task
async def bill(payload: Order) -> None: ...


@task
def count(payload: dict[str, int]) -> None: ...


@task
def sweep() -> None: ...


# -- adding jobs -------------------------------------------------------------------------------------------


async def add(utils: WorkerUtils, helpers: JobHelpers) -> None:
    await utils.add_job(send, {"to": "a@example.com"})  # wrong
    await utils.add_job(send)  # wrong
    await utils.add_job(send, 5)  # wrong
    await utils.add_job(bill, {"number": "one"})  # wrong
    await utils.add_job(bill, {"numbr": 1})  # wrong
    await utils.add_job(count, {"a": "b"})  # wrong
    await utils.add_job(Letter, Letter("a"))  # wrong
    await utils.add_job("send", jobkey="k")  # wrong
    await utils.add_job("send", job_key="k", job_key_mode="nope")  # wrong
    await utils.add_job("send", priority="high")  # wrong
    await utils.add_job("send", run_at=300)  # wrong
    await utils.add_jobs([send])  # wrong
    await utils.add_job(JobSpec("send"), priority=3)  # wrong
    await send({"to": "a@example.com"}, helpers)  # wrong
    plain(Letter("a"))  # wrong
    send.spec("a@example.com")  # wrong
    JobSpec(send, "a@example.com")  # wrong
    JobSpec(send, 5)  # wrong
    JobSpec("send", 5, queue=3)  # wrong
    await add_job_adhoc(send, 3)  # wrong
    job: Job = utils.add_job("send")  # wrong
    job.payload = {}  # wrong
    make_worker_utils(conection_string="postgres:///x")  # wrong
    make_worker_utils(concurrency=3)  # wrong
    make_worker_utils(schema=3)  # wrong
    make_worker_utils(plugins=[Mailer()])  # wrong
    async with make_worker_utils() as other:
        await other.add_job(count, {"a": "b"})  # wrong


# -- running -----------------------------------------------------------------------------------------------


async def work(run_jobs: RunJobs, event: JobFailed) -> None:
    WorkerOptions(concurency=3)  # wrong
    WorkerOptions(concurrency="three")  # wrong
    WorkerOptions().with_values(concurency=3)  # wrong
    WorkerOptions(local_queue=LocalQueueOptions(size="ten"))  # wrong
    runner: Runner = run(task_list=[send])  # wrong
    await runner.wait(5)  # wrong
    await runner.add_job(send, {"to": "a"})  # wrong
    await runner.add_job(send, Letter("a"), max_attempt=3)  # wrong
    await runner.add_jobs([send])  # wrong
    run(concurency=3)  # wrong
    run(concurrency="three")  # wrong
    run(poll_interval="often")  # wrong
    run(processes=4)  # wrong
    await run_once(crontabs="")  # wrong
    await run_once(grace=None, local_queue=5)  # wrong
    App(lifespan=3)  # wrong
    App(concurency=3)  # wrong
    await runner.add_job(post, {"to": "a"})  # wrong
    await run_jobs(send)  # wrong
    await run_jobs([send], until=5)  # wrong
    print(event.errors)  # wrong


# -- results -----------------------------------------------------------------------------------------------


@task
async def counted() -> int:
    return 1


@task(keep="yes")  # wrong
async def kept(payload: Letter) -> None: ...


async def with_results(utils: WorkerUtils, job: Job, handle: JobHandle, hooks: Hooks) -> None:
    await job.result()  # wrong
    await utils.add_job(send, {"to": "a"}, keep=True)  # wrong
    await utils.add_job(send, Letter("a"), keep="a day")  # wrong
    await utils.wait_for("1")  # wrong
    number: str = await (await utils.add_job(counted)).result()  # wrong
    print(number, (await utils.add_job(counted)).result().bit_length())  # wrong
    await utils.add_job(sweep, 5)  # wrong
    await handle.cancel(5)  # wrong
    await utils.cancel_jobs([1], reason=5)  # wrong
    await utils.jobs.cancel()  # wrong
    await utils.jobs.cancel(1, job_key="k")  # wrong
    hooks.redact(lambda value: value)  # wrong


# -- connections of other libraries ------------------------------------------------------------------------


async def through_what_is_no_connection(
    utils: WorkerUtils,
    engine: AsyncEngine,
    maker: async_sessionmaker[AsyncSession],
    session: AsyncSession,
    blocking: Session,
    of_psycopg: psycopg.Connection[tuple[object, ...]],
) -> None:
    await utils.add_job("a", connection=engine)  # wrong
    await utils.add_job("a", connection=maker)  # wrong
    await utils.add_job("a", connection=blocking)  # wrong
    await utils.add_job(send, {"to": "a"}, connection=session)  # wrong
    await utils.add_job(send, Letter("a"), connection=blocking)  # wrong
    WorkerUtils.bound(of_psycopg)  # wrong
    WorkerUtils.bound("postgres:///x")  # wrong


def from_blocking_code(
    utils: SyncWorkerUtils,
    session: AsyncSession,
    of_psycopg: psycopg.AsyncConnection[tuple[object, ...]],
    engine: Engine,
) -> None:
    utils.add_job(send, {"to": "a"})  # wrong
    utils.add_job(send, Letter("a"), max_attempt=3)  # wrong
    utils.add_job("a", connection=session)  # wrong
    utils.add_job("a", connection=engine)  # wrong
    utils.migrate(connection=session)  # wrong
    utils.pause(queue="a")  # wrong
    utils.queues.list(connection=session)  # wrong
    utils.queues.list(limit="three")  # wrong
    utils.workers.stop()  # wrong
    SyncWorkerUtils.bound(of_psycopg)  # wrong
    make_sync_worker_utils(pg_pool=None)  # wrong
    make_sync_worker_utils(call_timeout="5")  # wrong

"""Results that type checkers know; they must accept every line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, assert_type

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from starlette.applications import Starlette

from graphile_worker import (
    App,
    Job,
    JobHandle,
    JobHelpers,
    JobSpec,
    Runner,
    SyncJobHandle,
    SyncWorkerUtils,
    Task,
    WorkerUtils,
    task,
)
from graphile_worker.contrib.fastapi import GraphileWorkerApp
from graphile_worker.errors import JobFailedError
from graphile_worker.results import JobReference, JobStatus


@dataclass
class Letter:
    to: str


@dataclass
class Receipt:
    number: int


class Order(TypedDict):
    number: int


class Mailer: ...


app = App()


# -- tasks of every shape ----------------------------------------------------------------------------------


@task
async def send(payload: Letter, helpers: JobHelpers) -> Receipt:
    return Receipt(1)


@task(keep=timedelta(days=1))
async def post(payload: Letter) -> Receipt:
    return Receipt(1)


@task
def weigh(payload: Letter) -> float:
    return 1.5


@task("weigh/again", max_attempts=2)
def weigh_again(payload: Letter, helpers: JobHelpers, *, mailer: Mailer) -> float:
    return 1.5


@task
async def sweep() -> int:
    return 3


@task
def sweep_again() -> list[int]:
    return [3]


@task
async def look(helpers: JobHelpers) -> str:
    return helpers.job.task_identifier


@task
async def find(*, mailer: Mailer) -> str:
    return "a"


@task
async def post_later(payload: Letter | None = None) -> int:
    return 1


@app.task
async def bill(payload: Order, helpers: JobHelpers) -> dict[str, int]:
    return {"a": payload["number"]}


@app.task(max_attempts=2)
def bill_again(payload: Order) -> None: ...


P = TypeVar("P")
R = TypeVar("R")


async def add_and_wait(utils: WorkerUtils, wanted: Task[P, R], payload: P) -> R:
    return await (await utils.add_job(wanted, payload, keep=True)).result()


def take(wanted: Task[Letter, Receipt]) -> None: ...


# -- adding and waiting ------------------------------------------------------------------------------------


async def wait(
    utils: WorkerUtils, helpers: JobHelpers, runner: Runner, session: AsyncSession, job: Job, anything: Any
) -> None:
    handle = await utils.add_job(send, Letter("a"))
    assert_type(handle, JobHandle[Receipt])
    assert_type(await handle.result(timeout=5), Receipt)
    assert_type(await utils.wait_for(handle), Receipt)
    assert_type(await utils.wait_for(handle.id), Any)
    assert_type(await utils.wait_for(job), Any)
    assert_type(utils.jobs.handle(handle), JobHandle[Receipt])
    assert_type(utils.jobs.handle(job), JobHandle[Any])
    assert_type(utils.jobs.handle(1), JobReference)
    assert_type(await utils.jobs.handle(1).result(), Any)
    assert_type(await utils.wait_for(utils.jobs.handle(1)), Any)
    assert_type(await utils.add_job(send, Letter("a"), keep=True), JobHandle[Receipt])
    assert_type(await utils.add_job(send, Letter("a"), connection=session), JobHandle[Receipt])
    assert_type(await utils.add_job(send, payload=Letter("a")), JobHandle[Receipt])
    assert_type(await utils.add_job(post, Letter("a")), JobHandle[Receipt])
    assert_type(await utils.add_job(weigh, Letter("a")), JobHandle[float])
    assert_type(await utils.add_job(weigh_again, Letter("a")), JobHandle[float])
    assert_type(await utils.add_job(sweep), JobHandle[int])
    assert_type(await utils.add_job(sweep, max_attempts=3), JobHandle[int])
    assert_type(await utils.add_job(sweep_again), JobHandle[list[int]])
    assert_type(await utils.add_job(look), JobHandle[str])
    assert_type(await utils.add_job(look, {"anything": 1}), JobHandle[str])
    assert_type(await utils.add_job(find), JobHandle[str])
    assert_type(await utils.add_job(post_later), JobHandle[int])
    assert_type(await utils.add_job(post_later, Letter("a")), JobHandle[int])
    assert_type(await utils.add_job(send, anything), JobHandle[Receipt])
    assert_type(await utils.add_job(bill, {"number": 1}), JobHandle[dict[str, int]])
    assert_type(await utils.add_job(bill_again, {"number": 1}, connection=session), JobHandle[None])
    assert_type(await utils.add_job("send", {"to": "a"}), JobHandle[Any])
    assert_type(await utils.add_job(JobSpec(send, Letter("a"))), JobHandle[Any])
    assert_type(await add_and_wait(utils, send, Letter("a")), Receipt)
    assert_type(await helpers.add_job(send, Letter("a")), JobHandle[Receipt])
    assert_type(await helpers.wait_for(handle), Receipt)
    assert_type(await helpers.wait_for(1), Any)
    assert_type(await runner.add_job(send, Letter("a")), JobHandle[Receipt])
    take(send)
    take(post)


def wait_in_a_thread(utils: SyncWorkerUtils, helpers: JobHelpers, session: Session) -> None:
    handle = utils.add_job(send, Letter("a"), connection=session)
    assert_type(handle, SyncJobHandle[Receipt])
    assert_type(handle.result(timeout=timedelta(seconds=5)), Receipt)
    assert_type(utils.wait_for(handle), Receipt)
    assert_type(utils.wait_for(handle.id), Any)
    assert_type(utils.jobs.handle(handle), SyncJobHandle[Receipt])
    assert_type(utils.add_job(sweep), SyncJobHandle[int])
    assert_type(utils.add_job("send", 1), SyncJobHandle[Any])
    assert_type(utils.add_job(JobSpec("send")), SyncJobHandle[Any])
    added = helpers.sync.add_job(send, Letter("a"), keep=True)
    assert_type(added, SyncJobHandle[Receipt])
    assert_type(added.result(), Receipt)
    assert_type(helpers.sync.wait_for(added), Receipt)
    assert_type(helpers.sync.add_job(sweep), SyncJobHandle[int])
    assert_type(helpers.sync.add_job("send"), SyncJobHandle[Any])


def without_parameters(of_anything: JobHandle, wanted: Task) -> None:
    assert_type(of_anything, JobHandle[Any])
    assert_type(wanted, Task[Any, Any])


async def poll(utils: WorkerUtils, job_id: int) -> dict[str, Any]:
    status = await utils.jobs.get_status(job_id)
    assert_type(status, JobStatus)
    assert_type(status.error, str | None)
    return {"state": status.state, "result": status.result, "error": status.error}


def answer(error: JobFailedError) -> str:
    assert_type(error.message, str | None)
    return error.message or "it failed"


# -- lifespans ---------------------------------------------------------------------------------------------


worker_app = GraphileWorkerApp(worker=True, app=app)


@asynccontextmanager
async def of_fastapi(api: FastAPI) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def with_state(api: FastAPI) -> AsyncIterator[dict[str, object]]:
    yield {"a": 1}


@asynccontextmanager
async def of_starlette(api: Starlette) -> AsyncIterator[None]:
    yield


def of_anything(api: object) -> AbstractAsyncContextManager[None]:
    raise NotImplementedError


FastAPI(lifespan=worker_app.lifespan)
FastAPI(lifespan=worker_app.wrap(of_fastapi))
FastAPI(lifespan=worker_app.wrap(with_state))
FastAPI(lifespan=worker_app.wrap(of_anything))
Starlette(lifespan=worker_app.wrap(of_starlette))
Starlette(lifespan=worker_app.lifespan)

"""Tasks whose parameters come from a container of dishka."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from dishka import (
    AsyncContainer,
    FromComponent,
    Provider,
    Scope,
    make_async_container,
    make_container,
    provide,
)

from graphile_worker import App, Job, JobHelpers, run_once, task
from graphile_worker.contrib.dishka import FromDishka, GraphileWorkerProvider, inject, setup_dishka
from graphile_worker.errors import ConfigError
from support.working import Jobs

log: list[str] = []


class Engine:
    """Lives as long as the container."""


class Session:
    """Lives as long as a job."""

    def __init__(self, engine: Engine, job: Job, helpers: JobHelpers) -> None:
        assert helpers.job is job
        self.engine, self.job = engine, job


class Services(Provider):
    engine = provide(Engine, scope=Scope.APP)

    @provide(scope=Scope.REQUEST)
    def session(self, engine: Engine, job: Job, helpers: JobHelpers) -> Iterator[Session]:
        error = yield Session(engine, job, helpers)
        where = "main" if threading.current_thread() is threading.main_thread() else "thread"
        log.append(f"closed in {where}, {type(error).__name__}")

    @provide(scope=Scope.REQUEST)
    async def number(self, job: Job) -> float:
        return job.id / 2


class Plain(Provider):
    component = "plain"

    @provide(scope=Scope.APP)
    def name(self) -> str:
        return "of a component"


@asynccontextmanager
async def lifespan() -> AsyncIterator[AsyncContainer]:
    container = make_async_container(Services(), Plain(), GraphileWorkerProvider())
    yield container
    await container.close()
    log.append("container closed")


def some_app() -> tuple[App, list[Any]]:
    app = App(lifespan=lifespan, concurrency=1)
    got: list[Any] = []

    @app.task(max_attempts=1)
    @inject
    async def coroutine(
        payload: dict[str, int],
        session: FromDishka[Session],
        helpers: JobHelpers,
        *,
        same: FromDishka[Session],
        number: FromDishka[float],
        name: Annotated[str, FromComponent("plain")],
    ) -> None:
        got.append((payload["n"], session, session is same, session.job is helpers.job, number * 2, name))
        if payload["n"] == 2:
            raise ValueError("no")

    @app.task
    @inject
    def function(session: FromDishka[Session]) -> None:
        got.append(session.job.task_identifier)

    return app, got


async def test_each_job_has_a_scope(database_url: str, jobs: Jobs) -> None:
    log.clear()
    app, got = some_app()
    setup_dishka(make_container(Services(), Plain(), GraphileWorkerProvider()), app)
    ids = [await jobs.add("coroutine", {"n": number}) for number in (1, 2)]
    await jobs.add("function", {})
    await run_once(app=app, connection_string=database_url)
    (one, first, *rest), (two, second, *more), third = got
    assert (one, rest) == (1, [True, True, ids[0], "of a component"])
    assert (two, more) == (2, [True, True, ids[1], "of a component"])
    assert first is not second
    assert first.engine is second.engine
    assert third == "function"
    assert log == [
        "closed in main, NoneType",
        "closed in main, ValueError",
        "closed in thread, NoneType",
        "container closed",
    ]
    assert [job["id"] for job in await jobs.all()] == [ids[1]]


async def test_a_worker_without_the_container_does_not_start(database_url: str) -> None:
    app, _ = some_app()
    with pytest.raises(ConfigError, match="the task 'function' cannot run in this worker: no extension of "):
        await run_once(app=app, connection_string=database_url)


async def test_functions_stay_callable() -> None:
    @inject
    async def greet(name: FromDishka[str], *, loud: bool = False) -> str:
        return name.upper() if loud else name

    @inject
    def plain(payload: int) -> int:
        return payload

    assert await greet("ada", loud=True) == "ADA"
    assert plain(3) == 3
    with pytest.raises(TypeError, match="@inject goes below @task"):
        inject(task(plain))

"""A client and a worker for the lifetime of a Starlette application."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from contrib.serving import serving
from graphile_worker import App, JobSpec, WorkerUtils, task
from graphile_worker.contrib.starlette import GraphileWorkerApp, worker_app_of
from graphile_worker.errors import ConfigError
from graphile_worker.hooks import Hooks
from support.working import PATIENCE, Jobs, until


async def add(request: Request) -> JSONResponse:
    job = await worker_app_of(request.state).utils.add_job("welcome", {"id": 1})
    return JSONResponse({"id": job.id})


def application(lifespan: Any) -> Starlette:
    return Starlette(routes=[Route("/", add, methods=["POST"])], lifespan=lifespan)


async def test_a_request_adds_a_job(database_url: str, jobs: Jobs) -> None:
    worker_app = GraphileWorkerApp(connection_string=database_url)
    async with serving(application(worker_app.lifespan)) as http:
        job_id = (await http.post("/")).json()["id"]
        assert worker_app.runner is None
        assert await worker_app.check_ready() is None
    assert [job["id"] for job in await jobs.all()] == [job_id]
    with pytest.raises(RuntimeError, match="no GraphileWorkerApp is open"):
        _ = worker_app.utils
    assert await worker_app.check_ready() == "not started"


async def test_a_worker_runs_beside_the_application_and_finishes_its_job(database_url: str) -> None:
    started, finished = asyncio.Event(), asyncio.Event()

    @task
    async def welcome(payload: dict[str, int]) -> None:
        started.set()
        await asyncio.sleep(0)  # the application is ending meanwhile
        finished.set()

    worker_app = GraphileWorkerApp(worker=True, connection_string=database_url, task_list=[welcome])
    async with serving(application(worker_app.lifespan)) as http:
        assert worker_app.runner is not None
        await http.post("/")
        await asyncio.wait_for(started.wait(), PATIENCE)
    assert finished.is_set()
    assert worker_app.runner is None


async def test_options_of_a_worker_are_allowed_without_one(database_url: str) -> None:
    worker_app = GraphileWorkerApp(worker=False, connection_string=database_url, concurrency=3, task_list=[])
    async with worker_app.lifespan():
        assert isinstance(worker_app.utils, WorkerUtils)


async def test_the_client_takes_options_and_hooks_of_an_app(database_url: str, jobs: Jobs) -> None:
    hooks, seen = Hooks(), list[str]()

    @hooks.before_add
    def remember(spec: JobSpec) -> JobSpec:
        seen.append(spec.task_identifier)
        return spec

    app = App(connection_string=database_url, hooks=hooks)
    worker_app = GraphileWorkerApp(app=app)
    async with worker_app.lifespan():
        await worker_app.utils.add_job("welcome")
    assert seen == ["welcome"]
    assert len(await jobs.all()) == 1


async def test_wrap_joins_two_lifespans(database_url: str) -> None:
    order: list[str] = []
    worker_app = GraphileWorkerApp(connection_string=database_url)

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, int]]:
        order.append("open" if worker_app.utils.is_released is False else "closed")
        yield {"answer": 42}
        order.append("open" if worker_app.utils.is_released is False else "closed")

    async with worker_app.wrap(own)(None) as state:
        assert state is not None
        assert state["answer"] == 42
        assert state["graphile_worker"] is worker_app
    assert order == ["open", "open"]


async def test_a_client_in_a_transaction(database_url: str, connection: Any, jobs: Jobs) -> None:
    worker_app = GraphileWorkerApp(connection_string=database_url)
    async with worker_app.lifespan():
        transaction = connection.transaction()
        await transaction.start()
        bound = worker_app.bound(connection)
        assert isinstance(bound, WorkerUtils)
        await bound.add_job("welcome")
        await transaction.rollback()
    assert await jobs.all() == []


async def test_a_dead_worker_ends_the_process(
    database_url: str, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    received = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, received.set)
    try:
        worker_app = GraphileWorkerApp(worker=True, connection_string=database_url, task_list=[welcome])
        async with worker_app.lifespan():
            assert worker_app.runner is not None
            await worker_app.runner.kill("something killed it")
            await asyncio.wait_for(received.wait(), PATIENCE)
            assert await worker_app.check_ready() == "the worker has ended"
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert "the worker in this process has ended" in caplog.text


async def test_a_dead_worker_is_only_logged_if_wished(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_app = GraphileWorkerApp(
        worker=True, on_worker_failure="log", connection_string=database_url, task_list=[welcome]
    )
    async with worker_app.lifespan():
        assert worker_app.runner is not None
        await worker_app.runner.kill("something killed it")
        await until(lambda: "the worker in this process has ended" in caplog.text)
        assert await worker_app.check_ready() == "the worker has ended"
        await worker_app.utils.add_job("welcome")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_worker_failure": "restart"}, "expected 'exit' or 'log'"),
        ({"handle_signals": True}, "the server handles signals"),
        ({"concurency": 3}, "did you mean 'concurrency'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GraphileWorkerApp(**arguments)


@task
async def welcome(payload: Any) -> None:
    """Does nothing."""

"""FastAPI: the client as a dependency, also in the transaction of the request's session."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from contrib.serving import serving
from graphile_worker import SyncWorkerUtils, WorkerUtils
from graphile_worker.contrib.fastapi import (
    GraphileWorkerApp,
    Jobs,
    SyncJobs,
    get_worker_utils,
    jobs_in,
    router,
)
from support.working import Jobs as JobRows


async def test_endpoints_get_the_client(database_url: str, jobs: JobRows) -> None:
    worker_app = GraphileWorkerApp(connection_string=database_url)
    app = FastAPI(lifespan=worker_app.lifespan)
    app.include_router(router())

    @app.post("/async")
    async def add(jobs: Jobs) -> int:
        return (await jobs.add_job("welcome")).id

    @app.post("/blocking")
    def add_blocking(jobs: SyncJobs) -> int:
        return jobs.add_job("welcome").id

    async with serving(app) as http:
        ids = [(await http.post(path)).json() for path in ("/async", "/blocking")]
        assert (await http.get("/livez")).text == "ok"
        assert (await http.get("/readyz")).status_code == 200
        assert "/livez" not in (await http.get("/openapi.json")).text
    assert [job["id"] for job in await jobs.all()] == ids


@pytest.mark.parametrize("scope", ["function", "request"])
async def test_a_job_belongs_to_the_transaction_of_the_session(
    scope: Any, database_url: str, jobs: JobRows
) -> None:
    engine = create_async_engine(database_url.replace("postgresql:", "postgresql+asyncpg:"))
    blocking_engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    def get_blocking_session() -> Iterator[Session]:
        with Session(blocking_engine) as session, session.begin():
            yield session

    InSession = Annotated[WorkerUtils, jobs_in(get_session, scope=scope)]
    InBlockingSession = Annotated[SyncWorkerUtils, jobs_in(get_blocking_session, scope=scope)]
    worker_app = GraphileWorkerApp(connection_string=database_url)
    app = FastAPI(lifespan=worker_app.lifespan)

    @app.post("/async")
    async def add(
        jobs: InSession, session: Annotated[AsyncSession, Depends(get_session, scope=scope)], fail: bool
    ) -> None:
        assert session.in_transaction()
        await jobs.add_job("welcome", {"fail": fail})
        if fail:
            raise HTTPException(409)

    @app.post("/blocking")
    def add_blocking(jobs: InBlockingSession, fail: bool) -> None:
        jobs.add_job("welcome", {"fail": fail})
        if fail:
            raise HTTPException(409)

    async with serving(app) as http:
        answers = [
            (await http.post(path, params={"fail": fail})).status_code
            for path in ("/async", "/blocking")
            for fail in (True, False)
        ]
    await engine.dispose()
    blocking_engine.dispose()
    assert answers == [409, 200, 409, 200]
    assert [job["payload"] for job in await jobs.all()] == ['{"fail":false}', '{"fail":false}']


async def test_tests_can_replace_the_client_and_forget_the_lifespan() -> None:
    class Fake:
        async def add_job(self, name: str) -> None:
            added.append(name)

    added: list[str] = []
    app = FastAPI()

    @app.post("/")
    async def add(jobs: Jobs) -> None:
        await jobs.add_job("welcome")

    async with serving(app) as http:
        with pytest.raises(RuntimeError, match="with TestClient"):
            await http.post("/")
        app.dependency_overrides[get_worker_utils] = Fake
        await http.post("/")
    assert added == ["welcome"]

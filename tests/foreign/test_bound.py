"""`WorkerUtils.bound`: a client without a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from foreign.places import async_session
from graphile_worker import JobSpec, WorkerUtils, make_worker_utils, task
from graphile_worker.errors import ConfigError, GraphileWorkerError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobsAdded
from graphile_worker.options import WorkerOptions


async def test_it_opens_and_closes_nothing(shared_url: str, observer: Any) -> None:
    async with async_session(shared_url, "asyncpg") as place:
        utils = WorkerUtils.bound(place.given)
        await utils.add_job("one")
        await utils.release()
        await utils.release()
        assert not utils.is_released
        await utils.add_job("two")
        with pytest.raises(GraphileWorkerError, match="bound to your connection and has no other"):
            utils.with_pg_client()
        await place.commit()
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 2


async def test_it_serves_a_connection_of_asyncpg(observer: Any) -> None:
    transaction = observer.transaction()
    await transaction.start()
    await WorkerUtils.bound(observer).add_job("never")
    await WorkerUtils.bound(observer).add_jobs([JobSpec("never", job_key="k")])
    await transaction.rollback()
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 0
    await WorkerUtils.bound(observer).add_job("outside a transaction")
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 1


async def test_a_wrapper_with_the_methods_of_asyncpg_is_taken_as_it_is(observer: Any) -> None:
    class Traced:
        def __getattr__(self, name: str) -> Any:
            return getattr(observer, name)

    wrapper: Any = Traced()
    transaction = observer.transaction()
    await transaction.start()
    await WorkerUtils.bound(wrapper).add_job("never")
    await transaction.rollback()
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 0


async def test_hooks_and_tasks_work_as_in_any_client(shared_url: str, observer: Any) -> None:
    hooks = Hooks()
    added: list[JobsAdded] = []
    hooks.events.on(JobsAdded, added.append)

    @hooks.before_add
    def urgent(spec: JobSpec) -> JobSpec:
        return spec.replace(priority=-1)

    @task(max_attempts=3)
    async def welcome(payload: dict[str, int]) -> None: ...

    async with async_session(shared_url, "psycopg") as place:
        job = await WorkerUtils.bound(place.given, hooks=hooks).add_job(welcome, {"user": 1})
    assert (job.task_identifier, job.max_attempts, job.priority) == ("welcome", 3, -1)
    assert [event.jobs for event in added] == [(job,)]


async def test_options_come_from_the_call_the_environment_or_the_file(
    observer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def schema(**options: Any) -> str:
        return WorkerUtils.bound(observer, **options).schema.name

    monkeypatch.chdir(tmp_path)
    assert schema() == "graphile_worker"
    (tmp_path / "graphile_worker.toml").write_text('schema = "of_the_file"')
    assert schema() == "graphile_worker", "read once for a folder"
    other = tmp_path / "other"
    other.mkdir()
    (other / "graphile_worker.toml").write_text('schema = "of_the_file"')
    monkeypatch.chdir(other)
    assert schema() == "of_the_file"
    monkeypatch.setenv("GRAPHILE_WORKER_SCHEMA", "of_the_environment")
    assert schema() == "of_the_environment"
    assert schema(options=WorkerOptions(schema="of_the_options")) == "of_the_options"
    assert schema(schema="of_the_call", options=WorkerOptions(schema="of_the_options")) == "of_the_call"
    with pytest.raises(ConfigError, match="schema"):
        schema(schema="")


async def test_every_connection_argument_takes_a_session(shared_url: str, observer: Any) -> None:
    """Of a client with a pool of its own; its other calls are not in the session's transaction."""
    async with (
        make_worker_utils(connection_string=shared_url) as utils,
        async_session(shared_url, "asyncpg") as place,
    ):
        session: AsyncSession = place.given
        job = await utils.add_job("hello", connection=session)
        assert await utils.jobs.get(job.id) is None
        assert await utils.jobs.get(job.id, connection=session) is not None
        assert [each.id for each in await utils.jobs.list(connection=session)] == [job.id]
        assert (await utils.statistics.jobs(connection=session)).jobs.ready == 1
        assert not (await utils.migrate(connection=session)).changed
        await utils.complete_jobs([job.id], connection=session)
        await utils.cleanup(connection=session)

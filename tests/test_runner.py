"""Starting and stopping from a program: `run`, `run_once` and the Runner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from graphile_worker import JobHelpers, JobSpec, run, run_once
from graphile_worker.errors import (
    ConfigError,
    ConnectionConfigError,
    ConnectionFailedError,
    SchemaTooNewError,
    WorkerStoppedError,
)
from graphile_worker.hooks import Events, Hooks
from graphile_worker.hooks.events import JobStarted, JobSucceeded, PoolFatalError, PoolReleased
from graphile_worker.runner import build
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker import shutdown
from support.working import PATIENCE, Gate, Jobs, Workers, until, until_listening


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DATABASE_URL", "PGDATABASE", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def noop() -> None:
    pass


async def break_schema(jobs: Jobs) -> None:
    """Install a breaking migration, as a later version does."""
    await jobs.connection.execute("insert into graphile_worker.migrations (id, breaking) values (99, true)")
    await jobs.connection.execute(
        "select pg_notify('worker:migrate', '{\"migrationNumber\": 99, \"breaking\": true}')"
    )


class TestWhatIsNeeded:
    """RUN-1 to RUN-8: tasks and a database."""

    @pytest.mark.compat("RUN-1")
    async def test_without_tasks_the_folder_is_named(
        self, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="tasks"):
            await run_once(connection_string=database_url)

    @pytest.mark.compat("RUN-2")
    async def test_both_a_task_list_and_a_task_directory_are_refused(self, database_url: str) -> None:
        with pytest.raises(ConfigError, match="exactly one"):
            await run_once(connection_string=database_url, task_list=[noop], task_directory="tasks")

    @pytest.mark.compat("RUN-3")
    async def test_without_a_database_the_error_lists_every_way_to_set_one(
        self, no_environment: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConnectionConfigError) as caught:
            await run_once(task_list=[noop])
        for word in ("pg_pool", "connection_string", "DATABASE_URL", "PG*"):
            assert word in str(caught.value)

    @pytest.mark.compat("RUN-4")
    async def test_both_a_pool_and_a_connection_string_are_refused(self, database_url: str) -> None:
        async with asyncpg.create_pool(database_url) as pool:
            with pytest.raises(ConnectionConfigError, match="both"):
                await run_once(pg_pool=pool, connection_string=database_url, task_list=[noop])

    @pytest.mark.compat("RUN-5")
    async def test_database_url_is_enough(
        self, jobs: Jobs, database_url: str, no_environment: pytest.MonkeyPatch
    ) -> None:
        no_environment.setenv("DATABASE_URL", database_url)
        await jobs.add("noop")
        await run_once(task_list=[noop])
        assert await jobs.count() == 0

    @pytest.mark.compat("RUN-6")
    async def test_the_pg_variables_are_enough(
        self, jobs: Jobs, database_url: str, no_environment: pytest.MonkeyPatch
    ) -> None:
        parameters = jobs.connection._params, jobs.connection._addr
        no_environment.setenv("PGDATABASE", parameters[0].database)
        no_environment.setenv("PGUSER", parameters[0].user)
        if parameters[0].password:
            no_environment.setenv("PGPASSWORD", parameters[0].password)
        address = parameters[1]
        if isinstance(address, str):
            folder, _, port = address.rpartition("/.s.PGSQL.")
            no_environment.setenv("PGHOST", folder)
            no_environment.setenv("PGPORT", port)
        else:
            no_environment.setenv("PGHOST", address[0])
            no_environment.setenv("PGPORT", str(address[1]))
        await jobs.add("noop")
        await run_once(task_list=[noop])
        assert await jobs.count() == 0

    @pytest.mark.compat("RUN-7")
    async def test_a_connection_string_is_enough(
        self, jobs: Jobs, database_url: str, no_environment: pytest.MonkeyPatch
    ) -> None:
        await jobs.add("noop")
        await run_once(connection_string=database_url, task_list=[noop])
        assert await jobs.count() == 0

    @pytest.mark.compat("RUN-8")
    @pytest.mark.parametrize("size", [2, 3, 4, 10])
    async def test_a_pool_is_enough_and_stays_open(
        self, jobs: Jobs, database_url: str, no_environment: pytest.MonkeyPatch, size: int
    ) -> None:
        await jobs.add_many("query", 5)

        async def query(payload: Any, helpers: JobHelpers) -> None:
            assert (await helpers.query("select $1::integer as one", 1))[0]["one"] == 1

        async with asyncpg.create_pool(database_url, min_size=0, max_size=size) as pool:
            async with asyncio.timeout(PATIENCE):
                await run_once(pg_pool=pool, task_list=[query], concurrency=3)
            assert await pool.fetchval("select 1") == 1
            assert pool.get_idle_size() == pool.get_size()
        assert await jobs.count() == 0

    async def test_an_unreachable_server_is_an_error(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        missing = parts._replace(path="/there_is_no_such_database").geturl()
        with pytest.raises(ConnectionFailedError, match="there_is_no_such_database"):
            await run_once(connection_string=missing, task_list=[noop])

    async def test_an_unknown_option_is_refused(self, database_url: str) -> None:
        with pytest.raises(ConfigError, match="concurrency"):
            await run_once(connection_string=database_url, task_list=[noop], concurency=3)  # type: ignore[call-arg]

    async def test_a_fresh_database_gets_the_schema(self, empty_database_url: str) -> None:
        ran: list[int] = []

        async def first(payload: Any) -> None:
            ran.append(payload["n"])

        async with run(
            connection_string=empty_database_url, task_list=[first], handle_signals=False
        ) as runner:
            job = await runner.add_job("first", {"n": 1})
            assert job.task_identifier == "first"
            await until(lambda: ran == [1])

    async def test_a_runner_adds_jobs_as_a_client_does(self, jobs: Jobs, workers: Workers) -> None:
        runner = await workers.start([noop], forbidden_flags=["later"])
        job = await runner.add_job("noop", {"n": 1}, flags=["later"], priority=3)
        more = await runner.add_jobs([JobSpec("noop", flags=["later"]), JobSpec("noop", flags=["later"])])
        assert (job.priority, len(more)) == (3, 2)
        assert await runner.add_jobs([JobSpec("noop", flags=["later"])], return_jobs=False) == []
        async with jobs.connection.transaction():
            await runner.add_job("noop", flags=["later"], connection=jobs.connection)
            assert await jobs.count() == 5

    async def test_one_call_can_start_several_workers(
        self, workers: Workers, recorder: EventRecorder
    ) -> None:
        plugin = Installed()
        context = run(task_list=[noop], plugins=[plugin], events=recorder.events, **workers.options)
        async with context as first, context as second:
            assert first.pool_id != second.pool_id
        assert plugin.hooks[0] is not plugin.hooks[1]
        assert recorder.count(PoolReleased) == 2


class Installed:
    """A plugin that remembers where it was installed."""

    def __init__(self) -> None:
        self.hooks: list[Hooks] = []

    def install(self, hooks: Hooks) -> None:
        self.hooks.append(hooks)


class TestTheEnd:
    """Shutdown, and workers that die."""

    async def test_leaving_the_block_stops_gracefully(self, jobs: Jobs, workers: Workers) -> None:
        gate = Gate()

        async def step(payload: Any) -> None:
            await gate(payload)

        await jobs.add("step")
        async with run(task_list=[step], **workers.options) as runner:
            await gate.until_inside(1)
            asyncio.get_running_loop().call_later(0.05, gate.open)
        await runner.wait()
        assert await jobs.count() == 0

    async def test_an_error_inside_the_block_is_raised_after_the_stop(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder
    ) -> None:
        with pytest.raises(LookupError, match="mine"):
            async with run(task_list=[noop], events=recorder.events, **workers.options):
                raise LookupError("mine")
        assert recorder.count(PoolReleased) == 1

    async def test_a_runner_knows_whether_it_is_stopping_or_stopped(
        self, jobs: Jobs, workers: Workers
    ) -> None:
        gate = Gate()

        async def step(payload: Any) -> None:
            await gate(payload)

        await jobs.add("step")
        runner = await workers.start([step])
        await gate.until_inside(1)
        assert (runner.is_stopping, runner.is_stopped) == (False, False)
        stopping = asyncio.create_task(runner.stop())
        await until(lambda: runner.is_stopping)
        assert not runner.is_stopped  # a task is still running
        gate.open()
        async with asyncio.timeout(PATIENCE):
            await stopping
        assert (runner.is_stopping, runner.is_stopped) == (True, True)

    async def test_stopping_twice_is_an_error(self, workers: Workers) -> None:
        runner = await workers.start([noop])
        await workers.stop(runner)
        with pytest.raises(WorkerStoppedError, match="already"):
            await runner.stop()
        await runner.wait()

    async def test_every_waiter_returns_at_the_end(self, workers: Workers) -> None:
        runner = await workers.start([noop])
        waiting = [asyncio.create_task(runner.wait()) for _ in range(3)]
        await workers.stop(runner)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*waiting)

    async def test_cancelling_a_wait_does_not_stop_the_worker(self, jobs: Jobs, workers: Workers) -> None:
        runner = await workers.start([noop])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):  # timing: must run out
                await runner.wait()
        await jobs.add("noop")
        await jobs.until_gone()

    async def test_a_kill_cancels_running_tasks_and_returns_their_jobs(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder
    ) -> None:
        gate = Gate()

        async def step(payload: Any) -> None:
            await gate(payload)

        await jobs.add_many("step", 3, queue="serial")
        await jobs.add_many("step", 3)
        runner = await workers.start([step], concurrency=3, events=recorder.events)
        await gate.until_inside(3)
        async with asyncio.timeout(PATIENCE):
            await runner.kill()
        assert gate.inside == 0
        assert await jobs.locked() == 0
        assert {row["attempts"] for row in await jobs.all()} == {0}
        assert await jobs.count() == 6
        assert "pool:forcefulShutdown:complete" in recorder.names

    async def test_a_breaking_migration_ends_the_worker_with_its_error(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder
    ) -> None:
        runner = await workers.start([noop], events=recorder.events)
        await until_listening(recorder, jobs.connection)
        for payload in ('{"migrationNumber": 20, "breaking": true}', '{"migrationNumber": 99}', "nonsense"):
            await jobs.connection.execute("select pg_notify('worker:migrate', $1)", payload)
        await jobs.add("noop")
        await recorder.wait_for(JobSucceeded)
        await break_schema(jobs)
        with pytest.raises(SchemaTooNewError, match="99"):
            async with asyncio.timeout(PATIENCE):
                await runner.wait()
        assert recorder.count(PoolFatalError) == 1

    async def test_leaving_the_block_of_a_worker_that_died_raises_its_error(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder
    ) -> None:
        async def until_it_dies() -> None:
            async with run(task_list=[noop], events=recorder.events, **workers.options):
                await until_listening(recorder, jobs.connection)
                await break_schema(jobs)
                await recorder.wait_for(PoolReleased)

        with pytest.raises(SchemaTooNewError):
            await until_it_dies()

    @pytest.mark.compat("RUN-10")
    @pytest.mark.parametrize("heeds", [True, False])
    async def test_a_cancelled_once_run_returns_its_jobs(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, heeds: bool
    ) -> None:
        async def step(payload: Any, helpers: JobHelpers) -> None:
            if heeds:
                await helpers.abortable(asyncio.Event().wait())
            await asyncio.Event().wait()

        await jobs.add_many("step", 8)
        running = asyncio.create_task(
            workers.once(
                [step],
                concurrency=2,
                events=recorder.events,
                graceful_shutdown_abort_timeout=0.02,
                local_queue={"size": 5},
            )
        )
        await recorder.wait_for(JobStarted, count=2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        rows = await jobs.all()
        assert {row["attempts"] for row in rows} == {0}
        assert await jobs.locked() == 0
        assert sum(row["last_error"] is not None for row in rows) == 2

    async def test_a_task_that_keeps_a_connection_does_not_keep_the_worker_from_ending(
        self, jobs: Jobs, workers: Workers, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutdown, "FORCED_WAIT", 0.1)
        monkeypatch.setattr(build, "CLOSE_WITHIN", 0.2)
        stubborn, inside = asyncio.Event(), asyncio.Event()

        async def clings(payload: Any, helpers: JobHelpers) -> None:
            async with helpers.with_pg_client():
                inside.set()
                while not stubborn.is_set():
                    try:
                        await stubborn.wait()
                    except asyncio.CancelledError:
                        continue

        await jobs.add("clings")
        runner = await workers.start([clings], grace=0, events=recorder.events)
        async with asyncio.timeout(PATIENCE):
            await inside.wait()
        try:
            with pytest.raises(WorkerStoppedError, match="clings"):
                async with asyncio.timeout(PATIENCE):
                    await runner.stop()
        finally:
            stubborn.set()
        assert await jobs.locked() == 0


@pytest.mark.compat("MAIN-2")
async def test_a_task_may_log_for_debugging(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    async def talks(payload: Any, helpers: JobHelpers) -> None:
        helpers.logger.debug("a word about %s", helpers.job.id)

    await jobs.add("talks")
    await workers.once([talks])
    assert await jobs.count() == 0


async def test_observers_given_before_the_start_see_the_first_events(workers: Workers) -> None:
    events = Events()
    names: list[str] = []
    events.on("pool:create", lambda event: names.append(event.name))
    runner = await workers.start([noop], events=events)
    assert names == ["pool:create"]
    assert runner.events is events


async def test_two_workers_in_one_program_share_the_work(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload)

    runners = [await workers.start([step]) for _ in range(2)]
    assert runners[0].pool_id != runners[1].pool_id
    await jobs.add_many("step", 2)
    await gate.until_inside(2)
    assert {row["locked_by"] for row in await jobs.all()} == {runner.pool_id for runner in runners}
    gate.open()
    gate.open()
    await jobs.until_gone()

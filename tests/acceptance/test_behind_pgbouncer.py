"""Everything behind a pooler in transaction mode, with prepared statements switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import JobHelpers, JobSpec, make_worker_utils
from graphile_worker.hooks.events import PoolListenConnecting, PoolListenError
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.control.listener import ListenUnavailableError
from support.pgbouncer import pgbouncer_to
from support.worker_process import Start, recorded
from support.working import Jobs, Workers, until


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    with pgbouncer_to(database_url) as url:
        yield url


async def test_a_worker_is_stopped_in_the_middle_of_a_thousand_jobs(
    start: Start, pooled_url: str, jobs: Jobs, folder: Path
) -> None:
    added = set(await jobs.add_many("record_in_file", 500))
    for number in range(10):
        added.update(await jobs.add_many("record_in_file", 50, queue=f"queue {number}"))
    options = ("-j", 10, "--no-prepared-statements", "--poll-interval", 100)
    worker = start(*options, url=pooled_url, NO_LOG_SUCCESS="1", STOP_AFTER="300")
    assert worker.ended() == 143
    done = recorded(folder)
    left = {row["id"] for row in await jobs.all()}
    assert 0 < len(left) <= 700
    assert await jobs.locked() == 0
    assert added - left == set(done)
    assert len(done) == len(set(done))
    assert "ERROR" not in worker.output


async def test_many_workers_and_clients_use_few_server_connections_at_the_same_time(
    workers: Workers, jobs: Jobs, pooled_url: str
) -> None:
    """Statements that were not kept together would mix here: five server connections serve all of them."""
    ran: list[Any] = []

    async def work(payload: Any, helpers: JobHelpers) -> None:
        rows = await helpers.query("select $1::bigint as id", helpers.job.id)
        assert rows[0]["id"] == helpers.job.id
        if payload["n"] % 10 == 0:
            await helpers.add_job("work", {"n": 1})
        if payload["n"] % 3 == 0 and helpers.job.attempts == 1 and payload.get("again"):
            raise ValueError("once more")
        ran.append(helpers.job.id)

    options = {"connection_string": pooled_url, "prepared_statements": False, "poll_interval": 0.05}
    await jobs.add_many("work", 100)
    await jobs.add_many("work", 100, queue="named")
    runners = [await workers.start({"work": work}, concurrency=4, **options) for _ in range(3)]

    async def add(number: int) -> None:
        async with make_worker_utils(connection_string=pooled_url, prepared_statements=False) as utils:
            for _ in range(10):
                await utils.add_job("work", {"n": 1}, job_key=f"key {number}", queue_name=f"queue {number}")
                await utils.add_jobs([JobSpec("work", {"n": 1}), JobSpec("work", {"n": 1})])
                await utils.statistics.jobs(exact=True)

    await asyncio.gather(*(add(number) for number in range(4)))
    await jobs.until_gone()
    for runner in runners:
        await workers.stop(runner)
    assert len(ran) == len(set(ran)) >= 220 + 80
    assert await jobs.locked() == 0


async def test_the_whole_client_works(pooled_url: str, jobs: Jobs, empty_database_url: str) -> None:
    with pgbouncer_to(empty_database_url) as url:
        async with make_worker_utils(connection_string=url, prepared_statements=False) as utils:
            report = await utils.migrate()
            assert report.changed
    async with make_worker_utils(connection_string=pooled_url, prepared_statements=False) as utils:
        first = await utils.add_job("task", {"a": 1}, job_key="first", queue_name="named", flags=["f"])
        second, third = await utils.add_jobs([JobSpec("task"), JobSpec("task", {"b": 2})])
        assert (await utils.reschedule_jobs([second.id], priority=5))[0].priority == 5
        assert [job.id for job in await utils.permanently_fail_jobs([second.id], "no")] == [second.id]
        assert [job.id for job in await utils.complete_jobs([third.id])] == [third.id]
        assert len(await utils.jobs.list()) == 2
        removed = await utils.remove_job("first")
        assert removed is not None
        assert removed.id == first.id
        await utils.cleanup(["DELETE_PERMAFAILED_JOBS", "GC_JOB_QUEUES", "GC_TASK_IDENTIFIERS"])
        await utils.force_unlock_workers(["pool-1"])
        async with utils.with_pg_client() as connection, connection.transaction():
            await utils.add_job("task", connection=connection)
    assert await jobs.count() == 1


async def test_recurring_jobs_are_added(workers: Workers, jobs: Jobs, pooled_url: str) -> None:
    ran: list[Any] = []

    async def note(payload: Any) -> None:
        ran.append(payload["_cron"]["backfilled"])

    await jobs.connection.execute(
        "insert into graphile_worker._private_known_crontabs (identifier, known_since, last_execution) "
        "values ('note', now() - interval '1 day', now() - interval '30 minutes')"
    )
    runner = await workers.start(
        {"note": note},
        crontab="* * * * * note ?fill=1h",
        connection_string=pooled_url,
        prepared_statements=False,
        poll_interval=0.05,
    )
    await until(lambda: ran.count(True) >= 29)
    await workers.stop(runner)


async def test_that_listen_does_not_work_is_said_once_and_polling_goes_on(
    workers: Workers,
    jobs: Jobs,
    pooled_url: str,
    recorder: EventRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from graphile_worker.worker import pool
    from graphile_worker.worker.control import listener

    class Impatient(listener.Listener):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options, watch_interval=0.05)

        async def _echo_arrives(self) -> bool:
            # Only this wait is short: none arrives here, but on a busy machine a statement takes its time.
            usual, self._answer_within = self._answer_within, 0.2
            try:
                return await super()._echo_arrives()
            finally:
                self._answer_within = usual

    monkeypatch.setattr(pool, "Listener", Impatient)
    monkeypatch.setattr(listener, "unavailable_delay", lambda attempts: 0.01)
    ran: list[Any] = []

    async def note(payload: Any) -> None:
        ran.append(payload)

    runner = await workers.start(
        {"note": note},
        connection_string=pooled_url,
        prepared_statements=False,
        poll_interval=0.05,
        events=recorder.events,
    )
    error = await recorder.wait_for(PoolListenError)
    assert isinstance(error.error, ListenUnavailableError)
    assert "pooler in transaction mode" in str(error.error)
    for number in range(10):  # it is tried again meanwhile, about as often as this
        await jobs.add("note", number)
        await until(lambda number=number: len(ran) == number + 1)  # type: ignore[misc]
    await until(lambda: runner._running_pool._listener._unavailable >= 3)  # type: ignore[union-attr]
    assert recorder.count(PoolListenError) == recorder.count(PoolListenConnecting) == 1
    await workers.stop(runner)

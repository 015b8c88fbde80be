"""What a sweep does to the jobs of dead workers, and to whom it does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import make_worker_utils
from graphile_worker.client import WorkerUtils
from graphile_worker.client.connections import ClientConnections
from graphile_worker.hooks import FailJob, Hooks, LeaveLocked
from graphile_worker.hooks.events import JobRecovered, WorkerLost, WorkerRecovered
from graphile_worker.recovery.orphaned_jobs import purge_recoveries
from graphile_worker.recovery.sweep import Sweep
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.job import Job
from graphile_worker.values.retention import Retention, RetentionPolicy
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.trap import FAULTS
from support.working import SCHEMA, Jobs

RECOVERED = "Job recovered after worker interruption"


@pytest.fixture
async def hooked(database_url: str, recorder: EventRecorder) -> AsyncIterator[WorkerUtils]:
    """A client whose hooks tests may fill."""
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2) as pool:
        yield WorkerUtils(ClientConnections(pool, hooks=Hooks(events=recorder.events)))


async def test_jobs_of_a_dead_worker_are_as_before_it_took_them(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    """The effects that the Rust port's recovery has, so that statistics agree."""
    job_id = await jobs.add("work", queue="named")
    before = await jobs.one()
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id, attempts=3)
    report = await utils.sweep_stale_workers()
    after = await jobs.one()
    assert report.recovered[0].returned == [job_id]
    assert (after["attempts"], after["locked_by"], after["locked_at"]) == (2, None, None)
    assert after["last_error"] == RECOVERED
    assert after["run_at"] >= before["run_at"]
    assert after["updated_at"] > before["updated_at"]
    assert [row["locked_by"] for row in await jobs.queues()] == [None]
    assert await graveyard.workers() == {}


async def test_attempts_do_not_fall_below_zero_and_the_delay_is_heeded(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id, attempts=0)
    await utils.sweep_stale_workers(recovery_delay=timedelta(minutes=5))
    after = await jobs.one()
    assert after["attempts"] == 0
    assert await connection.fetchval("select $1 > now() + interval '4 minutes'", after["run_at"])


async def test_workers_are_told_once(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, database_url: str
) -> None:
    heard: list[str] = []
    ids = [await jobs.add("work") for _ in range(3)]
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", *ids)
    listener = await asyncpg.connect(database_url)
    try:
        await listener.add_listener("jobs:insert", lambda *arguments: heard.append(arguments[3]))
        await utils.sweep_stale_workers()
        await listener.execute("select 1")
        assert len(heard) == 1
        assert '"count" : 3' in heard[0]
    finally:
        await listener.close()


async def test_a_worker_counts_as_dead_only_after_its_grace(
    jobs: Jobs, hooked: WorkerUtils, graveyard: Graveyard, recorder: EventRecorder, connection: Any
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-lost", lost_for=None, grace=12.0)
    await graveyard.give("pool-lost", job_id)
    for _ in range(2):
        report = await hooked.sweep_stale_workers()
        assert report.recovered == []
        assert 0 < report.lost["pool-lost"] <= 12
    assert [event.lost_pool_id for event in recorder.of(WorkerLost)] == ["pool-lost"]
    assert (await jobs.one())["locked_by"] == "pool-lost"
    await connection.execute(
        f"update {SCHEMA}._private_py_workers set lost_at = lost_at - interval '12 seconds'"
    )
    assert (await hooked.sweep_stale_workers()).recovered[0].returned == [job_id]
    assert (await recorder.wait_for(WorkerRecovered)).returned == [job_id]
    assert (await recorder.wait_for(JobRecovered)).job.id == job_id


@pytest.mark.parametrize("liveness", ["lock", "heartbeat"])
async def test_one_that_is_back_is_not_lost_any_more(
    utils: WorkerUtils, graveyard: Graveyard, connection: Any, liveness: str
) -> None:
    await graveyard.bury("pool-back", lost_for=3, liveness=liveness)
    if liveness == "lock":
        await connection.fetch(f"select pg_advisory_lock(hashtextextended('{SCHEMA}/pool-back', 0))")
    else:
        await connection.execute(f"update {SCHEMA}._private_py_workers set last_seen_at = now()")
    report = await utils.sweep_stale_workers()
    assert report.lost == {}
    assert (await graveyard.only_worker())["lost_at"] is None


async def test_a_heartbeat_is_missed_after_two_intervals_and_one_from_the_future_is_none(
    utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    await graveyard.bury("pool-beating", lost_for=None, liveness="heartbeat")
    for age, is_lost in ((5, False), (9, True), (-9, True)):
        await connection.execute(
            f"update {SCHEMA}._private_py_workers set lost_at = null, last_seen_at = now() - $1::interval",
            timedelta(seconds=age),
        )
        assert ("pool-beating" in (await utils.sweep_stale_workers()).lost) is is_lost


async def test_a_pool_that_has_not_taken_its_lock_yet_is_alive_while_it_starts(
    utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    await graveyard.bury("pool-new", lost_for=None)
    for age, is_lost in ((5, False), (9, True)):
        await connection.execute(
            f"update {SCHEMA}._private_py_workers set backend_pid = null, lost_at = null, "
            "last_seen_at = now() - $1::interval",
            timedelta(seconds=age),
        )
        (listed,) = await utils.list_workers()
        assert listed.is_alive is not is_lost
        assert ("pool-new" in (await utils.sweep_stale_workers()).lost) is is_lost


async def test_a_moment_in_the_future_does_not_delay_it_for_ever(
    utils: WorkerUtils, graveyard: Graveyard
) -> None:
    """As after the server's clock was put back."""
    await graveyard.bury("pool-lost", lost_for=-3600)
    assert (await utils.sweep_stale_workers()).lost["pool-lost"] <= 12


async def test_pools_that_are_not_written_down_are_never_judged(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work", queue="named")
    await graveyard.give("pool-of-node", job_id)
    await graveyard.bury("pool-dead")
    await utils.sweep_stale_workers()
    assert (await jobs.one())["locked_by"] == "pool-of-node"
    assert [row["locked_by"] for row in await jobs.queues()] == ["pool-of-node"]


async def test_many_sweeps_at_once_recover_each_job_once(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    for number in range(10):
        ids = [await jobs.add("work") for _ in range(5)]
        await graveyard.bury(f"pool-{number}")
        await graveyard.give(f"pool-{number}", *ids, attempts=2)
    async with asyncpg.create_pool(database_url, min_size=6, max_size=6) as pool:
        clients = [WorkerUtils(ClientConnections(pool)) for _ in range(6)]
        reports = await asyncio.gather(
            *(client.sweep_stale_workers() for client in clients for _ in range(3))
        )
    returned = [job_id for report in reports for worker in report.recovered for job_id in worker.returned]
    assert len(returned) == len(set(returned)) == 50
    assert {row["attempts"] for row in await jobs.all()} == {1}
    assert set((await graveyard.recoveries()).values()) == {1}


async def test_while_somebody_else_sweeps_nothing_is_done(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    await graveyard.bury("pool-dead")
    async with connection.transaction():
        await connection.fetch("select pg_advisory_xact_lock(1196905043, 1398228304)")
        assert (await utils.sweep_stale_workers()).is_busy
    assert len((await utils.sweep_stale_workers()).recovered) == 1


async def test_a_worker_that_beats_in_the_last_moment_keeps_its_jobs(
    jobs: Jobs, hooked: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-late", liveness="heartbeat")
    await graveyard.give("pool-late", job_id)

    async def beat(job: Job) -> None:  # between the look and the deed
        await connection.execute(
            f"update {SCHEMA}._private_py_workers set last_seen_at = now(), lost_at = null"
        )

    hooked.hooks.on_recovery(beat)
    assert (await hooked.sweep_stale_workers()).recovered == []
    assert (await jobs.one())["locked_by"] == "pool-late"
    assert list(await graveyard.workers()) == ["pool-late"]


class TestInterceptors:
    async def test_they_decide_about_each_job(
        self, jobs: Jobs, hooked: WorkerUtils, graveyard: Graveyard, recorder: EventRecorder, connection: Any
    ) -> None:
        returned, failed, left = [await jobs.add(name, queue=name) for name in ("return", "fail", "leave")]
        await graveyard.bury("pool-dead")
        await graveyard.give("pool-dead", returned, failed, left, attempts=2)

        async def decide(job: Job) -> FailJob | LeaveLocked | None:
            if job.task_identifier == "fail":
                return FailJob("not twice")
            return LeaveLocked() if job.task_identifier == "leave" else None

        hooked.hooks.on_recovery(decide)
        (report,) = (await hooked.sweep_stale_workers()).recovered
        assert (report.returned, report.failed, report.left) == ([returned], [failed], [left])
        rows = {row["id"]: row for row in await jobs.all()}
        assert (rows[returned]["attempts"], rows[returned]["last_error"]) == (1, RECOVERED)
        assert (rows[failed]["attempts"], rows[failed]["last_error"]) == (2, "not twice")
        delay = rows[failed]["run_at"] - rows[failed]["updated_at"]
        assert delay.total_seconds() == pytest.approx(7.389, abs=0.01)
        assert (rows[left]["attempts"], rows[left]["locked_by"]) == (2, "pool-dead")
        queues = {row["queue_name"]: row["locked_by"] for row in await jobs.queues()}
        assert queues == {"return": None, "fail": None, "leave": "pool-dead"}
        # The job that was left is checked again, without an event.
        recorder.clear()
        assert (await hooked.sweep_stale_workers()).recovered == []
        assert recorder.of(WorkerRecovered) == []
        hooked.hooks.table.on_recovery.clear()
        (report,) = (await hooked.sweep_stale_workers()).recovered
        assert report.returned == [left]
        assert await graveyard.workers() == {}

    @pytest.mark.parametrize("fault", FAULTS)
    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
    async def test_one_that_fails_or_talks_nonsense_is_logged_and_the_job_given_back(
        self,
        jobs: Jobs,
        hooked: WorkerUtils,
        graveyard: Graveyard,
        caplog: pytest.LogCaptureFixture,
        fault: type[BaseException],
        is_async: bool,
    ) -> None:
        job_id = await jobs.add("work")
        await graveyard.bury("pool-dead")
        await graveyard.give("pool-dead", job_id)

        def broken(job: Job) -> None:
            raise fault("broken")

        async def broken_later(job: Job) -> None:
            await asyncio.sleep(0)
            raise fault("broken")

        hooked.hooks.on_recovery(broken_later if is_async else broken)
        hooked.hooks.on_recovery(lambda job: "nonsense")  # type: ignore[arg-type, return-value]
        assert (await hooked.sweep_stale_workers()).recovered[0].returned == [job_id]
        assert "on_recovery failed" in caplog.text
        assert "on_recovery returned 'nonsense'" in caplog.text


class TestTooOften:
    async def test_a_job_is_given_up_at_the_death_after_the_last_that_is_allowed(
        self, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
    ) -> None:
        job_id = await jobs.add("work")
        for death in range(1, 7):
            await graveyard.bury("pool-dead")
            await graveyard.give("pool-dead", job_id)
            await connection.execute(
                f"update {SCHEMA}._private_py_recoveries set started_by = 'pool-dead' where job_id = $1",
                job_id,
            )
            (worker,) = (await utils.sweep_stale_workers()).recovered
            assert worker.failed == ([job_id] if death == 6 else [])
        job = await jobs.one()
        assert job["attempts"] == job["max_attempts"]
        assert "died 6 times (max_recoveries is 5)" in job["last_error"]
        assert await graveyard.recoveries() == {}  # a manual retry starts from zero

    async def test_one_that_was_not_started_again_is_not_blamed(
        self, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
    ) -> None:
        job_id = await jobs.add("work")
        for _ in range(8):
            await graveyard.bury("pool-dead")
            await graveyard.give("pool-dead", job_id)
            assert (await utils.sweep_stale_workers()).recovered[0].returned == [job_id]
        assert await graveyard.recoveries() == {job_id: 1}

    async def test_recoveries_of_jobs_that_are_gone_are_forgotten(
        self, jobs: Jobs, graveyard: Graveyard, connection: Any
    ) -> None:
        here = await jobs.add("work")
        await connection.execute(
            f"insert into {SCHEMA}._private_py_recoveries values ($1, 1), (4711, 1)", here
        )
        assert await purge_recoveries(connection, SchemaName()) == 1
        assert list(await graveyard.recoveries()) == [here]


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.bury("pool-lost", lost_for=None)
    await graveyard.give("pool-dead", job_id)
    report = await utils.sweep_stale_workers(dry_run=True)
    assert report.is_dry_run
    assert [(worker.id, worker.returned) for worker in report.recovered] == [("pool-dead", [job_id])]
    assert list(report.lost) == ["pool-lost"]
    assert (await graveyard.workers())["pool-lost"]["lost_at"] is None
    assert (await jobs.one())["locked_by"] == "pool-dead"


async def test_the_default_isolation_does_not_matter(
    jobs: Jobs, graveyard: Graveyard, database_url: str
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id)
    connection = await asyncpg.connect(
        database_url, server_settings={"default_transaction_isolation": "serializable"}
    )

    async def run(work: Any) -> Any:
        return await work(connection)

    try:
        report = await Sweep(run, SchemaName(), Hooks())()
    finally:
        await connection.close()
    assert report.recovered[0].returned == [job_id]


async def test_a_job_that_cannot_be_changed_holds_up_no_other(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [await jobs.add("work", {"n": n}, queue=f"queue {n}") for n in range(8)]
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", *ids)
    await connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "if old.payload->>'n' = '5' then raise exception 'hands off'; end if; return new; end $$;"
        "create trigger refuse before update on graphile_worker._private_jobs "
        "for each row execute function refuse()"
    )
    report = await utils.sweep_stale_workers()
    bad = ids.pop(5)
    assert report.recovered[0].returned == ids
    assert [row["id"] for row in await jobs.all() if row["locked_by"] is not None] == [bad]
    assert all(queue["locked_by"] is None for queue in await jobs.queues())
    assert f"(job {bad}) is orphaned and stays locked" in caplog.text


async def test_an_interceptor_may_fail_a_job_with_any_text(
    jobs: Jobs, database_url: str, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id)
    hooks = Hooks()
    hooks.on_recovery(lambda job: FailJob("a\0b \ud83d"))
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        await utils.sweep_stale_workers()
    assert (await jobs.one())["last_error"] == r"a\x00b \ud83d"


async def test_ends_of_failed_jobs_are_kept_as_the_task_and_the_job_ask(
    jobs: Jobs, graveyard: Graveyard, connection: Any
) -> None:
    retention_policy = RetentionPolicy(
        "failed", default=Retention(3600.0), tasks={"secret": None, "long": Retention(86_400.0)}
    )
    ids = {
        name: await jobs.add(task, flags=flags, max_attempts=1)
        for name, task, flags in [
            ("default", "work", None),
            ("of the task", "long", None),
            ("none", "secret", None),
            ("by the flag", "secret", ["py:keep=7200"]),
        ]
    }
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", *ids.values())

    async def run(work: Any) -> Any:
        return await work(connection)

    hooks = Hooks()
    hooks.on_recovery(lambda job: FailJob("no more"))
    sweep = Sweep(run, SchemaName(), hooks, retention_policy=retention_policy, error_retention=3600.0)
    report = await sweep()
    assert sorted(report.recovered[0].failed) == sorted(ids.values())
    ends = await connection.fetch(
        f"select job_id, error from {SCHEMA}._private_py_history where state = 'failed'"
    )
    kept = {name for name, job_id in ids.items() if job_id in {row["job_id"] for row in ends}}
    assert kept == {"default", "of the task", "by the flag"}
    errors = await connection.fetch(f"select job_id from {SCHEMA}._private_py_errors")
    assert sorted(row["job_id"] for row in errors) == sorted(ids.values())


async def test_a_sweep_needs_no_history(jobs: Jobs, hooked: WorkerUtils, graveyard: Graveyard) -> None:
    job_id = await jobs.add("work", flags=["py:keep"], max_attempts=1)
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", job_id)
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_history")
    hooked.hooks.on_recovery(lambda job: FailJob("no more"))
    report = await hooked.sweep_stale_workers()
    assert report.recovered[0].failed == [job_id]

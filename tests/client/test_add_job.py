"""Adding one job."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils, add_job_adhoc, make_worker_utils
from graphile_worker.errors import JobRefusedError
from graphile_worker.hooks import Events, Hooks
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.values.spec import JobSpec
from support.working import until


async def all_jobs(connection: Any) -> list[Any]:
    return await connection.fetch(
        "select *, payload::text as text from graphile_worker._private_jobs order by id"
    )


@pytest.mark.compat("ADD-1")
async def test_add_job_adds_one_row(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", {"a": 1})

    [row] = await all_jobs(connection)
    assert row["id"] == job.id
    assert job.task_identifier == "job1"
    assert job.payload == {"a": 1}
    assert (job.priority, job.attempts, job.max_attempts, job.revision) == (0, 0, 25, 0)
    assert job.key is job.flags is job.job_queue_id is job.locked_at is job.last_error is None
    assert job.run_at == row["run_at"] == job.created_at == job.updated_at


@pytest.mark.compat("ADD-2")
async def test_the_same_key_four_times_makes_one_job_with_the_last_payload(
    utils: WorkerUtils, connection: Any
) -> None:
    for number in range(1, 5):
        job = await utils.add_job("job1", {"a": number}, job_key="UNIQUE")

    [row] = await all_jobs(connection)
    assert (row["text"], row["revision"]) == ('{"a":4}', 3)
    assert (job.payload, job.revision, job.key) == ({"a": 4}, 3, "UNIQUE")


@pytest.mark.compat("ADD-3")
async def test_the_three_job_key_modes(utils: WorkerUtils) -> None:
    times = [datetime(year, 1, 1, tzinfo=UTC) for year in (2200, 2201, 2202, 2203)]
    modes: list[Any] = ["replace", "preserve_run_at", "unsafe_dedupe", "replace"]
    seen = []
    for number, (mode, run_at) in enumerate(zip(modes, times, strict=True), start=1):
        job = await utils.add_job("job1", {"a": number}, run_at=run_at, job_key="UNIQUE", job_key_mode=mode)
        seen.append((job.revision, job.payload["a"], job.run_at.year))
    assert seen == [(0, 1, 2200), (1, 2, 2200), (2, 2, 2200), (3, 4, 2203)]


@pytest.mark.compat("ADD-4")
async def test_add_job_adhoc_adds_one_row_and_leaves_no_connection(
    database_url: str, connection: Any
) -> None:
    job = await add_job_adhoc("job1", {"a": 1}, connection_string=database_url, priority=-3, flags=["x"])

    assert len(await all_jobs(connection)) == 1
    assert (job.priority, job.flags) == (-3, {"x": True})
    gone = (
        "select count(*) = 0 from pg_stat_activity where application_name = 'graphile_worker' "
        "and datname = current_database()"
    )
    await until(lambda: connection.fetchval(gone))  # the server notices it with a delay


class FixedClock:
    """A clock that stands still."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


@pytest.mark.compat("ADD-5")
async def test_use_local_time_takes_the_time_of_this_machine(database_url: str) -> None:
    now = datetime(2021, 1, 1, 1, tzinfo=UTC)
    async with make_worker_utils(
        connection_string=database_url, use_local_time=True, clock=FixedClock(now)
    ) as utils:
        assert (await utils.add_job("job1")).run_at == now
        assert (await utils.add_job("job1", run_at=timedelta(hours=1))).run_at == now + timedelta(hours=1)
        [job, later] = await utils.add_jobs([JobSpec("job1"), JobSpec("job1", run_at=timedelta(hours=1))])
        assert (job.run_at, later.run_at) == (now, now + timedelta(hours=1))


async def test_a_timedelta_counts_from_the_clock_of_the_server(utils: WorkerUtils) -> None:
    job = await utils.add_job("job1", run_at=timedelta(minutes=5))
    assert job.run_at - job.created_at == timedelta(minutes=5)
    [later, past] = await utils.add_jobs(
        [JobSpec("job1", run_at=timedelta(days=400)), JobSpec("job1", run_at=timedelta(seconds=-1.5))]
    )
    assert later.run_at - later.created_at == timedelta(days=400)
    assert past.run_at - past.created_at == timedelta(seconds=-1.5)


async def test_every_option_reaches_the_database(utils: WorkerUtils, connection: Any) -> None:
    run_at = datetime(2040, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    job = await utils.add_job(
        "users/email/verify",
        ["payload", 1, None],
        queue_name="Q",
        run_at=run_at,
        max_attempts=7,
        job_key="K",
        priority=-5,
        flags=["b", "a", "b"],
    )
    row = await connection.fetchrow("select * from graphile_worker.jobs where id = $1", job.id)
    assert row["queue_name"] == "Q"
    assert row["task_identifier"] == "users/email/verify" == job.task_identifier
    assert row["run_at"] == run_at == job.run_at
    assert (row["max_attempts"], row["key"], row["priority"]) == (7, "K", -5)
    assert job.payload == ["payload", 1, None]
    assert job.flags == {"a": True, "b": True}


@pytest.mark.compat("FLG-1")
async def test_flags_become_an_object_of_trues(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", {"a": 1}, flags=["a", "b"])
    assert job.flags == {"a": True, "b": True}
    assert (
        await connection.fetchval("select flags::text from graphile_worker.jobs") == '{"a": true, "b": true}'
    )


async def test_zero_is_a_value_and_no_flags_are_none(utils: WorkerUtils) -> None:
    await utils.add_job("job1", job_key="K", priority=3)
    job = await utils.add_job("job1", job_key="K", priority=0, flags=[])
    assert (job.priority, job.flags) == (0, None)


async def test_array_payloads_of_one_key_are_merged_and_the_row_says_so(utils: WorkerUtils) -> None:
    await utils.add_job("job1", [1], job_key="K")
    job = await utils.add_job("job1", [2, {"b": 1}], job_key="K")
    assert job.payload == [1, 2, {"b": 1}]


@pytest.mark.compat("ONE-5")
async def test_adding_a_key_again_replaces_time_and_payload_of_the_same_job(utils: WorkerUtils) -> None:
    first = await utils.add_job("job3", {"a": "wrong"}, job_key="abc", run_at=timedelta(seconds=60))
    second = await utils.add_job("job3", {"a": "right"}, job_key="abc", run_at=datetime.now(UTC))
    assert second.id == first.id
    assert second.run_at < first.run_at
    assert second.payload == {"a": "right"}
    assert len(await utils.jobs.list()) == 1


@pytest.mark.compat("ONE-9")
async def test_adding_only_the_key_again_resets_everything_else(utils: WorkerUtils) -> None:
    first = await utils.add_job(
        "job1", {"a": 1}, job_key="abc", queue_name="queue1", run_at=timedelta(hours=1), max_attempts=10
    )
    second = await utils.add_job("job1", job_key="abc")
    assert second.id == first.id
    assert (second.max_attempts, second.payload, second.job_queue_id, second.attempts) == (25, {}, None, 0)

    later = datetime(2100, 1, 1, tzinfo=UTC)
    third = await utils.add_job(
        "job2", {"a": 2}, job_key="abc", queue_name="queue2", run_at=later, max_attempts=100
    )
    details = await utils.jobs.get(third.id)
    assert details is not None
    assert third.id == first.id
    assert (third.task_identifier, third.payload, third.run_at, third.max_attempts) == (
        "job2", {"a": 2}, later, 100,
    )  # fmt: skip
    assert details.queue_name == "queue2"


async def test_a_rollback_takes_the_jobs_with_it(utils: WorkerUtils, connection: Any) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await utils.add_job("job1", connection=connection)
    await utils.add_jobs([JobSpec("job1"), JobSpec("job2", job_key="K")], connection=connection)
    assert len(await utils.jobs.list(connection=connection)) == 3
    await transaction.rollback()
    assert await utils.jobs.list() == []


async def test_a_job_added_in_a_transaction_is_there_after_the_commit(
    utils: WorkerUtils, connection: Any
) -> None:
    async with connection.transaction():
        job = await utils.add_job("job1", connection=connection)
        assert await utils.jobs.get(job.id) is None
    assert await utils.jobs.get(job.id) is not None


async def test_a_connection_with_its_own_json_codec_is_no_trouble(
    utils: WorkerUtils, database_url: str
) -> None:
    import json

    connection = await asyncpg.connect(database_url)
    try:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        job = await utils.add_job("job1", {"a": 1}, flags=["x"], job_key="K", connection=connection)
        [other] = await utils.add_jobs([JobSpec("job1", {"a": 2}, flags=["y"])], connection=connection)
        assert (job.payload, job.flags) == ({"a": 1}, {"x": True})
        assert (other.payload, other.flags) == ({"a": 2}, {"y": True})
    finally:
        await connection.close()


async def test_our_statements_make_the_driver_look_no_types_up(database_url: str, connection: Any) -> None:
    """The driver asks the catalogue about types it does not know; none of our statements has such a type."""
    pool = await asyncpg.create_pool(database_url, min_size=0, max_size=1, reset=_no_reset)
    statements: list[str] = []
    try:
        async with pool.acquire() as watched:
            watched.add_query_logger(lambda record: statements.append(record.query))
        async with make_worker_utils(pg_pool=pool) as utils:
            utils._task_name_check = None  # it asks once per name and process, so perhaps in an earlier test
            await utils.add_job("job1", {"a": 1}, flags=["x"], run_at=timedelta(1))  # new task: both paths
            await utils.add_jobs([JobSpec("job1", {"a": 1}, queue_name="q", run_at=timedelta(1))])
            await utils.complete_jobs([1])
    finally:
        await pool.close()
    ours = {text for text in statements if text not in ("BEGIN;", "COMMIT;")}
    assert len(ours) == 5, statements


async def _no_reset(connection: Any) -> None:
    return None


async def test_interceptors_may_change_or_refuse_a_job(database_url: str) -> None:
    hooks = Hooks()

    @hooks.before_add
    async def to_queue(spec: JobSpec) -> JobSpec | None:
        if spec.task_identifier == "forbidden":
            raise JobRefusedError("not here")
        return spec.replace(queue_name="changed") if spec.queue_name is None else None

    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        job = await utils.add_job("job1")
        [other, kept] = await utils.add_jobs([JobSpec("job1"), JobSpec("job1", queue_name="own")])
        with pytest.raises(JobRefusedError, match="not here"):
            await utils.add_job("forbidden")
        names = [(await utils.jobs.get(each.id)).queue_name for each in (job, other, kept)]  # type: ignore[union-attr]
    assert names == ["changed", "changed", "own"]


async def test_a_task_object_gives_identifier_and_options(utils: WorkerUtils) -> None:
    from graphile_worker.tasks import task

    @task("send/email", queue_name="mail", max_attempts=3)
    async def send(payload: dict[str, str]) -> None:
        pass

    job = await utils.add_job(send, {"to": "a@example.com"}, max_attempts=9)
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert (job.task_identifier, details.queue_name, job.max_attempts) == ("send/email", "mail", 9)


async def test_many_callers_can_share_one_client(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=3) as utils:
        jobs = await asyncio.gather(*(utils.add_job("job1", number) for number in range(50)))
        assert sorted(job.payload for job in jobs) == list(range(50))
        assert utils.pool.get_size() <= 3


async def test_schema_names_with_quotes_capitals_and_spaces(empty_database_url: str) -> None:
    name = """Odd "schema" 'name'"""
    async with make_worker_utils(connection_string=empty_database_url, schema=name) as utils:
        await utils.migrate()
        job = await utils.add_job("job1", job_key="K")
        added = await utils.add_jobs([JobSpec("job2"), JobSpec("job1", job_key="K2", flags=["x"])])
        assert [each.task_identifier for each in added] == ["job2", "job1"]
        assert [each.id for each in await utils.complete_jobs([job.id])] == [job.id]
        assert (await utils.statistics.jobs()).jobs.ready == 2
        assert utils.schema == SchemaName(name)


async def test_without_prepared_statements_everything_works_too(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, prepared_statements=False) as utils:
        await utils.add_job("job1", {"a": 1})
        await utils.add_jobs([JobSpec("job1"), JobSpec("job1", job_key="K")])
        async with utils.with_pg_client() as connection:
            assert await connection.fetchval("select count(*) from pg_prepared_statements") == 0


async def test_plugins_serve_one_client_only(database_url: str) -> None:
    seen: list[str] = []

    class Watcher:
        def install(self, hooks: Hooks) -> None:
            hooks.before_add(lambda spec: seen.append(spec.task_identifier))

    hooks = Hooks()
    async with make_worker_utils(connection_string=database_url, hooks=hooks, plugins=[Watcher()]) as utils:
        await utils.add_job("first")
    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        await utils.add_job("second")
    assert seen == ["first"]


async def test_a_plugin_that_cannot_be_installed_leaves_no_connection(
    database_url: str, connection: Any
) -> None:
    class Broken:
        def install(self, hooks: Hooks) -> None:
            raise RuntimeError("not here")

    with pytest.raises(RuntimeError, match="not here"):
        await make_worker_utils(connection_string=database_url, plugins=[Broken()])
    sessions = (
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and application_name = 'graphile_worker'"
    )
    assert await connection.fetchval(sessions) == 0


async def test_a_client_reports_to_the_events_it_is_given(database_url: str) -> None:
    events = Events()
    async with make_worker_utils(connection_string=database_url, events=events) as utils:
        assert utils.hooks.events is events

"""What others create in `public` is never called with the rights of a worker or a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec, make_worker_utils
from graphile_worker.client import WorkerUtils
from graphile_worker.config import resolve_settings
from graphile_worker.diagnostics.examine import examine
from graphile_worker.migrate import migrate
from graphile_worker.queries.inspection import JOB_ORDERS, JOB_STATES, JobFilter
from graphile_worker.queries.maintenance import CLEANUP_TASKS
from graphile_worker.recovery.lease import Lease
from graphile_worker.schema_name import SchemaName
from graphile_worker.sql import load
from graphile_worker.worker.session import Sessions
from migrations.earlier import go_back
from queries.hostile import MOST_ARGUMENTS, ParseTrees, calls_in, hostile_objects, invade, paths, text_of
from recovery.dead import QUICK, Graveyard
from support.server import DatabaseServer
from support.working import Workers, until

CANNOT_BE_PREPARED = ("alter", "call", "create", "drop", "lock", "truncate", "vacuum")
ADDING_LOCK = 7231964501297834
RUST_TABLE = (
    "create table graphile_worker._private_workers "
    "(id text primary key, last_heartbeat_at timestamptz, metadata jsonb)"
)


@pytest.fixture(scope="module")
def invaded_template(server: DatabaseServer) -> Iterator[str]:
    name = server.create_template()
    server.run(server.url(name), invade)
    yield name
    server.drop_database(name)


@pytest.fixture
def database_url(create_database: Callable[..., str], invaded_template: str) -> str:
    """In place of the usual one: a database in which others wait for our calls."""
    return create_database(template=invaded_template)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Any]:
    """The test's own, which keeps out of their way."""
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "pg_catalog"})
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def watched(database_url: str) -> AsyncIterator[tuple[Any, ParseTrees]]:
    """A connection with the usual search_path, and what the server makes of its statements."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("set search_path = pg_catalog")
        await connection.execute(RUST_TABLE)
        trees = ParseTrees(connection, await hostile_objects(connection))
        await connection.execute('set search_path = "$user", public')
        await trees.watch(connection)
        yield connection, trees
    finally:
        await connection.close(timeout=60)


async def hostile_calls(connection: Any) -> bool:
    return await connection.fetchval("select is_called from public.hostile_calls")


# -- each statement ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "called"),
    [
        ("select exp(1)", "exp(integer)"),
        ("select exp(1::double precision)", None),
        ("select from unnest(array['x'])", "unnest(text[])"),
        ("select from pg_catalog.unnest(array['x'])", None),
        ("select text 'x' || 1", "||(text,integer)"),
        ("select 2 * interval '1 second'", "*(integer,interval)"),
    ],
)
async def test_inexact_calls_are_seen(
    watched: tuple[Any, ParseTrees], statement: str, called: str | None
) -> None:
    """Without this the tests below could not fail."""
    connection, trees = watched
    await connection.execute(f"prepare tried as {statement}")
    found = await trees.called()
    assert found == [] if called is None else called in found


async def test_no_statement_calls_anything_outside_of_pg_catalog(watched: tuple[Any, ParseTrees]) -> None:
    connection, trees = watched
    found: dict[str, list[str]] = {}
    tried = 0
    for path in paths():
        statement = load(path, SchemaName()).rstrip().rstrip(";")
        if path.startswith(("migrations/", "own_objects/")) or text_of(path).split()[0] in CANNOT_BE_PREPARED:
            continue
        try:
            await connection.execute(f"prepare tried as {statement}")
            await connection.execute("deallocate tried")
        except asyncpg.PostgresError as error:  # a hostile function has another kind of result
            found[path] = [str(error)]
        if called := await trees.called():
            found[path] = called
        tried += 1
    assert found == {}
    assert tried > 80


async def test_calls_with_many_arguments_are_qualified(connection: Any) -> None:
    """There is no end to the combinations of types that somebody could have a function for."""
    names = set(await connection.fetchval("select array_agg(distinct proname::text) from pg_proc"))
    names.remove("unnest")  # of several arrays it is always that of pg_catalog
    found = {
        (path, call.name)
        for path in paths()
        for call in calls_in(text_of(path))
        if call.arguments > MOST_ARGUMENTS or call.has_names
        if call.name in names and not call.is_qualified
    }
    assert found == set()


async def test_no_function_of_the_schema_calls_anything_outside_of_pg_catalog(
    watched: tuple[Any, ParseTrees],
) -> None:
    """The bodies in PL/pgSQL are looked at as they are run, so every road through them is taken."""
    connection, trees = watched
    schema = SchemaName().quoted
    specs = f"array[row('a', '[1]', 'q', null, 3, 'k', 1, array['f'])]::{schema}.job_spec[]"
    plain = f"array[row('b', '[1]', 'q', null, 3, null, 1, array['f'])]::{schema}.job_spec[]"
    for statement in (
        "add_job('a', '[1]', job_key => 'k', queue_name => 'q', flags => array['f', 'g'])",
        "add_job('a', '[2]', job_key => 'k', job_key_mode => 'preserve_run_at')",
        "add_job('a', '[3]', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
        "add_job('a')",
        f"add_jobs({specs})",
        f"add_jobs({plain})",
        f"add_jobs({specs}, true)",
        "reschedule_jobs(array[1::bigint], now(), 1, 1, 2)",
        "permanently_fail_jobs(array[1::bigint], 'x')",
        f"add_jobs({specs})",
        "complete_jobs(array[2::bigint])",
        "force_unlock_workers(array['x'])",
        "remove_job('k')",
    ):
        await connection.execute(f"select {schema}.{statement}")
    with pytest.raises(asyncpg.PostgresError, match="job_key_mode is 'x'"):
        await connection.execute(f"select {schema}.add_job('a', job_key => 'k', job_key_mode => 'x')")
    await connection.execute(f"select {schema}.add_job('a', job_key => 'k2')")
    await connection.execute(f"update {schema}._private_jobs set locked_at = now()")
    await connection.execute(f"select {schema}.remove_job('k2')")
    await connection.execute(
        f"call {schema}._private_py_add_plain_job"
        "('a', '[]', now(), 1, 1, array['x'], null, null, null, null, null)"
    )
    assert await trees.called() == []


# -- everything ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["a pool of its own", "a pool of the caller"])
async def place(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[dict[str, Any]]:
    """Where a worker or a client finds the database."""
    if request.param == "a pool of its own":
        yield {"connection_string": database_url}
        return
    async with asyncpg.create_pool(database_url, min_size=0, max_size=10) as pool:
        yield {"connection_string": None, "pg_pool": pool}


async def test_a_worker_and_its_jobs_call_nothing_outside_of_pg_catalog(
    place: dict[str, Any], connection: Any, workers: Workers
) -> None:
    """Fetch, complete, fail, queues, recurring jobs, and the jobs of a worker that died."""
    graveyard = Graveyard(connection)
    done: list[Any] = []

    async def work(payload: Any) -> None:
        done.append(payload)
        if payload == {"fail": True}:
            raise ValueError("no")

    await graveyard.bury("pool-dead")
    async with make_worker_utils(**place) as utils:
        orphans = [await utils.add_job("work", {"orphan": n}, queue_name=f"orphan {n}") for n in range(2)]
        await graveyard.give("pool-dead", *(job.id for job in orphans))
        runner = await workers.start(
            {"work": work},
            crontab="* * * * * work ?fill=2m {cron: true}",
            forbidden_flags=["never"],
            concurrency=4,
            **QUICK,
            **place,
        )
        await utils.add_job("work", {"fail": True}, max_attempts=1)
        await utils.add_jobs([JobSpec("work", {"n": n}, queue_name=f"q{n % 3}") for n in range(20)])
        await utils.add_jobs([JobSpec("work", {"n": n}) for n in range(300)])
        await until(lambda: len(done) >= 323)
        await until(lambda: all({"orphan": n} in done for n in range(2)))
        await runner.stop()
    assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") <= 2
    assert not await hostile_calls(connection)


async def test_a_client_calls_nothing_outside_of_pg_catalog(
    place: dict[str, Any], database_url: str, connection: Any
) -> None:
    async with make_worker_utils(**place) as utils:
        await _add_in_all_ways(utils, connection)
        await _manage(utils, connection)
        await _look(utils)
        await examine(resolve_settings({"connection_string": database_url}, {}))
    assert not await hostile_calls(connection)


async def _add_in_all_ways(utils: WorkerUtils, connection: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await connection.execute("select pg_advisory_lock($1)", ADDING_LOCK)  # then a procedure adds
    for _ in range(3):
        await utils.add_job("a", {"x": 1}, flags=["f"], run_at=later)
    await connection.execute("select pg_advisory_unlock($1)", ADDING_LOCK)
    for mode in ("replace", "preserve_run_at", "unsafe_dedupe"):
        for _ in range(2):
            await utils.add_job("a", [1], job_key="k", job_key_mode=mode, queue_name="q")
    await utils.add_jobs([JobSpec("a", n, job_key=f"k{n}", flags=["f"], run_at=later) for n in range(3)])
    await utils.add_jobs([JobSpec("a", n, queue_name="q", priority=n) for n in range(3)])
    await utils.add_jobs([JobSpec("a", n) for n in range(3)])


async def _manage(utils: WorkerUtils, connection: Any) -> None:
    ids = [job.id for job in await utils.list_jobs()]
    await Graveyard(connection).bury("pool-dead")
    await Graveyard(connection).give("pool-dead", ids[-1])
    await utils.reschedule_jobs(ids[:3], run_at=timedelta(hours=1), attempts=0)
    await utils.permanently_fail_jobs(ids[:2], "because")
    await utils.complete_jobs(ids[2:3])
    await utils.remove_job("k")
    await utils.cancel_jobs(ids[3:4])
    every: dict[str, Any] = {"filter": JobFilter(**_EVERY_CONDITION)}
    failed: dict[str, Any] = {"filter": JobFilter(state="failed", failed_until=datetime.now(UTC))}
    for chosen in (every, failed, {"filter": JobFilter(task_identifier="a"), "batch_size": 2}):
        await utils.reschedule_jobs(**chosen, dry_run=True)
        await utils.reschedule_jobs(**chosen, run_at=timedelta(hours=1), attempts=0)
        await utils.permanently_fail_jobs(**chosen, reason="because")
    for chosen in (every, failed):
        await utils.complete_jobs(**chosen)
        await utils.cancel_jobs(**chosen)
    await utils.sweep_stale_workers(dry_run=True)
    await utils.sweep_stale_workers()
    await utils.force_unlock_workers(["pool-x"])
    await utils.cleanup(CLEANUP_TASKS, task_identifiers_to_keep=["a"])


_EVERY_CONDITION: dict[str, Any] = {
    "task_identifier": "a",
    "queue_name": "q",
    "job_key": "k",
    "locked_by": "pool",
    "flag": "f",
    "error": "no",
    "created_since": datetime(2020, 1, 1, tzinfo=UTC),
    "created_until": datetime(2030, 1, 1, tzinfo=UTC),
    "failed_since": datetime(2020, 1, 1, tzinfo=UTC),
    "failed_until": datetime(2030, 1, 1, tzinfo=UTC),
    "id_from": 1,
    "id_to": 1000,
    "priority_from": -5,
    "priority_to": 5,
    "attempts_from": 0,
    "attempts_to": 9,
    "run_since": datetime(2020, 1, 1, tzinfo=UTC),
    "run_until": datetime(2030, 1, 1, tzinfo=UTC),
    "key_prefix": "k",
    "text": "no",
    "redacted_error": "no",
    "redacted_text": "no",
    "payload": {"a.b": "1", "c": 2},
}


async def _look(utils: WorkerUtils) -> None:
    await utils.list_jobs(JobFilter(**_EVERY_CONDITION))
    for state in (None, *JOB_STATES):
        for order in JOB_ORDERS:
            if order != "run_order" or state in (None, "ready", "scheduled"):
                await utils.list_jobs(
                    JobFilter(state=state, order=order, task_identifier="a", queue_name="q")
                )
    await utils.statistics()
    await utils.list_queues()
    await utils.list_workers()


async def test_migrating_calls_nothing_outside_of_pg_catalog(database_url: str, connection: Any) -> None:
    other = await asyncpg.connect(database_url)
    try:
        await migrate(other, SchemaName("fresh"))
        await migrate(other, SchemaName("fresh"))
        await go_back(connection, 16)
        await migrate(other, SchemaName())
    finally:
        await other.close(timeout=60)
    assert not await hostile_calls(connection)


# -- search_path ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["public, pg_catalog", '"$user", public', ""])
async def test_the_sessions_of_a_worker_look_into_pg_catalog_first(database_url: str, path: str) -> None:
    """Whatever the database says; and a connection of the caller's pool goes back as it came."""
    admin = await asyncpg.connect(database_url, server_settings={"search_path": "pg_catalog"})
    name = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {name} set search_path = {path or chr(39) * 2}")
    await admin.close(timeout=60)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        before = await pool.fetchval("show search_path")
        sessions = Sessions(pool, SchemaName(), "pool-x", Lease(lambda: None), prepared_statements=True)
        session = sessions.open()
        try:
            found = await session.run(
                lambda connection: connection.fetchval("select pg_catalog.current_schemas(true)::text[]")
            )
        finally:
            await sessions.close()
        assert found == ["pg_catalog", *(["public"] if "public" in path else [])]
        assert await pool.fetchval("show search_path") == before

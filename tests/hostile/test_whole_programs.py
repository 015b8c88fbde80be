"""Whole programs among hostile functions, on a server that logs what it makes of each statement.

Here are the statements that are put together as a program runs, and those that a driver sends by itself. Each
file is looked at by test_exact_calls.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest
from scripts.lively.addresses import addresses, is_readable, subject_of

from conftest import SERVER_SETTINGS
from graphile_worker import (
    JobHelpers,
    JobSpec,
    Lane,
    Limit,
    SyncWorkerUtils,
    Unique,
    WorkerUtils,
    make_sync_worker_utils,
    make_worker_utils,
    task,
)
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.table import ROUTES
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.migrations import migrate
from graphile_worker.database.statements.cleanup import CLEANUP_TASKS
from graphile_worker.database.statements.inspection import JOB_ORDERS, JOB_STATES, JobFilter
from graphile_worker.errors import WorkerNotFoundError
from graphile_worker.history.records import HistoryFilter
from graphile_worker.testing.database import DatabaseServer
from graphile_worker.testing.results import EventRecorder
from graphile_worker.testing.scratch import scratch_folder
from graphile_worker.values.schema_name import SchemaName
from hostile.exact_calls import Reader
from hostile.invaders import invade
from hostile.server_log import SETTINGS, messages
from migrations.earlier import go_back
from recovery.dead import QUICK, Graveyard
from support.command_line import clean_environment
from support.held_load import Holding, never_slow
from support.server import chosen_programs
from support.working import Jobs, Workers, until, workers_of

ADDING_LOCK = 7231964501297834
OURSELVES = "the test"
"""The application name of connections whose statements do not count."""


class Log:
    """What the server has logged about one database."""

    def __init__(self, file: Path, database: str, connection: Any) -> None:
        self._file = file
        self._database = database
        self._connection = connection
        self._start = file.stat().st_size

    async def wrong(self) -> dict[str, list[str]]:
        """Calls that others have taken over, or could take over, by statement."""
        if await self._connection.fetchval("select is_called from public.hostile_calls"):
            return {"a hostile function": ["was called"]}
        reader = await Reader.of(self._connection)
        with self._file.open("rb") as file:
            file.seek(self._start)
            log = file.read().decode(errors="replace")
        found: dict[str, list[str]] = {}
        seen = set()
        for message in messages(log):
            if message.database != self._database or message.application == OURSELVES:
                continue
            tree, context = message.tree, message.parts.get("CONTEXT")
            statement = message.parts.get("STATEMENT", "")
            if tree is not None and (statement, context, tree) not in seen:
                seen.add((statement, context, tree))
                if inexact := reader.inexact(tree, context, statement):
                    found[" ".join(statement.split())[:200]] = inexact
        assert len(seen) > 50, "the server has logged no parse trees"
        return found


@pytest.fixture(scope="module")
def talkative() -> Iterator[tuple[EmbeddedPostgres, DatabaseServer, str]]:
    """A server that logs parse trees, and a template in which others wait for our calls."""
    with (
        scratch_folder() as folder,
        EmbeddedPostgres(folder, settings={**SERVER_SETTINGS, **SETTINGS}, **chosen_programs()) as embedded,
    ):
        server = DatabaseServer(embedded.url())
        template = server.create_template()
        server.run(server.url(template), _invade_quietly)
        yield embedded, server, template


async def _invade_quietly(connection: Any) -> None:
    await connection.execute("set debug_print_parse = off")
    await invade(connection)


@pytest.fixture
def database_url(talkative: tuple[EmbeddedPostgres, DatabaseServer, str]) -> Iterator[str]:
    _, server, template = talkative
    name = server.create_database(template=template)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Any]:
    """The test's own, which keeps out of their way."""
    connection = await asyncpg.connect(
        database_url, server_settings={"search_path": "pg_catalog", "application_name": OURSELVES}
    )
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def log(talkative: tuple[EmbeddedPostgres, DatabaseServer, str], connection: Any) -> Log:
    embedded, _, _ = talkative
    return Log(embedded.log_file, await connection.fetchval("select current_database()"), connection)


@pytest.fixture
async def workers(database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(database_url):
        yield workers


@pytest.fixture(params=["a pool of its own", "a pool of the caller"])
async def place(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[dict[str, Any]]:
    """Where a program finds the database."""
    if request.param == "a pool of its own":
        yield {"connection_string": database_url}
        return
    async with asyncpg.create_pool(database_url, min_size=0, max_size=10) as pool:
        yield {"connection_string": None, "pg_pool": pool}


async def test_a_worker_with_every_feature(
    place: dict[str, Any], connection: Any, workers: Workers, log: Log
) -> None:
    done: list[str] = []
    entered, cancelled = asyncio.Event(), asyncio.Event()

    @task("plain", keep=True)
    async def plain(payload: Any, helpers: JobHelpers) -> int:
        await helpers.progress(0.5, "half")
        done.append("cron" if "cron" in payload else "plain")
        return 1

    @task("handler")
    async def handler(payload: Any) -> None:
        done.append("handler")

    @task("short")
    async def short() -> None:
        done.append("short")

    @task("limited", limit=[Limit("some", concurrency=2), Limit("rate", rate=(1000, timedelta(seconds=1)))])
    async def limited() -> None:
        done.append("limited")

    @task("wide", queue_concurrency=3)
    async def wide() -> None:
        done.append("wide")

    @task("fair", lane="tenants")
    async def fair() -> None:
        done.append("fair")

    @task("broken", max_attempts=1, on_failure="handler")
    async def broken() -> None:
        raise ValueError("no")

    @task("long")
    async def long() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @task("orphan")
    async def orphan() -> None:
        done.append("orphan")

    graveyard = Graveyard(connection)
    await graveyard.bury("pool-dead")
    await connection.execute(
        "insert into graphile_worker._private_known_crontabs values "
        "('plain', now() - interval '1 day', now() - interval '5 minutes')"
    )
    async with make_worker_utils(**place) as utils:
        orphans = [await utils.add_job("orphan", queue_name=f"orphan {n}") for n in range(2)]
        await graveyard.give("pool-dead", *(job.id for job in orphans))
        runner = await workers.start(
            [plain, handler, short, limited, wide, fair, broken, long, orphan],
            crontab="* * * * * plain ?fill=2m {cron: true}",
            forbidden_flags=["never"],
            flag_allowlist=["never", "sometimes"],
            lanes=[Lane("tenants", tasks=["fair"], concurrency=2, order="fair")],
            concurrency=4,
            history="all",
            **QUICK,
            **place,
        )
        kept = await utils.add_job(plain, {}, keep=True)
        assert await utils.wait_for(kept) == 1
        later = datetime.now(UTC) + timedelta(hours=1)
        unique = [await utils.add_job("short", {}, unique=Unique(), run_at=later) for _ in range(2)]
        assert [job.is_existing for job in unique] == [False, True]
        await utils.reschedule_jobs([unique[0].id], run_at=timedelta())
        await utils.add_jobs([JobSpec("limited", queue_name=f"q{n % 2}") for n in range(10)])
        await utils.add_jobs([JobSpec("wide", queue_name="wide") for _ in range(10)])
        await utils.add_jobs([JobSpec("fair", queue_name=f"tenant {n % 3}") for n in range(10)])
        await utils.add_jobs([JobSpec("short") for _ in range(300)])
        await utils.add_job("broken")
        job = await utils.add_job("long")
        await asyncio.wait_for(entered.wait(), 60)
        assert await utils.jobs.get_stack(job, timeout=60)
        await utils.queues.set_concurrency("wide", 5)
        await utils.queues.set_concurrency("wide", 1)
        await utils.set_limit("some", concurrency=1)
        await utils.pause(task="short")
        await utils.queues.pause("q1")
        assert len(await utils.queues.list_pauses()) == 2
        await utils.queues.resume("q1")
        await utils.resume(task="short")
        await utils.limits.reset("some")
        wanted = {"limited": 10, "wide": 10, "fair": 10, "short": 301, "orphan": 2, "handler": 1, "cron": 1}
        await until(lambda: all(done.count(name) >= count for name, count in wanted.items()))
        await utils.jobs.cancel(job.id)
        await until(cancelled.is_set)
        await utils.queues.set_concurrency("wide", None)
        await workers.stop(runner)
    assert await log.wrong() == {}


async def test_held_batches(
    monkeypatch: pytest.MonkeyPatch, connection: Any, workers: Workers, recorder: EventRecorder, log: Log
) -> None:
    never_slow(monkeypatch)
    jobs = Jobs(connection)
    holding = Holding(jobs, workers, recorder)

    async def broken() -> None:
        raise ValueError("no")

    runner = await holding.start({"broken": broken})
    await holding.add(lambda: jobs.add("broken", max_attempts=1))
    await until(lambda: "job:failed" in recorder.names)
    await workers.stop(runner)
    assert holding.held_fetches
    assert await log.wrong() == {}


async def test_a_blocking_client(database_url: str, connection: Any, log: Log) -> None:
    await Graveyard(connection).bury("pool-dead")
    later = datetime.now(UTC) + timedelta(hours=1)

    def use(utils: SyncWorkerUtils, of_caller: Any) -> None:
        there: dict[str, Any] = {} if of_caller is None else {"connection": of_caller}
        job = utils.add_job("a", {"x": 1}, job_key="k", queue_name="q", run_at=later, **there)
        utils.add_job("a", {"x": 2}, unique=Unique(), run_at=later, **there)
        utils.add_jobs([JobSpec("a", n, queue_name="q", flags=["f"]) for n in range(3)], **there)
        utils.add_jobs([JobSpec("a", n, job_key=f"k{n}") for n in range(3)], **there)
        assert utils.jobs.list(JobFilter(task_identifier="a", queue_name="q"), **there)
        utils.jobs.list(JobFilter(**_EVERY_CONDITION), **there)
        utils.reschedule_jobs([job.id], attempts=0, **there)
        utils.permanently_fail_jobs([job.id], "because", **there)
        utils.history.list_error_groups(task_identifier="a", **there)
        utils.queues.set_concurrency("q", 3, **there)
        utils.queues.pause("q", **there)
        assert utils.queues.list_pauses(**there)
        utils.queues.resume("q", **there)
        utils.statistics.jobs(**there)
        utils.queues.list(**there)
        utils.list_workers(**there)
        utils.cancel_jobs([job.id], **there)
        utils.remove_job("k", **there)

    def block() -> None:
        with make_sync_worker_utils(connection_string=database_url) as utils:
            orphan = utils.add_job("a", keep=True)
            asyncio.run_coroutine_threadsafe(Graveyard(connection).give("pool-dead", orphan.id), loop).result(
                60
            )
            assert [each.id for each in utils.sweep_stale_workers().recovered] == ["pool-dead"]
            utils.complete_jobs([orphan.id])
            utils.wait_for(orphan, timeout=60)
            use(utils, None)
            with psycopg.connect(database_url) as of_caller:
                use(utils, of_caller)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(block)
    assert await log.wrong() == {}


async def test_a_client(place: dict[str, Any], connection: Any, log: Log) -> None:
    async with make_worker_utils(**place) as utils:
        await _add_in_all_ways(utils, connection)
        await _manage(utils, connection)
        await _look(utils)
    assert await log.wrong() == {}


@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
async def test_a_client_on_a_connection_of_the_caller(
    database_url: str, connection: Any, library: str, log: Log
) -> None:
    if library == "asyncpg":
        of_caller: Any = await asyncpg.connect(database_url)
    else:
        of_caller = await psycopg.AsyncConnection.connect(database_url)
    try:
        async with make_worker_utils(connection_string=database_url) as utils:
            # First what needs arrays: once the driver knows them, it asks no more.
            kept = await utils.add_job("a", keep=True)
            await utils.complete_jobs([kept.id], connection=of_caller)
            job = await utils.add_job("a", {"x": 1}, job_key="k", connection=of_caller)
            await utils.jobs.get_status(job.id, connection=of_caller)
            await utils.add_jobs([JobSpec("a", n, queue_name="q") for n in range(3)], connection=of_caller)
            await utils.jobs.list(JobFilter(**_EVERY_CONDITION), connection=of_caller)
            await utils.reschedule_jobs([job.id], attempts=0, connection=of_caller)
            await utils.permanently_fail_jobs([job.id], "because", connection=of_caller)
            await utils.statistics.jobs(connection=of_caller)
            await utils.list_workers(connection=of_caller)
            await utils.history.list_errors(connection=of_caller)
            await utils.history.list_error_groups(task_identifier="a", connection=of_caller)
            await utils.queues.set_concurrency("q", 3, connection=of_caller)
            await utils.queues.pause("q", connection=of_caller)
            await utils.queues.resume("q", connection=of_caller)
            await utils.cancel_jobs([job.id], connection=of_caller)
            await utils.remove_job("k", connection=of_caller)
    finally:
        await of_caller.close()
    assert await log.wrong() == {}


async def test_the_dashboard(place: dict[str, Any], connection: Any, log: Log) -> None:
    async with make_worker_utils(**place) as utils:
        await _fill(utils, connection)
    app = admin_app(**place, authorize=everyone_may)
    transport, headers = httpx.ASGITransport(app), {"Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        try:
            await _act(http, connection)
            for path in await _paths(connection):
                answer = await http.get(path)
                assert answer.status_code < 500, f"{path}: {answer.text[:500]}"
        finally:
            await app.aclose()
    assert await log.wrong() == {}


async def _fill(utils: WorkerUtils, connection: Any) -> None:
    await utils.add_jobs([JobSpec("a", n, queue_name="q", job_key=f"k{n}") for n in range(8)])
    await Graveyard(connection).bury("pool-dead", lost_for=None)
    ids = [job.id for job in await utils.jobs.list()]
    await Graveyard(connection).give("pool-dead", ids[0])
    await utils.permanently_fail_jobs(ids[1:3], "because")


async def _act(http: httpx.AsyncClient, connection: Any) -> None:
    """Change jobs one by one and many at once, and undo it."""
    rows = await connection.fetch("select id from graphile_worker._private_jobs order by id desc")
    ids = [row["id"] for row in rows]
    for action, more in (("reschedule", {"run_in": 60}), ("retry", {}), ("run_now", {}), ("give_up", {})):
        answer = await http.post("/api/v1/jobs/actions", json={"action": action, "ids": ids[:2], **more})
        assert answer.status_code < 500, answer.text
    answer = await http.post("/api/v1/jobs/actions", json={"action": "delete", "ids": ids[:2]})
    assert answer.status_code == 200, answer.text
    undone = await http.post(f"/api/v1/audit/{answer.json()['undo']}/undo")
    assert undone.status_code == 200, undone.text
    for action in ("give_up", "retry", "delete"):
        answer = await http.post("/api/v1/operations", json={"action": action, "filter": "task:a"})
        assert answer.status_code < 500, answer.text

        async def has_ended(answer: httpx.Response = answer) -> bool:
            return not await connection.fetchval(
                "select exists (select from graphile_worker._private_py_operations where finished_at is null)"
            )

        await until(has_ended)


async def _paths(connection: Any) -> list[str]:
    """The addresses of everything that can be looked at, with values that exist."""
    await connection.execute("set search_path = pg_catalog, graphile_worker")
    found = []
    for route in ROUTES:
        if not is_readable(route):
            continue
        subject = subject_of(route.path)
        if subject is None:
            found.append(route.path)
            continue
        name, query = subject
        values = [row[0] for row in await connection.fetch(f"{query} limit 2")]
        found += addresses(route.path, name, values)
    return found


COMMANDS = (
    ["migrate"], ["add", "a", "1", "--queue", "q", "--keep"], ["add", "a", '"fail"', "--max-attempts", "1"],
    ["add", "a", "--key", "k"], ["remove", "k"], ["list"], ["list", "--state", "failed"],
    ["pause", "--task", "a"], ["resume", "--task", "a"], ["queues", "set", "q", "--concurrency", "3"],
    ["--once"],
    ["errors"], ["history"], ["show", "1", "2"], ["queues"], ["stats"], ["stats", "--since", "1h"],
    ["workers"], ["limits"], ["schedules"], ["retry", "--task", "a", "--yes"],
    ["fail", "--task", "a", "--yes"], ["reschedule", "--task", "a", "--priority", "1", "--yes"],
    ["cancel", "--task", "a", "--yes"], ["complete", "--task", "a", "--yes"], ["doctor"], ["sweep"],
    ["cleanup"], ["force-unlock", "pool-x"], ["stop", "pool-x"],
    ["bench", "--jobs", "10", "--processes", "1"],
)  # fmt: skip
ONE_AFTER_ANOTHER = """
import json, sys
from graphile_worker.cli.main import run_main
for arguments in json.loads(sys.argv[1]):
    assert run_main(arguments) == (arguments[0] == "stop"), arguments  # there is no such worker
"""
"""All commands in one process: most of the time of each is that of its start."""


@pytest.mark.timeout(600)
async def test_commands(database_url: str, connection: Any, log: Log, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").write_text("def a(payload):\n    assert payload != 'fail'\n")
    (tmp_path / "crontab").write_text("* * * * * a\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ONE_AFTER_ANOTHER, json.dumps(COMMANDS), cwd=tmp_path,
        env=clean_environment(DATABASE_URL=database_url), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert await log.wrong() == {}


async def test_migrating(database_url: str, connection: Any, log: Log) -> None:
    other = await asyncpg.connect(database_url)
    try:
        await migrate(other, SchemaName("fresh"))
        await migrate(other, SchemaName("fresh"))
        await go_back(connection, 16)
        await migrate(other, SchemaName())
    finally:
        await other.close(timeout=60)
    assert await log.wrong() == {}
    used = await connection.fetch(
        "select pg_describe_object(classid, objid, objsubid) from pg_depend "
        "where (refclassid = 'pg_proc'::regclass and refobjid in "
        "(select oid from pg_proc where pronamespace = 'public'::regnamespace) "
        "or refclassid = 'pg_operator'::regclass and refobjid in "
        "(select oid from pg_operator where oprnamespace = 'public'::regnamespace)) "
        "and pg_describe_object(classid, objid, objsubid) like '%fresh%'"
    )
    assert used == []  # defaults, indexes, checks and triggers


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
    ids = [job.id for job in await utils.jobs.list()]
    await Graveyard(connection).bury("pool-dead")
    await Graveyard(connection).give("pool-dead", ids[-1])
    await utils.reschedule_jobs(ids[:3], run_at=timedelta(hours=1), attempts=0)
    await utils.permanently_fail_jobs(ids[:2], "because")
    await utils.complete_jobs(ids[2:3])
    await utils.remove_job("k")
    await utils.cancel_jobs(ids[3:4])
    every: dict[str, Any] = {"filter": JobFilter(**_EVERY_CONDITION)}
    failed: dict[str, Any] = {"filter": JobFilter(state="failed", failed_until=datetime.now(UTC))}
    for chosen in (every, failed, {"filter": JobFilter(task_identifier="a"), "step_size": 2}):
        await utils.reschedule_jobs(**chosen, dry_run=True)
        await utils.reschedule_jobs(**chosen, run_at=timedelta(hours=1), attempts=0)
        await utils.permanently_fail_jobs(**chosen, reason="because")
    for chosen in (every, failed):
        await utils.complete_jobs(**chosen)
        await utils.cancel_jobs(**chosen)
    await utils.sweep_stale_workers(dry_run=True)
    assert [each.id for each in (await utils.sweep_stale_workers()).recovered] == ["pool-dead"]
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
    await utils.jobs.list(JobFilter(**_EVERY_CONDITION))
    for state in (None, *JOB_STATES):
        for order in JOB_ORDERS:
            if order != "run_order" or state in (None, "ready", "scheduled"):
                await utils.jobs.list(
                    JobFilter(state=state, order=order, task_identifier="a", queue_name="q")
                )
    await utils.statistics.jobs()
    await utils.queues.list()
    await utils.list_workers()
    job = await utils.add_job("a", {"x": 1}, keep=True)
    await utils.jobs.get(job.id)
    await utils.jobs.get_status(job)
    await utils.jobs.get_record(job)
    await utils.complete_jobs([job.id])
    await utils.wait_for(job, timeout=60)
    await utils.history.of_job(job)
    await utils.history.list_finished(HistoryFilter(task_identifier="a"))
    await utils.history.errors_of_job(job)
    await utils.history.list_errors()
    await utils.history.list_error_groups(task_identifier="a")
    await utils.statistics.tasks(since=timedelta(hours=1), by="task")
    await utils.statistics.samples(since=timedelta(hours=1))
    await utils.schedules.list()
    await utils.limits.list()
    await utils.workers.list_deploys(since=datetime(2020, 1, 1, tzinfo=UTC))
    await utils.queues.list_pauses()
    await utils.queues.set_concurrency("q", 3)
    await utils.queues.pause("q")
    await utils.queues.resume("q")
    await utils.jobs.retry("a")
    with pytest.raises(WorkerNotFoundError):
        await utils.workers.pause("pool-x")

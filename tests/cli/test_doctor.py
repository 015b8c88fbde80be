"""`graphile-worker doctor`: real findings, and their advice carried out where it is a command."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from msgspec.structs import replace

from cli.guarded import GuardedServer
from graphile_worker.config import resolve_settings
from graphile_worker.diagnostics import examine as examining
from graphile_worker.diagnostics.connection_checks import check_server, check_settings
from graphile_worker.diagnostics.examine import examine
from graphile_worker.diagnostics.facts import OldTransaction, ServerFacts
from graphile_worker.diagnostics.finding import Finding, Thresholds
from graphile_worker.diagnostics.job_checks import check_transactions
from graphile_worker.diagnostics.schema_checks import (
    SHARED_FUNCTIONS,
    SHARED_INDEXES,
    index_statement,
    own_indexes,
)
from graphile_worker.recovery.registry import workers
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.values.schema_name import SchemaName
from support.cases import looped
from support.command_line import Call
from support.pgbouncer import pgbouncer_to
from support.rust_port import RustPort
from support.server import DatabaseServer
from support.working import Workers, until

JOBS = "graphile_worker._private_jobs"
EVERY_CHECK = {
    "connection", "server", "settings", "clock", "pooler", "listen", "rights", "schema", "functions",
    "indexes", "workers", "locks", "pauses", "queues", "waiting", "failures", "table", "transactions",
}  # fmt: skip


class Report(dict[str, list[dict[str, str]]]):
    """The JSON output of the command, by check."""

    def __init__(self, result: Any) -> None:
        self.status = result.status
        self.json = result.json
        super().__init__()
        for finding in self.json["findings"]:
            self.setdefault(finding["check"], []).append(finding)

    def one(self, check: str, severity: str) -> dict[str, str]:
        found = [finding for finding in self[check] if finding["severity"] == severity]
        assert len(found) == 1, self.get(check)
        return found[0]

    def is_well(self, check: str) -> bool:
        return {finding["severity"] for finding in self[check]} == {"ok"}


async def doctor(gw: Call, *arguments: str) -> Report:
    """Run the command, in a thread because it has its own event loop."""
    return Report(await asyncio.to_thread(gw, "doctor", "--json", *arguments))


async def do(gw: Call, *arguments: str) -> None:
    (await asyncio.to_thread(gw, *arguments)).check()


async def found_by(url: str, check: str, **options: Any) -> list[Finding]:
    """The findings of one check with other thresholds or another clock."""
    worker = options.pop("worker", {})
    findings = await examine(resolve_settings({"connection_string": url} | worker, {}), **options)
    return [finding for finding in findings if finding.check == check]


async def add_locked_job(connection: Any, pool: str, ago: str, queue: str | None = None) -> None:
    job = await connection.fetchrow("select * from graphile_worker.add_job('work', queue_name => $1)", queue)
    for table, row in (("_private_jobs", job["id"]), ("_private_job_queues", job["job_queue_id"])):
        await connection.execute(
            f"update graphile_worker.{table} set locked_by = $1, locked_at = now() - $2::text::interval "
            "where id = $3",
            pool,
            ago,
            row,
        )


# -- the report ----------------------------------------------------------------------------------------------


async def test_a_healthy_database_has_no_error_and_every_check_is_named(gw: Call) -> None:
    report = await doctor(gw)
    assert report.status == 0
    assert report.json["healthy"] is True
    assert set(report) == EVERY_CHECK
    for finding in report.json["findings"]:
        assert set(finding) == {"check", "severity", "summary", "meaning", "advice", "page"}
        assert finding["severity"] == "ok" or (finding["meaning"] and finding["advice"])
    assert [check for check in report if not report.is_well(check)] in ([], ["settings"])


def test_people_read_the_worst_first_with_what_to_do(gw: Call, empty_database_url: str) -> None:
    result = gw("doctor", "-c", empty_database_url)
    assert result.status == 1
    first, meaning, advice = result.out.splitlines()[:3]
    assert first == 'error    schema: the schema "graphile_worker" is not installed in this database'
    assert meaning.startswith("         There is no queue here")
    assert advice.startswith("         → Run `graphile-worker migrate`")
    assert "         More in the documentation: troubleshooting.md#check-schema" in result.out.splitlines()
    assert "ok       listen: a notification arrived" in result.out
    assert result.out.splitlines()[-1].startswith("Found 1 error")
    assert all(len(line) <= 100 for line in result.out.splitlines())


def test_a_server_that_cannot_be_reached_is_an_error_that_hides_the_password(call: Call) -> None:
    report = Report(call("doctor", "--json", "-c", "postgres://user:s3cret@127.0.0.1:1/db"))
    assert report.status == 1
    assert report.json["worst"] == "error"
    assert "127.0.0.1:1 cannot be reached" in report.one("connection", "error")["advice"]
    assert "s3cret" not in str(report.json)


async def test_a_question_that_is_not_answered_in_time_is_left_out(
    connection: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "CHECK_WITHIN", 0.5)
    async with connection.transaction():
        await connection.execute(f"lock table {JOBS} in access exclusive mode")
        (finding,) = await found_by(database_url, "locks")
    assert finding.severity == "info"
    assert "not checked: no answer within" in finding.summary
    assert await found_by(database_url, "transactions")


# -- the connection and the server ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "severity"), [(0.0, "ok"), (-10.0, "warning"), (10.0, "warning"), (3600.0, "error")]
)
async def test_clocks_that_differ_are_noticed(database_url: str, ahead: float, severity: str) -> None:
    clock = FakeClock(datetime.now(UTC) + timedelta(seconds=ahead))
    (finding,) = await found_by(database_url, "clock", clock=clock)
    assert finding.severity == severity
    if ahead:
        assert ("behind" if ahead > 0 else "ahead of") in finding.summary


async def test_a_pooler_in_transaction_mode_is_noticed_also_when_it_is_idle(database_url: str) -> None:
    with pgbouncer_to(database_url) as url:
        (pooler,) = await found_by(url, "pooler")
        assert pooler.severity == "error"
        assert "--no-prepared-statements" in pooler.advice
        findings = await examine(
            resolve_settings({"connection_string": url, "prepared_statements": False}, {})
        )
        pooler, listen = (finding for finding in findings if finding.check in ("pooler", "listen"))
        assert pooler.severity == "warning"
        assert listen.severity == "warning"
        assert "every 2 seconds" in listen.meaning


async def test_a_pooler_in_session_mode_is_only_mentioned(database_url: str) -> None:
    with pgbouncer_to(database_url, "pool_mode = session") as url:
        for _ in range(5):  # on a slow machine a check may have had no answer in time
            findings = await examine(resolve_settings({"connection_string": url}, {}))
            said = {each.check: each.severity for each in findings if each.check in ("pooler", "listen")}
            if said:
                break
    assert said == {"pooler": "info", "listen": "ok"}


async def test_settings_of_the_whole_server_are_looked_at(guarded: GuardedServer) -> None:
    url = guarded.url()
    connection = await asyncpg.connect(url)

    async def changed(statement: str, setting: str, value: str) -> None:
        """Reload the server's configuration, and wait until it has taken effect."""
        await connection.execute(statement)
        await connection.execute("select pg_reload_conf()")

        async def is_read() -> bool:
            return bool(await connection.fetchval(f"show {setting}") == value)

        await until(is_read)

    async def said() -> list[str]:
        return [
            finding.summary for finding in await found_by(url, "settings") if finding.severity == "warning"
        ]

    try:
        await changed("alter system set autovacuum = off", "autovacuum", "off")
        await changed("alter system set fsync = off", "fsync", "off")
        assert {"autovacuum is off", "fsync is off"} <= set(await said())
        await changed("alter system set autovacuum = on", "autovacuum", "on")  # as advised
        await changed("alter system set fsync = on", "fsync", "on")
        assert not {"autovacuum is off", "fsync is off"} & set(await said())
    finally:
        await connection.execute("alter system reset autovacuum")
        await connection.execute("alter system reset fsync")
        await connection.execute("select pg_reload_conf()")
        await connection.close()


@pytest.mark.parametrize(
    ("setting", "severity", "words"),
    [
        ("idle_session_timeout = '10min'", "warning", "idle_session_timeout is 10 min"),
        (
            "default_transaction_isolation = 'serializable'",
            "warning",
            "default_transaction_isolation is seri",
        ),
        ("default_transaction_read_only = on", "error", "default_transaction_read_only is on"),
        ("search_path = public, pg_catalog", "warning", "search_path has public before pg_catalog"),
    ],
)
async def test_settings_that_do_a_queue_harm_are_named(
    gw: Call, server: DatabaseServer, connection: Any, setting: str, severity: str, words: str
) -> None:
    if server.major < 14 and "idle_session" in setting:
        pytest.skip("this server has no such setting")
    name = await connection.fetchval("select current_database()")
    await connection.execute(f'alter database "{name}" set {setting}')
    report = await doctor(gw)
    said = [(finding["severity"], finding["summary"]) for finding in report.json["findings"]]
    assert any(kind == severity and summary.startswith(words) for kind, summary in said), said
    assert report.status == (1 if severity == "error" else 0)


async def test_what_cannot_be_provoked_on_a_shared_server_is_judged_from_its_facts(connection: Any) -> None:
    facts = await ServerFacts.load_one(connection)
    well = replace(facts, fsync=True, full_page_writes=True)
    assert [finding.severity for finding in (*check_server(well), *check_settings(well))] == ["ok", "ok"]
    change: dict[str, Any]
    for change, words in (
        ({"is_standby": True}, "standby"),
        ({"server_version": 110022, "version": "11.22"}, "too old"),
    ):
        assert any(words in f.summary and f.severity == "error" for f in check_server(replaced(well, change)))
    for change, words in (
        ({"autovacuum": False}, "autovacuum is off"),
        ({"track_counts": False}, "track_counts is off"),
        ({"fsync": False}, "fsync is off"),
        ({"full_page_writes": False}, "full_page_writes is off"),
        ({"connections": 99, "max_connections": 100}, "99 of 100 connections"),
        ({"notification_queue": 0.75}, "75% full"),
    ):
        (finding,) = check_settings(replaced(well, change))
        assert finding.severity == "warning"
        assert words in finding.summary


def replaced(facts: Any, change: dict[str, Any]) -> Any:
    return replace(facts, **change)


# -- the schema ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "severity", "words"),
    [
        (
            "insert into graphile_worker.migrations (id, breaking) values (21, true)",
            "error",
            "is at revision 21",
        ),
        (
            "insert into graphile_worker.migrations (id, breaking) values (21, false)",
            "warning",
            "revision 21",
        ),
        ("delete from graphile_worker.migrations where id = 20", "error", "revision 19, 20 is needed"),
        (
            "delete from graphile_worker._private_py_migrations where id = 2",
            "warning",
            "missing: queue_indexes",
        ),
        (
            "delete from graphile_worker._private_py_migrations where id = 25",
            "error",
            "functions of an earlier version call an operator that others can replace",
        ),
    ],
)
async def test_the_level_of_the_schema_is_judged(
    gw: Call, connection: Any, statement: str, severity: str, words: str
) -> None:
    await connection.execute(statement)
    assert words in (await doctor(gw)).one("schema", severity)["summary"]


async def test_missing_own_objects_come_back_as_advised(gw: Call, connection: Any) -> None:
    await connection.execute("drop table graphile_worker._private_py_migrations cascade")
    report = await doctor(gw)
    assert "`graphile-worker migrate`" in report.one("schema", "warning")["advice"]
    await do(gw, "migrate")
    assert (await doctor(gw)).is_well("schema")


@asynccontextmanager
async def role_for(connection: Any, url: str) -> AsyncIterator[tuple[str, str]]:
    """A new role, and a URL to connect with it."""
    name = await connection.fetchval("select 'gw_doctor_' || substr(md5(random()::text), 1, 12)")
    await connection.execute(f"create role {name} login password 's3cret'")
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    try:
        yield name, urlunsplit(parts._replace(netloc=f"{name}:s3cret@{place}"))
    finally:
        await connection.execute(f"drop owned by {name}; drop role {name}")


async def test_rights_that_are_missing_are_named_one_after_the_other(
    call: Call, connection: Any, database_url: str
) -> None:
    async with role_for(connection, database_url) as (role, url):
        report = await doctor(call, "-c", url)
        assert "may not use the schema" in report.one("rights", "error")["summary"]
        assert "schema" not in report
        await connection.execute(f"grant usage on schema graphile_worker to {role}")
        report = await doctor(call, "-c", url)
        assert "may not read and write" in report.one("rights", "error")["summary"]
        await connection.execute(f"grant all on all tables in schema graphile_worker to {role}")
        await connection.execute(f"revoke all on graphile_worker._private_py_pauses from {role}")
        report = await doctor(call, "-c", url)
        found = report.one("rights", "error")
        assert found["summary"].endswith("may not read and write _private_py_pauses")
        assert found["meaning"].startswith("It may add and run jobs. But its workers cannot see pauses")
        await connection.execute(f"grant all on graphile_worker._private_py_pauses to {role}")
        report = await doctor(call, "-c", url)
        found = report.one("rights", "error")
        assert found["summary"].startswith("row-level security hides the rows of _private_job_queues, ")
        owner = await connection.fetchval("select current_user")
        assert f"grant {owner} to {role};" in found["advice"]
        await connection.execute(f"grant {owner} to {role}")
        assert (await doctor(call, "-c", url)).is_well("rights")
        await connection.execute(f"revoke {owner} from {role}")


async def test_functions_that_belong_to_another_role_are_named(
    gw: Call, connection: Any, database_url: str
) -> None:
    async with role_for(connection, database_url) as (role, _):
        statement = "alter function graphile_worker.complete_jobs owner to"
        await connection.execute(f"grant create on schema graphile_worker to {role}")
        owner = await connection.fetchval("select current_user")
        assert (await doctor(gw)).is_well("rights")
        await connection.execute(f"{statement} {role}")
        found = (await doctor(gw)).one("rights", "warning")
        assert f"functions and tables have different owners: complete_jobs ({role})" in found["summary"]
        assert f'alter function "graphile_worker".complete_jobs owner to {owner};' in found["advice"]
        await connection.execute(f"{statement} {owner}")
        assert (await doctor(gw)).is_well("rights")


async def test_beside_rust_nothing_is_advised_that_would_undo_its_marks(gw: Call, connection: Any) -> None:
    await RustPort(connection).migrate()
    report = await doctor(gw)
    (found,) = report["schema"]
    assert found["severity"] == "ok"
    assert found["summary"] == 'schema "graphile_worker" at revision 22 (21 and 22 of Rust)'
    found = report.one("functions", "info")
    assert found["summary"] == "as Rust 0.14 installs them: add_job, remove_job"
    assert "identity" not in found["meaning"]
    assert "Do not replace them" in found["advice"]


async def test_the_origin_of_the_functions_is_reported(gw: Call, connection: Any) -> None:
    assert "add_jobs" in (await doctor(gw)).one("functions", "ok")["summary"]
    await connection.execute(
        """
        create or replace function graphile_worker.force_unlock_workers(worker_ids text[]) returns void
        language sql as 'select null::void';
        create or replace function graphile_worker.add_job(
            identifier text, payload json default null, queue_name text default null,
            run_at timestamptz default null, max_attempts integer default null, job_key text default null,
            priority integer default null, flags text[] default null, job_key_mode text default 'replace'
        ) returns graphile_worker._private_jobs language plpgsql
        as $$ begin raise exception 'none' using errcode = 'GWNOR'; end $$;
        drop function graphile_worker.remove_job;
        """
    )
    report = await doctor(gw)
    said = {finding["summary"] for finding in report["functions"] if finding["severity"] == "info"}
    assert said == {"as Rust installs them: add_job", "of unknown origin: force_unlock_workers"}
    assert report.one("functions", "error")["summary"] == "functions are missing: remove_job"
    assert report.status == 1


@pytest.mark.interop
async def test_functions_that_node_installed_are_known(gw: Call, empty_database_url: str) -> None:
    from interop.node_packages import ENDS_AT_19, provide

    packages = provide()
    node = [str(packages.binary), str(packages.command_line()), "-c", empty_database_url]
    subprocess.run([*node, "--schema-only", "--schema", "odd"], check=True, capture_output=True, timeout=60)
    arguments = ("-c", empty_database_url, "-s", "odd")
    found = (await doctor(gw, *arguments)).one("functions", "info")
    assert found["summary"] == f"as Node installs them: {', '.join(SHARED_FUNCTIONS)}"
    node[1] = str(packages.command_line(ENDS_AT_19))
    subprocess.run([*node, "--schema-only", "--schema", "older"], check=True, capture_output=True, timeout=60)
    report = await doctor(gw, "-c", empty_database_url, "-s", "older")
    said = [finding["summary"] for finding in report["functions"]]
    assert "as Node, before 0.18 installs them: add_job, add_jobs" in said


@looped("name", SHARED_INDEXES)
async def test_a_missing_index_is_created_by_the_advised_statement(
    gw: Call, connection: Any, name: str
) -> None:
    before = await definition(connection, name)
    constraint = await connection.fetchrow(
        "select conname, conrelid::regclass as place from pg_constraint where conname = $1", name
    )
    if constraint is None:
        await connection.execute(f"drop index graphile_worker.{name}")
    else:
        await connection.execute(f"alter table {constraint['place']} drop constraint {name}")
    report = await doctor(gw)
    found = report.one("indexes", "error")
    assert found["summary"] == f"the index {name} is missing"
    assert report.status == 1
    statement = index_statement(name, SchemaName())
    assert found["advice"] == f"Create it: {statement}"
    await connection.execute(statement)
    assert await definition(connection, name) == before
    assert (await doctor(gw)).is_well("indexes")


async def definition(connection: Any, name: str) -> str:
    return await connection.fetchval("select pg_get_indexdef(('graphile_worker.' || $1)::regclass)", name)


async def test_an_index_of_this_package_that_was_dropped_comes_back_as_advised(
    gw: Call, connection: Any
) -> None:
    name, changes = next(iter(own_indexes().items()))
    number = min(changes)
    await connection.execute(f"drop index graphile_worker.{name}")
    report = await doctor(gw)
    found = report.one("indexes", "warning")
    assert name in found["summary"]
    assert f"delete row {number}" in found["advice"]
    await connection.execute("delete from graphile_worker._private_py_migrations where id = $1", number)
    await do(gw, "migrate")
    assert (await doctor(gw)).is_well("indexes")


async def test_an_index_that_was_not_finished_is_named(gw: Call, connection: Any) -> None:
    await connection.execute(
        "update pg_index set indisvalid = false "
        "where indexrelid = 'graphile_worker.jobs_main_index'::regclass"
    )
    assert "jobs_main_index" in (await doctor(gw)).one("indexes", "error")["summary"]


async def test_numbers_that_run_out_are_noticed(gw: Call, connection: Any) -> None:
    assert "sequences" not in await doctor(gw)
    await connection.execute("select setval('graphile_worker.job_queues_id_seq', 1500000000)")
    assert "has used 70% of its values" in (await doctor(gw)).one("sequences", "warning")["summary"]


# -- the jobs ------------------------------------------------------------------------------------------------


async def test_locks_that_are_old_are_named_with_their_holder(gw: Call, connection: Any) -> None:
    await add_locked_job(connection, "pool-of-node", "2 hours")
    await add_locked_job(connection, "pool-that-works", "1 minute")
    found = (await doctor(gw)).one("locks", "warning")
    assert found["summary"] == "pool-of-node has 1 job locked, the oldest for 2 h"
    assert "graphile-worker force-unlock pool-of-node" in found["advice"]
    assert (await doctor(gw, "--lock-age", "3h")).is_well("locks")
    await do(gw, "force-unlock", "pool-of-node")
    assert (await doctor(gw)).is_well("locks")


async def test_a_pool_of_ours_that_died_is_named(gw: Call, connection: Any) -> None:
    await add_locked_job(connection, "pool-dead", "1 minute")
    await connection.execute(
        "insert into graphile_worker._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace, backend_pid) "
        "values ('pool-dead', 'here', 1, '1', '{work}', 1, 'lock', '10 s', '1 hour', 1)"
    )
    found = (await doctor(gw)).one("locks", "warning")
    assert found["summary"] == "worker pool pool-dead is unreachable and has 1 job"
    await connection.execute("select pg_advisory_lock(hashtextextended('graphile_worker/pool-dead', 0))")
    assert (await doctor(gw)).is_well("locks")


async def test_a_pool_that_has_just_begun_is_judged_as_a_sweep_judges_it(gw: Call, connection: Any) -> None:
    """It has a row but no lock yet, and counts as alive until it has missed two heartbeats."""
    await add_locked_job(connection, "pool-new", "1 second")
    await connection.execute(
        "insert into graphile_worker._private_py_workers "
        "(id, host, pid, version, tasks, concurrency, liveness, heartbeat_interval, grace) "
        "values ('pool-new', 'here', 1, '1', '{work}', 1, 'lock', '1 hour', '1 hour')"
    )
    assert (await doctor(gw)).is_well("locks")
    await connection.execute(
        "update graphile_worker._private_py_workers set last_seen_at = now() - interval '3 hours'"
    )
    assert "pool-new is unreachable" in (await doctor(gw)).one("locks", "warning")["summary"]


async def test_a_large_table_is_scanned_for_locks_only_on_request(
    gw: Call, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_locked_job(connection, "pool-of-node", "2 hours")
    monkeypatch.setattr(workers, "SCANNED_PAGES", -1)
    monkeypatch.setattr(examining, "SCANNED_PAGES", -1)
    report = await doctor(gw)
    assert report.is_well("locks")
    assert report.one("queues", "info")["advice"] == "Run `graphile-worker doctor --all`."
    report = await doctor(gw, "--all")
    assert "pool-of-node has 1 job locked" in report.one("locks", "warning")["summary"]
    assert report.is_well("queues")


async def test_locks_are_found_without_the_table_of_workers(gw: Call, connection: Any) -> None:
    await add_locked_job(connection, "pool-of-node", "2 hours")
    await connection.execute("drop table graphile_worker._private_py_workers")
    assert "pool-of-node has 1 job locked" in (await doctor(gw)).one("locks", "warning")["summary"]


async def test_jobs_whose_queue_has_no_row_run_again_as_advised(
    gw: Call, connection: Any, workers: Workers
) -> None:
    for queue in ("gone", "also gone", "there"):
        await connection.execute("select graphile_worker.add_job('work', queue_name => $1)", queue)
    await connection.execute("delete from graphile_worker._private_job_queues where queue_name like '%gone'")
    found = (await doctor(gw)).one("queues", "error")
    assert "1 (work), 2 (work)" in found["summary"]
    done: list[Any] = []
    await workers.once({"work": done.append})
    assert await connection.fetchval(f"select count(*) from {JOBS}") == 2  # no worker can take them
    statement = found["advice"].partition("queue: ")[2].partition(" and so on for ")
    assert statement[2] == "2"
    await connection.execute(statement[0])
    await connection.execute(statement[0].replace("(1, 'restored 1')", "(2, 'restored 2')"))
    assert (await doctor(gw)).is_well("queues")
    await workers.once({"work": done.append})
    assert await connection.fetchval(f"select count(*) from {JOBS}") == 0


async def test_a_queue_that_is_stuck_is_freed_as_advised(gw: Call, connection: Any) -> None:
    await add_locked_job(connection, "pool-alive", "1 second", queue="busy")
    await connection.execute("select graphile_worker.add_job('work', queue_name => 'stuck')")
    await connection.execute(
        "update graphile_worker._private_job_queues set locked_at = now() - interval '10 minutes', "
        "locked_by = 'pool-gone' where queue_name = 'stuck'"
    )
    report = await doctor(gw)
    found = report.one("queues", "error")
    assert found["summary"] == "named queues are stuck: stuck"
    assert "graphile-worker force-unlock pool-gone" in found["advice"]
    assert report.status == 1
    await do(gw, "force-unlock", "pool-gone")
    assert (await doctor(gw)).is_well("queues")


async def test_permanently_failed_jobs_are_counted_with_their_last_error(gw: Call, connection: Any) -> None:
    await connection.execute(
        "select graphile_worker.add_job('send_email', max_attempts => 1) from generate_series(1, 3)"
    )
    error = "no\nsuch host\nTraceback (most recent call last):\n  File"
    await connection.execute(f"update {JOBS} set attempts = 1, last_error = $1", error)
    found = (await doctor(gw)).one("failures", "warning")
    assert found["summary"] == "3 jobs failed permanently: send_email (3)"
    assert found["meaning"].endswith("Last error of send_email: no such host")
    await do(gw, "cleanup", "DELETE_PERMAFAILED_JOBS")
    assert (await doctor(gw)).is_well("failures")


async def test_the_last_error_is_that_of_the_job_that_failed_last(
    gw: Call, connection: Any, workers: Workers
) -> None:
    """Workers do not touch updated_at, so the older job may have failed last; one failed by hand counts."""

    async def work(payload: Any) -> None:
        raise ValueError(payload)

    await connection.execute("select graphile_worker.add_job('work', '\"first\"', max_attempts => 1)")
    await connection.execute(
        "select graphile_worker.add_job('work', '\"second\"', max_attempts => 1, run_at => '2000-01-01')"
    )
    await workers.once({"work": work}, concurrency=1)
    await connection.execute(
        f"update {JOBS} set run_at = run_at - interval '1 hour' where payload::text = '\"second\"'"
    )
    assert "Last error of work: ValueError: first" in (await doctor(gw)).one("failures", "warning")["meaning"]
    await connection.execute("select graphile_worker.add_job('work', run_at => '2100-01-01')")
    await connection.execute(
        f"select graphile_worker.permanently_fail_jobs(array(select max(id) from {JOBS}), 'third')"
    )
    assert "Last error of work: third" in (await doctor(gw)).one("failures", "warning")["meaning"]


async def test_a_job_that_no_worker_takes_is_named(gw: Call, connection: Any) -> None:
    await connection.execute("select graphile_worker.add_job('fresh')")
    assert (await doctor(gw)).is_well("waiting")
    await connection.execute("select graphile_worker.add_job('lonely', priority => 5)")
    await connection.execute(
        f"update {JOBS} set run_at = now() - interval '1 hour', created_at = now() - interval '1 hour' "
        "where priority = 5"
    )
    found = (await doctor(gw)).one("waiting", "warning")
    assert found["summary"] == "no worker is running; waiting: lonely (1 job, 1 h)"


# -- the upkeep ----------------------------------------------------------------------------------------------


async def leave_rows_behind(url: str, count: int) -> None:
    """Add and delete jobs in a session that ends, so that the server's statistics know of them."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"alter table {JOBS} set (autovacuum_enabled = false)")
    await connection.execute(
        "select graphile_worker.add_job('work', json_build_object('n', n)) "
        "from generate_series(1, $1::integer) n",
        count,
    )
    await connection.execute(f"delete from {JOBS} where id < (select max(id) from {JOBS})")
    await connection.close()


async def test_dead_rows_bloat_and_switched_off_autovacuum_are_noticed(
    connection: Any, database_url: str
) -> None:
    await leave_rows_behind(database_url, 2000)
    thresholds = Thresholds(dead_rows=1000, bloat_bytes=100_000, busy_changes=1000)

    async def said() -> str:
        found = await found_by(database_url, "table", thresholds=thresholds)
        return "\n".join(f"{finding.severity}: {finding.summary}" for finding in found)

    assert "warning: the jobs table has 1,999 dead and" in await said()
    assert "warning: autovacuum is off for the jobs table" in await said()
    assert "is in use" not in await said()
    await connection.execute(f"vacuum (analyze) {JOBS}")
    await connection.execute(f"alter table {JOBS} reset (autovacuum_enabled)")
    assert "dead rows" not in await said()
    assert "but uses only about" in await said()
    assert "info: the jobs table is busy" in await said()
    await connection.execute(f"vacuum full {JOBS}")
    await connection.execute(f"alter table {JOBS} set (autovacuum_vacuum_scale_factor = 0.02)")
    assert (await said()).startswith("ok: about 1 job in 8 kB")


async def test_a_transaction_that_holds_vacuum_back_is_named(gw: Call, connection: Any) -> None:
    pid = await connection.fetchval("select pg_backend_pid()")
    async with connection.transaction():
        await connection.execute("create temporary table mark () on commit drop")
        found = (await doctor(gw, "--transaction-age", "0s")).one("transactions", "warning")
        assert found["summary"].startswith(f"the session {pid} (")
        assert "idle in transaction" in found["summary"]
        assert f"pg_terminate_backend({pid})" in found["advice"]
        assert (await doctor(gw)).is_well("transactions")
    assert (await doctor(gw, "--transaction-age", "0s")).is_well("transactions")


async def test_a_listener_that_reads_notifications_is_no_old_transaction(
    gw: Call, connection: Any, database_url: str
) -> None:
    listener = await asyncpg.connect(database_url)
    try:
        await listener.add_listener("full", lambda *_: None)
        listened_until = await connection.fetchval("select clock_timestamp()")
        listener._transport.pause_reading()  # so its backend remains in the transaction that sends them
        notify = "select pg_notify('full', repeat('x', 7000) || number) from generate_series(1, 2000) number"
        await connection.execute(notify)

        async def reads() -> bool:
            began: datetime | None = await connection.fetchval(
                "select xact_start from pg_stat_activity"
                " where pid = $1 and state = 'idle' and backend_xmin is not null",
                listener.get_server_pid(),
            )
            return began is not None and began < listened_until

        await until(reads)
        assert (await doctor(gw, "--transaction-age", "0s")).is_well("transactions")
        assert await reads()
    finally:
        listener.terminate()


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("prepared transaction", "rollback prepared 'x'"),
        ("replication slot", "pg_drop_replication_slot('x')"),
    ],
)
def test_other_things_that_hold_vacuum_back_have_advice_of_their_own(kind: str, advice: str) -> None:
    (found,) = check_transactions([OldTransaction(kind=kind, name="x", what=None, age=7200.0)])
    assert found.summary == f"the {kind} x holds vacuum back for 2 h"
    assert advice in found.advice


def test_a_time_in_place_of_a_period_is_refused(call: Call) -> None:
    result = call("doctor", "--lock-age", "2030-01-01T00:00:00Z")
    assert result.status == 2
    assert "expected a period such as 10m or 2h" in result.err

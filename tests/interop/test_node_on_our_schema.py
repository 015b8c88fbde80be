"""Node's worker on the schema that we installed: it has nothing to complain about and works as at home."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import Job, JobSpec, make_worker_utils, run_migrations
from interop import catalogue
from interop.conftest import SharedDatabase

pytestmark = pytest.mark.interop

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
POLL_MILLISECONDS = 50
PAYLOADS: list[Any] = [
    {},
    {"text": 'Grüße 世界 🚀 \u2028 "quoted" \\ back\nslash', "nested": {"list": [1, 2.5, None, True]}},
    [],
    [{"item": 1}, {"item": 2}],
    "a string",
    "",
    0,
    -1.25,
    True,
    False,
    {"large": 2**53 - 1, "empty": "", "nothing": None},
]


async def test_node_finds_the_schema_installed_and_changes_nothing(our_database: SharedDatabase) -> None:
    before = await everything(our_database)
    ended = await our_database.node.command("--schema-only")
    assert (ended.status, ended.output) == (0, "Schema updated\n")
    assert await everything(our_database) == before


async def everything(database: SharedDatabase) -> tuple[Any, ...]:
    """All that an installer could have touched, the times in the ledger included."""
    return (
        await catalogue.read(database.connection),
        await catalogue.function_bodies(database.connection),
        await database.connection.fetch("SELECT * FROM graphile_worker.migrations ORDER BY id"),
    )


async def test_node_is_undisturbed_by_objects_of_our_own_beside_the_shared_ones(
    our_database: SharedDatabase,
) -> None:
    await our_database.connection.execute("""
        CREATE TABLE graphile_worker._private_py_interop (id text PRIMARY KEY, seen_at timestamptz);
        CREATE INDEX _private_py_interop_index ON graphile_worker._private_jobs (task_id, run_at);
        CREATE FUNCTION graphile_worker._private_py_interop() RETURNS integer LANGUAGE sql AS 'SELECT 1';
    """)
    ended = await our_database.node.command("--schema-only")
    assert (ended.status, ended.output) == (0, "Schema updated\n")
    async with our_database.node.worker("hello") as worker:
        await our_database.node.call(["addJob", "hello", {"n": 1}])
        await our_database.runs.wait_until("count(*) = 1 FROM public.interop_runs WHERE ended IS NOT NULL")
        await our_database.runs.wait_until_idle()
    assert worker.output == ["ready\n", ""]


async def test_a_node_worker_goes_on_while_we_install_a_second_schema_beside_it(
    our_database: SharedDatabase,
) -> None:
    """Both schemas share the channel on which breaking changes are announced, which end Node's workers."""
    async with our_database.node.worker("hello", pollInterval=POLL_MILLISECONDS) as worker:
        await our_database.runs.wait_until_listening()
        await run_migrations(connection_string=our_database.url, schema="second")
        await our_database.node.call(["addJob", "hello", {"n": 1}])
        await our_database.runs.wait_until("count(*) = 1 FROM public.interop_runs WHERE ended IS NOT NULL")
        await our_database.runs.wait_until_idle()
    assert worker.output == ["ready\n", ""]


async def test_jobs_that_node_adds_are_stored_as_asked(our_database: SharedDatabase) -> None:
    everything_set = {
        "queueName": "mail",
        "runAt": SOON.isoformat(),
        "maxAttempts": 3,
        "jobKey": "welcome:1",
        "priority": -5,
        "flags": ["a", "b", "a"],
    }
    results = await our_database.node.call(
        ["addJob", "plain", {"n": 1}],
        ["addJob", "full", {"n": 2}, everything_set],
        ["quickAddJob", "quick", {"n": 3}],
        ["addJobAdhoc", "quick", {"n": 4}, {"priority": 7}],
        [
            "addJobs",
            [{"identifier": "many", "payload": {"n": n}, "queueName": f"queue-{n % 2}"} for n in range(5)],
        ],
    )
    plain, full, quick, adhoc, many = results
    assert plain["task_identifier"] == "plain"
    assert [full[name] for name in ("key", "priority", "max_attempts", "revision", "attempts")] == [
        "welcome:1",
        -5,
        3,
        0,
        0,
    ]
    assert datetime.fromisoformat(full["run_at"]) == SOON
    assert full["flags"] == {"a": True, "b": True}
    assert (quick["payload"], adhoc["priority"]) == ({"n": 3}, 7)
    assert [job["payload"]["n"] for job in many] == [0, 1, 2, 3, 4]
    queues = await our_database.connection.fetch("SELECT queue_name FROM graphile_worker.jobs ORDER BY id")
    assert [row["queue_name"] for row in queues] == [
        *(None, "mail", None, None),
        *("queue-0", "queue-1", "queue-0", "queue-1", "queue-0"),
    ]


async def test_nodes_job_keys_mean_the_same_on_our_functions(our_database: SharedDatabase) -> None:
    later = (SOON + timedelta(hours=1)).isoformat()
    key = {"jobKey": "k", "runAt": SOON.isoformat()}
    first, replaced, preserved, deduplicated, merged = await our_database.node.call(
        ["addJob", "keyed", {"n": 1}, key],
        ["addJob", "keyed", {"n": 2}, {"jobKey": "k", "runAt": later}],
        ["addJob", "keyed", {"n": 3}, key | {"jobKeyMode": "preserve_run_at"}],
        ["addJob", "keyed", {"n": 4}, key | {"jobKeyMode": "unsafe_dedupe"}],
        ["addJob", "keyed", [5], key],
    )
    again = await our_database.node.call(["addJob", "keyed", [6], key])
    rows = [first, replaced, preserved, deduplicated, merged, *again]
    assert [row["id"] for row in rows] == [first["id"]] * 6
    assert [row["revision"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["payload"] for row in rows] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 3}, [5], [5, 6]]
    assert replaced["run_at"] == preserved["run_at"] != first["run_at"] == merged["run_at"]


async def test_nodes_management_calls_work_on_our_functions(our_database: SharedDatabase) -> None:
    jobs = await our_database.node.call(*(["addJob", "managed", {"n": n}] for n in range(5)))
    ids = [job["id"] for job in jobs]
    await our_database.connection.execute(
        "UPDATE graphile_worker._private_jobs SET locked_at = now(), locked_by = 'pool-gone' WHERE id = $1",
        int(ids[3]),
    )
    completed, failed, rescheduled, refused, *_ = await our_database.node.call(
        ["completeJobs", [ids[0]]],
        ["permanentlyFailJobs", [ids[1]], "not wanted"],
        ["rescheduleJobs", [ids[2]], {"runAt": SOON.isoformat(), "priority": 9, "attempts": 2}],
        ["completeJobs", [ids[3]]],
        ["forceUnlockWorkers", ["pool-gone"]],
        ["cleanup", {"tasks": ["DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"]}],
    )
    assert [job["id"] for job in completed] == [ids[0]]
    assert (failed[0]["last_error"], failed[0]["attempts"]) == ("not wanted", 25)
    assert (rescheduled[0]["priority"], rescheduled[0]["attempts"]) == (9, 2)
    assert datetime.fromisoformat(rescheduled[0]["run_at"]) == SOON
    assert refused == [], "a locked job is left alone"
    left = await our_database.connection.fetch("SELECT id, locked_by FROM graphile_worker.jobs ORDER BY id")
    assert [tuple(row) for row in left] == [(int(id), None) for id in ids[2:]]


async def test_node_runs_what_our_client_added_with_every_kind_of_payload(
    our_database: SharedDatabase,
) -> None:
    async with make_worker_utils(connection_string=our_database.url) as utils:
        jobs: list[Job] = [await utils.add_job("echo", payload) for payload in PAYLOADS]
        jobs += await utils.add_jobs([JobSpec("echo", payload) for payload in PAYLOADS])
    async with our_database.node.worker("echo"):
        await our_database.runs.wait_until_idle()
    runs = {run.job_id: run.payload for run in await our_database.runs.all()}
    assert runs == {job.id: payload for job, payload in zip(jobs, PAYLOADS * 2, strict=True)}
    assert await our_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 0


async def test_node_obeys_priority_queue_key_and_flags_that_our_client_set(
    our_database: SharedDatabase,
) -> None:
    async with make_worker_utils(connection_string=our_database.url) as utils:
        await utils.add_job("echo", {"n": "last"}, priority=10)
        await utils.add_job("echo", {"n": "first"}, priority=-10, queue_name="only", job_key="k", flags=["f"])
        await utils.add_job("echo", {"n": "second"}, queue_name="only")
        await utils.add_job("echo", {"n": "forbidden"}, flags=["forbidden"], priority=-20)
        await utils.add_job("echo", {"n": "tomorrow"}, run_at=timedelta(days=1), priority=-20)
    async with our_database.node.worker(
        "echo", concurrency=1, pollInterval=POLL_MILLISECONDS, forbiddenFlags=["forbidden"]
    ):
        await our_database.runs.wait_until("count(*) = 3 FROM public.interop_runs WHERE ended IS NOT NULL")
    runs = await our_database.runs.all()
    assert [(run.payload["n"], run.queue) for run in runs if run.payload["n"] != "second"] == [
        ("first", "only"),
        ("last", None),
    ]
    # Node fetches again before the completion of "first" has released the queue, so "last" may overtake.
    assert [run.payload["n"] for run in runs if run.queue == "only"] == ["first", "second"]
    assert (runs[0].key, runs[0].priority, runs[0].flags) == ("k", -10, {"f": True})


async def test_jobs_added_in_plain_sql_run_in_node(our_database: SharedDatabase) -> None:
    await our_database.connection.execute("""
        SELECT graphile_worker.add_job('echo');
        SELECT graphile_worker.add_job('echo', '{"n": 1}', job_key := 'k', queue_name := 'q');
        SELECT graphile_worker.add_job('echo', payload => json_build_object('n', 2), max_attempts => 1);
        SELECT graphile_worker.add_jobs(array[
            row('echo', '{"n": 3}', 'q', now(), 5, 'k3', 1, array['x'])::graphile_worker.job_spec,
            row('echo', '{"n": 4}', null, null, null, null, null, null)::graphile_worker.job_spec
        ]);
    """)
    async with our_database.node.worker("echo", pollInterval=POLL_MILLISECONDS):
        await our_database.runs.wait_until_idle()
    payloads = [run.payload for run in await our_database.runs.all()]
    assert sorted(payloads, key=str) == sorted([{}, *({"n": n} for n in range(1, 5))], key=str)


async def test_our_client_wakes_a_node_worker_that_hardly_ever_polls(our_database: SharedDatabase) -> None:
    async with (
        our_database.node.worker("echo", pollInterval=3_600_000),
        make_worker_utils(connection_string=our_database.url) as utils,
    ):
        await our_database.runs.wait_until_listening()
        # A fetch may be under way when the first one comes; the second finds the worker asleep.
        for number in (1, 2):
            await utils.add_job("echo", {"n": number})
            await our_database.runs.wait_until(
                "count(*) = $1 FROM public.interop_runs WHERE ended IS NOT NULL", number
            )
            await our_database.runs.wait_until_idle()
        await utils.add_jobs([JobSpec("echo", {"n": 3})])
        await our_database.runs.wait_until("count(*) = 3 FROM public.interop_runs WHERE ended IS NOT NULL")


@pytest.mark.parametrize("attempts_before", [0, 3, 11])
async def test_a_job_that_fails_in_node_comes_back_later_and_later(
    our_database: SharedDatabase, attempts_before: int
) -> None:
    async with make_worker_utils(connection_string=our_database.url) as utils:
        job = await utils.add_job("broken", {"fail": "no such luck"})
        await utils.reschedule_jobs([job.id], attempts=attempts_before)
    async with our_database.node.worker("broken"):
        await our_database.runs.wait_until(
            "EXISTS (SELECT FROM {jobs} WHERE last_error IS NOT NULL AND locked_at IS NULL)"
        )
        written_by = await our_database.connection.fetchval("SELECT clock_timestamp()")
    row = await our_database.connection.fetchrow("SELECT * FROM graphile_worker._private_jobs")
    (run,) = await our_database.runs.all()
    assert (row["last_error"], row["attempts"], row["locked_by"]) == (
        "no such luck",
        attempts_before + 1,
        None,
    )
    assert run.ended is not None
    delay = timedelta(seconds=exp(min(attempts_before + 1, 10)))
    assert run.ended <= row["run_at"] - delay <= written_by


async def test_node_keeps_only_the_failed_items_of_a_batch(our_database: SharedDatabase) -> None:
    async with make_worker_utils(connection_string=our_database.url) as utils:
        await utils.add_job("batch", [{"n": 1}, {"n": 2, "fail": "two"}], job_key="b")
        await utils.add_job("batch", [{"n": 3, "fail": "three"}, {"n": 4}], job_key="b")
    async with our_database.node.worker("batch"):
        await our_database.runs.wait_until(
            "EXISTS (SELECT FROM {jobs} WHERE last_error IS NOT NULL AND locked_at IS NULL)"
        )
    (run,) = await our_database.runs.all()
    assert [item["n"] for item in run.payload] == [1, 2, 3, 4]
    left = await our_database.connection.fetchrow(
        "SELECT payload::jsonb = $1::jsonb AS same, last_error FROM graphile_worker._private_jobs",
        '[{"n": 2, "fail": "two"}, {"n": 3, "fail": "three"}]',
    )
    assert left["same"]
    assert left["last_error"].splitlines()[1:] == ["two", "three"]


async def test_nodes_command_runs_our_jobs_with_tasks_from_files(
    our_database: SharedDatabase, tmp_path: Path
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "hello.js").write_text(
        "module.exports = (payload, helpers) => helpers.logger.info(`Hello, ${payload.name}`);"
    )
    async with make_worker_utils(connection_string=our_database.url) as utils:
        await utils.add_job("hello", {"name": "Zoë"})
    ended = await our_database.node.command("--once", folder=tmp_path)
    assert ended.status == 0, ended.output
    assert "Hello, Zoë" in ended.output
    assert "WARN" not in ended.output
    assert "ERROR" not in ended.output
    await our_database.runs.wait_until("NOT EXISTS (SELECT FROM {jobs})")

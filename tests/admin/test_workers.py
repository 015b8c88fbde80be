"""Workers, schedules and queues: what the API says, what the pages show, and what they do."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from scripts.lively.addresses import WHOLE, is_readable

from admin.conftest import address_in
from graphile_worker import Lane, WorkerUtils, make_worker_utils
from graphile_worker.admin.table import ROUTES
from recovery.dead import Graveyard
from support.working import PATIENCE, Gate, Jobs, Workers, until

SCHEMA = "graphile_worker"
API = "/api/v1"
CRONTAB = """
0 4 * * * tidy ?id=nightly&fill=1d&queue=night {"depth": 3, "api_token": "s3cret"}
30 2 * * * tidy ?id=zoned&tz=Europe/Berlin
"""


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def post(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    answer = await http.post(f"{API}{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def audited(jobs: Jobs) -> list[tuple[str, str]]:
    rows = await jobs.connection.fetch(f"select action, target from {SCHEMA}._private_py_audit order by id")
    return [tuple(row) for row in rows]


async def tidy() -> None: ...


# -- workers -------------------------------------------------------------------------------------------------


async def test_workers_are_shown_with_what_they_run(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs
) -> None:
    gate = Gate()
    runner = await workers.start(
        {"hold": gate, "tidy": tidy}, connection_string=database_url, concurrency=3, app_version="1.4.2",
        heartbeat_interval=0.2, lanes=[Lane("slow", concurrency=2, tasks=["hold"])],
    )  # fmt: skip
    job = await utils.add_job("hold")
    await gate.until_inside(1)

    async def is_reported() -> bool:
        listing = (await http.get(f"{API}/workers")).json()
        return [slot["id"] for worker in listing["items"] for slot in worker["running"] or ()] == [job.id]

    await until(is_reported)
    worker = (await http.get(f"{API}/worker", params={"id": runner.pool_id})).json()
    assert (worker["state"], worker["app_version"], worker["concurrency"], worker["busy"]) == (
        "alive", "1.4.2", 5, 1,
    )  # fmt: skip
    assert worker["running"][0]["task_identifier"] == "hold"
    assert worker["lanes"][1]["running"][0]["id"] == job.id
    assert (await http.get(f"{API}/jobs/{job.id}")).json()["lane"] == "slow"
    assert "slow" in (await http.get(f"/jobs/{job.id}")).text
    page = await http.get("/worker", params={"id": runner.pool_id})
    assert page.status_code == 200
    assert f"/jobs/{job.id}" in page.text

    stack = await post(http, f"/jobs/{job.id}/stack", {})
    assert stack["kind"] == "coroutine"
    assert "await waiter" in stack["stack"]
    shown = await http.post(f"/jobs/{job.id}/stack")
    assert "await waiter" in shown.text

    refused = await http.post(f"{API}/workers/unlock", json={"id": runner.pool_id})
    assert refused.status_code == 409
    assert "alive" in refused.json()["title"]
    assert (await utils.jobs.get(job.id)).locked_by == runner.pool_id  # type: ignore[union-attr]

    await post(http, "/workers/pause", {"id": runner.pool_id, "reason": "looking"})
    assert (await http.get(f"{API}/worker", params={"id": runner.pool_id})).json()["state"] == "paused"
    await post(http, "/workers/resume", {"id": runner.pool_id})
    asked = await http.post("/workers/stop", data={"id": runner.pool_id})
    assert "It finishes the jobs that it runs" in asked.text
    await post(http, "/workers/stop", {"id": runner.pool_id})
    gate.open()
    await asyncio.wait_for(runner.wait(), PATIENCE)
    assert (await http.get("/worker", params={"id": runner.pool_id})).status_code == 404
    assert (await http.post(f"{API}/workers/stop", json={"id": "pool-none"})).status_code == 404
    assert [action for action, _ in await audited(jobs)] == ["pause_worker", "resume_worker", "stop_worker"]


async def test_the_concurrency_of_a_worker_and_of_a_lane_is_changed(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs
) -> None:
    gate = Gate()
    runner = await workers.start(
        {"hold": gate, "tidy": tidy}, connection_string=database_url, concurrency=3,
        lanes=[Lane("slow", concurrency=1, tasks=["hold"])],
    )  # fmt: skip
    await jobs.add_many("hold", 2)
    await gate.until_inside(1)
    done = await post(http, "/workers/concurrency", {"id": runner.pool_id, "lane": "slow", "concurrency": 2})
    assert done["done"] == "It runs up to 2 jobs of the lane slow at once (before: 1)."
    await gate.until_inside(2)
    worker = (await http.get(f"{API}/worker", params={"id": runner.pool_id})).json()
    assert (worker["concurrency"], [lane["slots"] for lane in worker["lanes"]]) == (5, [3, 2])

    page = (await http.get("/worker", params={"id": runner.pool_id})).text
    assert "/workers/concurrency?id=" in page
    form = await http.get("/workers/concurrency", params={"id": runner.pool_id, "lane": "slow"})
    assert 'name="concurrency"' in form.text
    assert 'value="2"' in form.text
    sent = await http.post("/workers/concurrency", data={"id": runner.pool_id, "concurrency": "7"})
    assert sent.status_code == 303
    assert "before: 3" in (await http.get(sent.headers["location"])).text
    assert runner._running_pool.slots == {"main": 7, "slow": 2}

    for body, status in (
        ({"id": runner.pool_id, "concurrency": 0}, 400),
        ({"id": runner.pool_id, "concurrency": 10_001}, 400),
        ({"id": runner.pool_id, "concurrency": 3, "lane": "fast"}, 400),
        ({"id": "pool-none", "concurrency": 3}, 404),
    ):
        refused = await http.post(f"{API}/workers/concurrency", json=body)
        assert refused.status_code == status, (body, refused.text)
    rows = await jobs.connection.fetch(f"select action, details from {SCHEMA}._private_py_audit order by id")
    assert [(row["action"], json.loads(row["details"])) for row in rows] == [
        ("set_worker_concurrency", {"lane": "slow", "before": 1, "concurrency": 2}),
        ("set_worker_concurrency", {"lane": "main", "before": 3, "concurrency": 7}),
    ]
    gate.open_all()


async def test_memory_and_load_are_shown_and_unknown_for_others(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs
) -> None:
    job = await utils.add_job("of_node")
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'node', locked_at = now() where id = $1", job.id
    )
    runner = await workers.start({"tidy": tidy}, connection_string=database_url, heartbeat_interval=0.2)

    async def loads() -> dict[str, Any]:
        return {each["id"]: each["load"] for each in (await http.get(f"{API}/workers")).json()["items"]}

    async def is_reported() -> bool:
        return ((await loads())[runner.pool_id] or {}).get("cpu") is not None

    await until(is_reported)
    assert (await loads())["node"] is None
    page = (await http.get("/worker", params={"id": runner.pool_id})).text
    assert " MB" in page
    assert "of one, since the heartbeat before" in page
    assert (await http.get("/worker", params={"id": "node"})).text.count("unknown") >= 3
    listed = (await http.get("/workers")).text
    assert " MB" in listed
    assert "unknown" in listed


async def test_the_locks_of_a_dead_worker_are_freed_and_those_of_others_only_when_typed(
    http: httpx.AsyncClient, utils: WorkerUtils, jobs: Jobs
) -> None:
    graveyard = Graveyard(jobs.connection)
    await graveyard.bury("pool-dead")
    first, second = await utils.add_job("work", queue_name="q"), await utils.add_job("work")
    await graveyard.give("pool-dead", first.id)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'node', locked_at = now() where id = $1", second.id
    )
    listing = (await http.get(f"{API}/workers")).json()
    states = {worker["id"]: worker["state"] for worker in listing["items"]}
    assert states == {"pool-dead": "dead", "node": "unknown"}
    assert (await http.get("/workers")).status_code == 200
    assert "another runtime" in (await http.get("/worker", params={"id": "node"})).text
    await post(http, "/workers/unlock", {"id": "pool-dead"})
    assert (await utils.jobs.get(first.id)).locked_by is None  # type: ignore[union-attr]
    for alive in ("node", "not listed"):
        assert (await http.post(f"{API}/workers/unlock", json={"id": alive})).status_code == 409
    await post(http, "/workers/unlock", {"id": "node", "typed": "node"})
    assert (await utils.jobs.get(second.id)).locked_by is None  # type: ignore[union-attr]


# -- schedules -----------------------------------------------------------------------------------------------


async def test_schedules_are_registered_run_paused_and_resumed(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs
) -> None:
    runner = await workers.start(
        {"other": tidy}, connection_string=database_url, crontab=CRONTAB, app_version="1.0"
    )

    async def is_known() -> bool:
        return len((await http.get(f"{API}/schedules")).json()["items"]) == 2

    await until(is_known)
    items = (await http.get(f"{API}/schedules")).json()["items"]
    nightly, zoned = sorted(items, key=lambda each: each["identifier"])
    assert (nightly["identifier"], nightly["words"], nightly["zone"]) == (
        "nightly", "every day at 04:00", "UTC",
    )  # fmt: skip
    assert nightly["payload"]["depth"] == 3
    assert "s3cret" not in json.dumps(nightly)
    assert nightly["options"] == {"queue_name": "night", "backfill_period": 86400.0}
    assert len(nightly["next_runs"]) == 3
    assert nightly["source"] == "crontab option:2"
    assert [worker["worker_id"] for worker in nightly["workers"]] == [runner.pool_id]
    assert any("02:30 does not exist" in warning for warning in zoned["warnings"])

    await post(http, "/schedules/pause", {"identifier": "nightly", "reason": "month end"})
    assert (await http.get(f"{API}/schedule", params={"identifier": "nightly"})).json()["pause"]["reason"]
    assert [pause.schedule for pause in await utils.queues.list_pauses()] == ["nightly"]
    added = await post(http, "/schedules/run", {"identifier": "nightly"})
    job = await utils.jobs.get(added["job_id"])
    assert job is not None
    assert job.queue_name == "night"
    assert job.payload["_cron"]["manual"] is True
    assert job.payload["api_token"] == "s3cret"
    after = (await http.get(f"{API}/schedule", params={"identifier": "nightly"})).json()
    assert [(run["job_id"], run["state"]) for run in after["runs"]] == [(job.id, "ready")]
    await post(http, "/schedules/resume", {"identifier": "nightly"})
    assert await utils.queues.list_pauses() == []
    page = await http.get("/schedule", params={"identifier": "nightly"})
    assert "every day at 04:00" in page.text
    assert "Last 1 run: 1 not ended" in page.text
    assert "s3cret" not in page.text
    task = (await http.get(f"{API}/task", params={"name": "tidy"})).json()
    assert [each["identifier"] for each in task["schedules"]] == ["nightly", "zoned"]
    shown = await http.get("/task", params={"name": "tidy"})
    assert "every day at 04:00" in shown.text
    assert "action=give_up&amp;q=task%3A%22tidy%22" in shown.text
    assert (await http.get("/schedules")).status_code == 200
    form = await http.get("/schedules/pause", params={"identifier": "nightly"})
    assert form.status_code == 200
    sent = await http.post("/schedules/pause", data={"identifier": "nightly", "period": "3600"})
    assert sent.status_code == 303
    assert (await http.post(f"{API}/schedules/pause", json={"identifier": "none"})).status_code == 404
    actions = [action for action, _ in await audited(jobs)]
    assert actions == ["pause_schedule", "run_schedule", "resume_schedule", "pause_schedule"]

    second = await workers.start(
        {"other": tidy}, connection_string=database_url, crontab="5 4 * * * tidy ?id=nightly"
    )
    changed = (await http.get(f"{API}/schedule", params={"identifier": "nightly"})).json()
    assert changed["differs"] is True
    assert changed["pattern"] == "5 4 * * *"
    await runner.stop()
    await second.stop()
    gone = (await http.get(f"{API}/schedule", params={"identifier": "nightly"})).json()
    assert gone["workers"] == []
    assert (await http.post(f"{API}/schedules/run", json={"identifier": "nightly"})).status_code == 400


# -- queues --------------------------------------------------------------------------------------------------


async def test_queues_are_listed_paused_resumed_and_freed(
    http: httpx.AsyncClient, utils: WorkerUtils, jobs: Jobs
) -> None:
    for n in range(25):
        await utils.add_job("work", queue_name=f"queue {n:02}")
    later = datetime.now(UTC) + timedelta(hours=1)
    await utils.add_job("work", queue_name="queue 03", run_at=later)
    first = (await http.get(f"{API}/queues")).json()
    second = (await http.get(f"{API}/queues", params={"after": first["next"]})).json()
    assert len(first["items"]) == 20
    assert len(second["items"]) == 5
    assert second["next"] is None
    found = {queue["queue_name"]: queue for queue in first["items"]}["queue 03"]
    assert (found["waiting"], found["ready"], found["is_estimate"]) == (2, 1, False)
    searched = (await http.get(f"{API}/queues", params={"q": "queue 1"})).json()
    assert [queue["queue_name"] for queue in searched["items"]] == [f"queue {n}" for n in range(10, 20)]
    assert (await http.get(f"{API}/queues", params={"after": "x"})).status_code == 400

    await post(http, "/queues/pause", {"name": "queue 03", "reason": "bank is down"})
    page = await http.get("/queue", params={"name": "queue 03"})
    assert "bank is down" in page.text
    assert (await http.get(f"{API}/queues")).json()["items"][0]["queue_name"] == "queue 03"  # held ones first
    await post(http, "/queues/resume", {"name": "queue 03"})
    assert (await http.get(f"{API}/queue", params={"name": "queue 03"})).json()["queue"]["pause"] is None

    graveyard = Graveyard(jobs.connection)
    await graveyard.bury("pool-dead")
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_by = 'pool-dead', locked_at = now() "
        "where queue_name = 'queue 04'"
    )
    details = (await http.get(f"{API}/queue", params={"name": "queue 04"})).json()
    assert details["queue"]["state"] == "stuck"
    assert details["stuck"] == ["pool-dead"]
    await post(http, "/queues/unlock", {"name": "queue 04"})
    assert (await http.post(f"{API}/queues/unlock", json={"name": "queue 04"})).status_code == 409
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_by = 'node', locked_at = now() "
        "where queue_name = 'queue 05'"
    )
    assert (await http.post(f"{API}/queues/unlock", json={"name": "queue 05"})).status_code == 409
    await post(http, "/queues/unlock", {"name": "queue 05", "typed": "queue 05"})
    await post(http, "/queues/concurrency", {"name": "queue 06", "concurrency": 3})
    assert (await http.get(f"{API}/queue", params={"name": "queue 06"})).json()["queue"]["concurrency"] == 3
    assert (await http.get("/queues/concurrency", params={"name": "queue 06"})).status_code == 200
    assert (await http.get("/queues", params={"q": "no such"})).status_code == 200
    assert (await http.get("/queue", params={"name": "no such"})).status_code == 404


async def test_schedules_that_run_next_come_first(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    minutes = [(datetime.now(UTC) + timedelta(minutes=20 * n)) for n in range(1, 5)]
    names = ["d", "a", "c", "b"]
    crontab = "\n".join(
        f"{at.minute} {at.hour} * * * tidy ?id={name}" for name, at in zip(names, minutes, strict=True)
    )
    await workers.start({"tidy": tidy}, connection_string=database_url, crontab=crontab)
    await utils.schedules.pause("a")
    found = (await http.get(f"{API}/schedules", params={"limit": 3})).json()
    rest = (await http.get(f"{API}/schedules", params={"limit": 3, "after": found["next"]})).json()
    assert [each["identifier"] for each in found["items"]] == ["d", "c", "b"]
    assert ([each["identifier"] for each in rest["items"]], rest["next"]) == (["a"], None)


# -- one JSON ------------------------------------------------------------------------------------------------

RUST = "graphile_worker_c0ffee"
CHANGING = {"last_seen_at", "load", "seconds", "clock", "silent_for", "dead_in"}


def assert_has(mine: Any, theirs: Any, where: str = "") -> None:
    """The API has what the command has, under the same names, and maybe more."""
    if isinstance(theirs, dict):
        assert isinstance(mine, dict), where
        for name, value in theirs.items():
            assert name in mine, f"{where}.{name} is not in the API"
            if name not in CHANGING:
                assert_has(mine[name], value, f"{where}.{name}")
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs), where
        for place, (own, other) in enumerate(zip(mine, theirs, strict=True)):
            assert_has(own, other, f"{where}[{place}]")
    else:
        assert mine == theirs, where


async def test_the_command_line_and_the_api_have_one_json(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str
) -> None:
    gate = Gate()
    runner = await workers.start(
        {"hold": gate, "tidy": tidy}, connection_string=database_url, concurrency=3, app_version="1.4.2",
        heartbeat_interval=0.2, crontab="0 4 * * * tidy ?id=nightly {depth: 3}",
        lanes=[Lane("slow", concurrency=2, tasks=["hold"])],
    )  # fmt: skip
    await utils.add_job("hold", queue_name="q")
    await utils.add_job("hold", queue_name="other")
    await gate.until_inside(2)
    await utils.add_job("hold", queue_name="q")
    await utils.queues.pause("paused", reason="bank is down", until=timedelta(days=1))
    await utils.pause(task="tidy", reason="deploy")
    await utils.schedules.pause("nightly")

    async def is_reported() -> bool:
        found = (await http.get(f"{API}/worker", params={"id": runner.pool_id})).json()
        return len(found["running"] or ()) == 2

    await until(is_reported)

    async def command(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "graphile_worker", *arguments, "--json", "-c", database_url,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(output)

    listing = (await http.get(f"{API}/workers")).json()["items"]
    assert_has(listing, await command("workers"))
    queues = {queue["queue_name"]: queue for queue in (await http.get(f"{API}/queues")).json()["items"]}
    for queue in await command("queues"):
        del queue["jobs"]  # with those that run: the dashboard does not count them
        assert_has(queues[queue["queue_name"]], queue)
    schedules = (await http.get(f"{API}/schedules")).json()["items"]
    assert_has(schedules, await command("schedules"))
    pauses = {pause["task_identifier"]: pause for pause in await command("pause")}
    task = (await http.get(f"{API}/task", params={"name": "tidy"})).json()["task"]
    assert task["pause"] == pauses["tidy"]
    again = await post(http, "/tasks/pause", {"name": "tidy", "reason": "deploy"})
    assert again.keys() == pauses["tidy"].keys()


# -- rows of another version ---------------------------------------------------------------------------------

SHAPES = [
    "null", "7", '"text"', "true", "[]", "{}", "[null]", "[1, 2]", '[{"name": "old"}]', "[[1]]",
    '[["1", "2"]]', '[{"name": "new", "slots": "3", "tasks": null, "weight": {"a": []}}]',
    '{"is_listening": "yes", "clock": [], "executors": 5, "task": 1, "since": "never", "unique": 9}',
    '{"type": ["object"], "properties": [1], "required": 5, "$defs": {"a": {"$ref": "#/$defs/a"}}}',
    "[[9223372036854775808, 1e308]]", "[[1, -1e300], {}]",
]  # fmt: skip
JSON_COLUMNS = """
select table_name, column_name
from information_schema.columns
join pg_class on oid = to_regclass(table_schema || '.' || table_name) and not relispartition
where table_schema = 'graphile_worker' and table_name like '\\_private\\_py\\_%'
  and data_type in ('json', 'jsonb') and is_generated = 'NEVER'
order by 1, 2
"""


async def test_rows_of_another_version_break_no_page(
    http: httpx.AsyncClient, utils: WorkerUtils, workers: Workers, database_url: str, jobs: Jobs
) -> None:
    gate = Gate()
    await workers.start(
        {"hold": gate, "tidy": tidy}, connection_string=database_url, app_version="1.4.2", crontab=CRONTAB,
    )  # fmt: skip
    await utils.add_job("hold", queue_name="q", job_key="k")
    await gate.until_inside(1)
    await post(http, "/tasks/pause", {"name": "tidy", "reason": "deploy"})
    connection = jobs.connection
    await connection.execute("set search_path = graphile_worker")
    await connection.execute("update _private_py_workers set heartbeat_interval = interval '1 day'")
    columns = [tuple(row) for row in await connection.fetch(JSON_COLUMNS)]
    assert ("_private_py_workers", "lanes") in columns
    pages = [route.path for route in ROUTES if is_readable(route) and route.path not in WHOLE]
    visited = [address for path in pages if (address := await address_in(connection, path)) is not None]
    complaints = []
    for shape in SHAPES:
        for table, column in columns:
            with suppress(asyncpg.NotNullViolationError, asyncpg.CheckViolationError):
                await connection.execute(f"update {table} set {column} = $1::text::jsonb", shape)
        for address in visited:
            answer = await http.get(address)
            if answer.status_code not in (200, 404):
                complaints.append(f"{address} beside {shape}: {answer.status_code}")
    assert not complaints, "\n".join(complaints)


async def test_the_jobs_of_a_worker_of_another_runtime_are_recovered(
    http: httpx.AsyncClient, utils: WorkerUtils, jobs: Jobs
) -> None:
    job = await utils.add_job("hold", queue_name="q")
    await jobs.connection.execute(
        "update graphile_worker._private_jobs set locked_by = $1, locked_at = now(), attempts = 3", RUST
    )
    await jobs.connection.execute(
        "update graphile_worker._private_job_queues set locked_by = $1, locked_at = now()", RUST
    )
    page = (await http.get("/worker", params={"id": RUST})).text
    assert "Recover its jobs" in page
    asked = await http.post("/workers/unlock", data={"id": RUST})
    assert "1 job of it returns to the queue, the attempt does not count" in asked.text
    assert (await http.post(f"{API}/workers/unlock", json={"id": RUST})).status_code == 409
    done = await post(http, "/workers/unlock", {"id": RUST, "typed": RUST})
    assert done["done"] == "1 job returned to the queue."
    row = await jobs.one()
    assert (row["id"], row["locked_by"], row["attempts"]) == (job.id, None, 2)
    assert [queue["locked_by"] for queue in await jobs.queues()] == [None]

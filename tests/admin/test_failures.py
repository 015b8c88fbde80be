"""Failures: error groups, and retrying them carefully."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from admin.test_operations import ended
from graphile_worker import WorkerUtils, run_once
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.failures.plain_groups import shared_members
from graphile_worker.admin.security.redact import HIDDEN
from graphile_worker.database.sql import load
from graphile_worker.options import JobFilter
from graphile_worker.values.schema_name import SchemaName
from support.working import PATIENCE, until

SCHEMA = "graphile_worker"


class Shop:
    """A task that fails for some payloads, until it is mended."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.broken: set[Any] = {"all"}

    async def charge(self, payload: Any) -> None:
        await asyncio.sleep(0)
        if "all" in self.broken or payload["n"] in self.broken:
            raise ValueError(f"card {payload['n']} was declined")

    async def run(self) -> None:
        await run_once(connection_string=self.url, task_list={"charge": self.charge})


@pytest.fixture
def shop(database_url: str) -> Shop:
    return Shop(database_url)


async def fail(utils: WorkerUtils, shop: Shop, number: int, **options: Any) -> list[int]:
    """Jobs that have failed permanently, one group of errors."""
    jobs = [
        await utils.add_job(
            "charge",
            {"n": n, "country": "CH", "token": "geheim", "mail": f"{n}@example.com"},
            max_attempts=1,
            **options,
        )
        for n in range(number)
    ]
    await shop.run()
    return [job.id for job in jobs]


async def group_of(http: httpx.AsyncClient) -> Any:
    (group,) = (await http.get("/api/v1/failures")).json()["items"]
    return group


async def test_a_group_says_what_its_jobs_share(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop, connection: Any
) -> None:
    ids = await fail(utils, shop, 5)
    group = await group_of(http)
    assert (group["task_identifier"], group["error_type"]) == ("charge", "ValueError")
    assert group["failed"] == {"value": 5, "kind": "exact"}
    assert (group["retrying"]["value"], group["is_new"], sum(group["bars"])) == (0, True, 5)
    found = (await http.get(f"/api/v1/failures/{group['fingerprint']}")).json()
    assert found["shared"] == [{"path": "country", "value": '"CH"', "jobs": 5, "of": 5}]
    assert "geheim" not in str(found)
    assert {job["id"] for job in found["jobs"]} == set(ids)
    assert "was declined" in found["error"]
    page = await http.get(f"/failures/{group['fingerprint']}")
    assert page.status_code == 200
    assert "country" in page.text
    assert "Traceback" in page.text
    listing = await http.get("/failures", params={"period": "7d"})
    assert group["fingerprint"] in listing.text
    assert (await http.get("/api/v1/failures/0123456789abcdef")).status_code == 404
    assert (await http.get("/failures/x' or true")).status_code == 404
    # Not every error is kept, but a group that began in the period has counted all of them.
    groups = f"{SCHEMA}._private_py_error_groups"
    await connection.execute(f"update {groups} set errors = 900")
    assert (await group_of(http))["attempts"] == {"value": 900, "kind": "exact"}
    await connection.execute(f"update {groups} set first_at = now() - interval '9 days'")
    assert (await group_of(http))["attempts"]["value"] == 5


async def test_a_careful_retry_sends_one_job_first(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop, connection: Any
) -> None:
    await fail(utils, shop, 6)
    shop.broken.clear()
    group = await group_of(http)
    path = f"/api/v1/failures/{group['fingerprint']}/retry"
    begun = (await http.post(path, json={"rate": 100})).json()
    assert begun["expected"] == {"value": 6, "kind": "exact"}
    again = await http.post(path, json={"rate": 100})
    assert again.status_code == 409  # one at a time

    async def is_waiting() -> bool:
        return bool((await http.get(f"/api/v1/operations/{begun['id']}")).json()["waiting"])

    await until(is_waiting, every=0.05)
    ready = await connection.fetchval(f"select count(*) from {SCHEMA}._private_jobs where is_available")
    assert ready == 1  # the others wait for the first
    running = asyncio.create_task(work(shop, http, begun["id"]))
    done = await ended(http, begun["id"])
    await running
    assert (done["state"], done["changed"], done["succeeded"], done["gone"]) == ("done", 6, 6, 0)


async def work(shop: Shop, http: httpx.AsyncClient, operation_id: int) -> None:
    """A worker that runs what is ready until the operation has ended."""
    while (await http.get(f"/api/v1/operations/{operation_id}")).json()["finished_at"] is None:
        await shop.run()


async def test_a_careful_retry_counts_jobs_apart_that_did_not_complete(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    """One is deleted through the dashboard, one is cancelled by a program; neither is a proof."""
    await fail(utils, shop, 4, keep=True)
    shop.broken.clear()
    group = await group_of(http)
    begun = (await http.post(f"/api/v1/failures/{group['fingerprint']}/retry", json={})).json()
    first = await _retried(utils)
    await http.post("/api/v1/jobs/actions", json={"action": "delete", "ids": [first]})
    second = await _retried(utils, first)
    await utils.jobs.cancel(second)
    await _retried(utils, first, second)
    found = (await http.get(f"/api/v1/operations/{begun['id']}")).json()
    assert (found["changed"], found["succeeded"], found["gone"], found["waiting"]) == (3, 0, 2, 1)
    assert "deleted, cancelled or expired" in (await http.get(f"/operations/{begun['id']}")).text
    running = asyncio.create_task(work(shop, http, begun["id"]))
    done = await ended(http, begun["id"])
    await running
    assert (done["state"], done["changed"], done["succeeded"], done["gone"]) == ("done", 4, 2, 2)


async def _retried(utils: WorkerUtils, *earlier: int) -> int:
    """The job that a careful retry has sent, once it is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for job in await utils.jobs.list(JobFilter(state="ready")):
                if job.id not in earlier:
                    return job.id


async def test_a_careful_retry_stops_at_the_first_failure(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    await fail(utils, shop, 4)
    group = await group_of(http)
    path = f"/api/v1/failures/{group['fingerprint']}/retry"
    begun = (await http.post(path, json={})).json()
    running = asyncio.create_task(work(shop, http, begun["id"]))
    done = await ended(http, begun["id"])
    await running
    assert (done["state"], done["changed"]) == ("stopped", 1)
    assert "failed again" in done["note"]
    assert "was declined" in done["note"]


async def test_a_careful_retry_stops_when_a_later_job_fails_and_survives_a_restart(
    database_url: str, utils: WorkerUtils, shop: Shop
) -> None:
    await fail(utils, shop, 6)
    shop.broken = {3}
    first = admin_app(connection_string=database_url, authorize=everyone_may)
    async with client_of(first) as http:
        group = await group_of(http)
        begun = (await http.post(f"/api/v1/failures/{group['fingerprint']}/retry", json={"rate": 1})).json()
    await first.aclose()
    second = admin_app(connection_string=database_url, authorize=everyone_may)
    try:
        async with client_of(second) as http:
            running = asyncio.create_task(work(shop, http, begun["id"]))
            done = await ended(http, begun["id"])
            await running
    finally:
        await second.aclose()
    assert done["state"] == "stopped"
    assert 2 <= done["changed"] <= 6
    assert "A retried job" in done["note"]


async def test_give_up_on_a_group_and_mute_it(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    ids = await fail(utils, shop, 3)
    group = await group_of(http)
    path = f"/failures/{group['fingerprint']}"
    question = await http.get(f"{path}/actions", params={"action": "delete"})
    assert "<strong>3 jobs</strong>" in question.text
    begun = await http.post(f"{path}/actions", data={"action": "delete", "confirmed": "yes"})
    done = await ended(http, int(begun.headers["location"].rpartition("/")[2]))
    assert done["changed"] == 3
    assert await utils.jobs.get(ids[0]) is None
    muted = await http.post(f"{path}/mute", data={"reason": "known"})
    assert muted.status_code == 303
    found = (await http.get("/api/v1/failures")).json()
    assert (found["items"], found["muted"][0]["muted_by"]) == ([], "anonymous")
    assert "Muted" in (await http.get("/failures")).text
    await http.post(f"{path}/unmute")
    assert (await http.get("/api/v1/failures")).json()["muted"] == []


async def test_without_a_history_of_errors(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """As in a schema that only Node installed: groups of last errors, and it says so."""
    jobs = [await utils.add_job("a", {"n": n}) for n in range(3)]
    await utils.permanently_fail_jobs([jobs[0].id, jobs[1].id], "TypeError: x of 12 is undefined")
    await utils.permanently_fail_jobs([jobs[2].id], "RangeError: password=geheim is too long")
    for table in (
        "errors", "error_groups", "task_names", "history", "audit", "before", "operations", "muted_errors",
    ):  # fmt: skip
        await connection.execute(f"drop table {SCHEMA}._private_py_{table}")
    await connection.execute(f"drop index {SCHEMA}._private_py_jobs_failed_index")
    found = (await http.get("/api/v1/failures")).json()
    assert (found["has_tables"], len(found["items"])) == (False, 2)
    assert "5,000" in found["note"]
    assert "geheim" not in str(found)
    group = found["items"][1]
    assert (group["error_type"], group["failed"]["value"]) == ("TypeError", 2)
    assert "5,000" in (await http.get("/failures")).text
    page = await http.get(f"/failures/{group['fingerprint']}")
    assert "Retry these 2" in page.text
    answer = await http.post(f"/api/v1/failures/{group['fingerprint']}/retry", json={})
    assert answer.status_code == 409


@pytest.mark.parametrize(
    "ids",
    [[], [5], [5, 4, 4], [31, 32, 33], [1, 100], [-1, 0, 2**63 - 1, 64], list(range(100, 0, -1))],
    ids=str,
)
async def test_jobs_are_looked_up_by_id(database_url: str, ids: list[int]) -> None:
    """Neighbours are read as ranges: all that were asked for are found, once, and no others."""
    connection: Any = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            "insert into graphile_worker._private_tasks (identifier) values ('t');"
            "insert into graphile_worker._private_jobs (id, task_id, attempts) overriding system value"
            " select n, (select id from graphile_worker._private_tasks), abs(n) % 2"
            " from generate_series(-40, 100) n where abs(n) % 7 <> 3"
        )
        rows = await connection.fetch(load("admin/current_states", SchemaName()), ids)
    finally:
        await connection.close()
    found = sorted({n for n in ids if n <= 100 and abs(n) % 7 != 3})
    assert [(row["id"], row["state"]) for row in rows] == [
        (n, "retrying" if n % 2 else "ready") for n in found
    ]


def test_shared_members_leave_out_what_is_redacted() -> None:
    trace = '{"trace_id": "1", "span_id": "2"}'
    payloads = [
        f'{{"_trace": {trace}, "a": {{"b": 1}}, "n": {n}, "secret": "{HIDDEN}", "list": [1]}}'
        for n in range(4)
    ]
    payloads.append('{"a": {"b": 2}}')
    assert [(each.path, each.value, each.jobs, each.of) for each in shared_members(payloads)] == [
        ("a.b", "1", 4, 5)
    ]
    assert shared_members(["{}", "x", "[]"]) == []

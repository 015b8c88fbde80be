"""Failures: error groups, and retrying them carefully."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from admin.test_operations import ended
from graphile_worker import JobSpec, WorkerUtils, run_once
from graphile_worker.admin import admin_app, everyone_may
from graphile_worker.admin.failures.queries import shared_members
from graphile_worker.admin.security.redact import HIDDEN
from graphile_worker.database.sql import load
from graphile_worker.history.error_groups import ErrorGroup, ErrorMatcher
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

    async def settle(self, payload: Any) -> None:
        """Three kinds of errors from one task."""
        await asyncio.sleep(0)
        if "all" not in self.broken:
            return
        n = payload["n"]
        if n % 3 == 0:
            raise ValueError(f"card {n} was declined")
        if n % 3 == 1:
            raise KeyError(f"account-{n}")
        raise RuntimeError(f"the bank says {'x' * 700} {n}\nand some more")

    async def run(self) -> None:
        tasks = {"charge": self.charge, "settle": self.settle}
        await run_once(connection_string=self.url, task_list=tasks, concurrency=10)


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


async def groups_of(http: httpx.AsyncClient) -> dict[str, Any]:
    """Groups by the types of their errors."""
    found = (await http.get("/api/v1/failures")).json()["items"]
    return {group["error_type"]: group for group in found}


async def test_every_job_of_a_group_is_reached_although_few_errors_were_kept(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop, connection: Any
) -> None:
    """3,000 jobs of three groups: the list, the page, the overview, the dialog and the result agree."""
    await utils.add_jobs([JobSpec("settle", {"n": n}, max_attempts=1) for n in range(3_000)])
    await shop.run()
    kept = await connection.fetchval(f"select count(*) from {SCHEMA}._private_py_errors")
    assert kept < 1_000  # of 3,000
    groups = await groups_of(http)
    assert {name: group["failed"] for name, group in groups.items()} == {
        name: {"value": 1_000, "kind": "exact"} for name in ("ValueError", "KeyError", "RuntimeError")
    }
    shop.broken.clear()
    for name, left in (("RuntimeError", 2_000), ("ValueError", 1_000)):
        path = f"/failures/{groups[name]['fingerprint']}"
        assert "1,000" in (await http.get(path)).text
        overview = (await http.get("/api/v1/overview")).json()["errors"]
        shown = {each["fingerprint"]: each["failed"]["value"] for each in overview}
        assert shown[groups[name]["fingerprint"]] == 1_000
        question = await http.get(f"{path}/actions", params={"action": "carefully"})
        assert "<strong>1,000 jobs</strong>" in question.text
        begun = (await http.post(f"/api/v1{path}/retry", json={"rate": 100_000})).json()
        assert begun["expected"] == {"value": 1_000, "kind": "exact"}
        running = asyncio.create_task(work(shop, http, begun["id"]))
        done = await ended(http, begun["id"])
        await running
        assert (done["state"], done["changed"], done["succeeded"]) == ("done", 1_000, 1_000)
        assert done["message"] == "1,000 of 1,000 jobs changed."
        assert await connection.fetchval(f"select count(*) from {SCHEMA}._private_jobs") == left
        found = (await http.get(f"/api/v1{path}")).json()["group"]
        assert (found["failed"]["value"], found["retrying"]["value"]) == (0, 0)
        page = await http.get(f"/operations/{begun['id']}")
        assert "1,000 of 1,000 jobs changed." in page.text
        assert "/stop" not in page.text
        assert "has started" not in page.text


async def test_after_a_part_was_retried_the_page_tells_what_is_left(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    ids = await fail(utils, shop, 1_300)
    await utils.jobs.retry("charge", up_to=ids[149])
    group = await group_of(http)
    assert group["failed"] == {"value": 1_150, "kind": "exact"}
    path = f"/failures/{group['fingerprint']}"
    page = await http.get(path)
    assert "1,150" in page.text
    assert "No job of this group" not in page.text
    question = await http.get(f"{path}/actions", params={"action": "retry"})
    assert "Type 1150 to confirm" in question.text
    form = {"action": "retry", "confirmed": "yes"}
    wrong = await http.post(f"{path}/actions", data={**form, "typed": "4,342"})
    assert wrong.status_code == 409
    assert "The number that was typed is 4,342, but 1,150 jobs match now." in wrong.text
    begun = await http.post(f"{path}/actions", data={**form, "typed": "1,150"})
    done = await ended(http, int(begun.headers["location"].rpartition("/")[2]))
    assert (done["changed"], done["message"]) == (1_150, "1,150 of 1,150 jobs changed.")


async def test_jobs_that_wait_for_another_attempt_are_counted_and_changed(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    await utils.add_jobs([JobSpec("charge", {"n": n}, max_attempts=1 + n % 2) for n in range(40)])
    await shop.run()
    group = await group_of(http)
    assert (group["failed"]["value"], group["retrying"]["value"]) == (20, 20)
    path = f"/failures/{group['fingerprint']}"
    for page in ("/failures", path):
        assert "no attempts left" not in (await http.get(page)).text
    question = await http.get(f"{path}/actions", params={"action": "delete"})
    assert "<strong>40 jobs</strong>" in question.text
    assert "20 have failed permanently, 20 wait for another attempt." in question.text
    begun = (await http.post(f"/api/v1{path}/actions", json={"action": "delete"})).json()
    done = await ended(http, begun["id"])
    assert done["changed"] == 40


async def test_jobs_of_a_group_get_a_priority_or_one_attempt_more(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop
) -> None:
    """As those of a filter: the question is the same."""
    await utils.add_jobs([JobSpec("charge", max_attempts=2)] * 3)
    await shop.run()
    path = f"/failures/{(await group_of(http))['fingerprint']}/actions"
    for fields, expected in (
        ({"action": "reschedule", "priority": "-5"}, {(-5, 1, 2)}),
        ({"action": "reschedule", "attempts": "2"}, {(-5, 2, 2)}),
        ({"action": "retry", "one_more": "1"}, {(-5, 2, 3)}),
    ):
        field = next(name for name in fields if name != "action")
        assert f'name="{field}"' in (await http.get(path, params={"action": fields["action"]})).text
        begun = await http.post(path, data={**fields, "confirmed": "yes"})
        await ended(http, int(begun.headers["location"].rpartition("/")[2]))
        jobs = await utils.jobs.list()
        assert {(job.priority, job.attempts, job.max_attempts) for job in jobs} == expected


async def test_many_jobs_are_estimated_and_the_result_is_exact(
    http: httpx.AsyncClient,
    utils: WorkerUtils,
    shop: Shop,
    connection: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphile_worker.admin.failures.counts.EXACT", 100)
    monkeypatch.setattr("graphile_worker.admin.failures.counts.PAGES", 20)  # about a third of them
    await fail(utils, shop, 1_500)
    await connection.execute(f"vacuum full {SCHEMA}._private_jobs")  # else most pages have only dead rows
    group = await group_of(http)
    assert group["failed"]["kind"] == "estimate"
    assert 500 <= group["failed"]["value"] <= 1_500
    path = f"/failures/{group['fingerprint']}/actions"
    dry = (await http.post(f"/api/v1{path}", json={"action": "delete", "dry_run": True})).json()
    assert dry["count"] == group["failed"]
    assert "The number is an estimate" in (await http.get(path, params={"action": "delete"})).text
    confirmed = {"action": "delete", "confirm": dry["count"]["value"]}
    begun = (await http.post(f"/api/v1{path}", json=confirmed)).json()
    done = await ended(http, begun["id"])
    assert done["message"] == "1,500 of 1,500 jobs changed."


async def test_errors_that_look_alike_are_named_before_the_click(
    http: httpx.AsyncClient, utils: WorkerUtils, shop: Shop, connection: Any
) -> None:
    """Redacted to nothing, the errors of two groups cannot be told apart, except those that were kept."""
    await utils.add_jobs([JobSpec("settle", {"n": n}, max_attempts=1) for n in range(9)])
    await shop.run()
    for table, column in (("jobs", "last_error"), ("py_errors", "message"), ("py_error_groups", "message")):
        await connection.execute(f"update {SCHEMA}._private_{table} set {column} = '[hidden]'")
    last = await connection.fetchval(f"select max(id) from {SCHEMA}._private_jobs")
    await connection.execute(f"delete from {SCHEMA}._private_py_errors where job_id > $1", last - 6)
    group = (await groups_of(http))["ValueError"]
    assert group["failed"]["value"] == 1
    path = f"/failures/{group['fingerprint']}/actions"
    question = await http.get(path, params={"action": "retry"})
    assert "<strong>1 job</strong>" in question.text
    assert "6 more jobs may be of this group" in question.text
    begun = (await http.post(f"/api/v1{path}", json={"action": "retry"})).json()
    assert (await ended(http, begun["id"]))["changed"] == 1


def test_the_group_of_a_text() -> None:
    """By what was kept, else by type, message and place; several if they look alike."""
    now = datetime.now(UTC)

    def group(mark: str, kind: str, message: str, place: str) -> ErrorGroup:
        return ErrorGroup(mark, "t", kind, message, place, now, now, 1, 1, 1, None, None)

    groups = [
        group("a", "shop.Refused", "card 17 of 'Ann'", "/srv/shop/tasks.py in charge"),
        group("b", "shop.Refused", "card 17 of 'Ann'", "/srv/shop/bank.py in charge"),
        group("c", "KeyError", "KeyError", "/srv/shop/tasks.py in charge"),
        group("d", "TaskTimeoutError", "took longer than 5 s", ""),
    ]
    found = ErrorMatcher(groups, [("t", "e", "Odd: thing 1\n  at lib/x.py, line 3, in y")]).groups_of
    here = "\n  at shop/tasks.py, line 12, in charge"
    assert found("t", f"shop.Refused: card 99 of 'Bob'{here}") == {"a"}
    assert found("t", f"shop.Refused: card 99 of 'Bob'\nmore{here}") == {"a"}
    assert found("t", "shop.Refused: card 1 of 'Bob'\n  at shop/bank.py, line 1, in charge") == {"b"}
    assert found("t", "shop.Refused: card 1 of 'Bob'") == {"a", "b"}
    assert found("t", f"KeyError{here}") == {"c"}
    assert found("t", "took longer than 70 s") == {"d"}
    assert found("t", "Odd: thing 22\n  at lib/x.py, line 9, in y") == {"e"}
    assert found("t", f"shop.Other: card 99 of 'Bob'{here}") == frozenset()
    assert found("u", f"shop.Refused: card 99 of 'Bob'{here}") == frozenset()


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


async def test_the_note_of_a_careful_retry_tells_no_secret(
    http: httpx.AsyncClient, utils: WorkerUtils, database_url: str
) -> None:
    async def connect(payload: Any) -> None:
        raise ValueError("login refused: password=geheim postgres://bob:geheim@db/x")

    async def run() -> None:
        await run_once(connection_string=database_url, task_list={"connect": connect})

    await utils.add_jobs([JobSpec("connect", max_attempts=1)] * 2)
    await run()
    path = f"/api/v1/failures/{(await group_of(http))['fingerprint']}/retry"
    begun = (await http.post(path, json={})).json()
    while (await http.get(f"/api/v1/operations/{begun['id']}")).json()["finished_at"] is None:
        await run()
    answers = [await http.get(f"{root}/operations/{begun['id']}") for root in ("", "/api/v1")]
    assert "login refused" in answers[0].text
    assert not any("geheim" in answer.text for answer in answers)


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

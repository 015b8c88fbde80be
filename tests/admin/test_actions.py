"""Actions on jobs that are named by id."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import httpx
import pytest

from admin.conftest import client_of
from graphile_worker import WorkerUtils
from graphile_worker.admin import admin_app, everyone_may
from support.working import PATIENCE

SCHEMA = "graphile_worker"


async def act(http: httpx.AsyncClient, action: str, ids: list[int], **more: Any) -> Any:
    answer = await http.post("/api/v1/jobs/actions", json={"action": action, "ids": ids, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def lock(connection: Any, job_id: int) -> None:
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = 'w' where id = $1", job_id
    )


async def test_every_id_is_answered(http: httpx.AsyncClient, utils: WorkerUtils, connection: Any) -> None:
    """Changed, or skipped with the reason."""
    waiting, running = [(await utils.add_job("a")).id for _ in range(2)]
    await lock(connection, running)
    answer = await act(http, "delete", [waiting, running, 99_999])
    assert answer["changed"] == [waiting]
    assert {job["id"]: job["why"] for job in answer["skipped"]} == {running: "running", 99_999: "gone"}
    assert answer["message"] == f"Deleted job {waiting}. 2 jobs skipped (1 gone, 1 running)."


async def test_run_now_revives_a_failed_job_and_says_so(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    heard = asyncio.Event()
    await connection.add_listener("jobs:insert", lambda *_: heard.set())
    job = await utils.add_job("a", max_attempts=1)
    await utils.permanently_fail_jobs([job.id])
    await asyncio.wait_for(heard.wait(), PATIENCE)
    heard.clear()
    answer = await act(http, "run_now", [job.id])
    assert answer["retried"] == [job.id]
    assert "This is a retry" in answer["message"]
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert details.state == "ready"
    assert details.attempts == 0
    await asyncio.wait_for(heard.wait(), PATIENCE)  # workers start at once


async def test_one_more_attempt(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a", max_attempts=3)
    await utils.permanently_fail_jobs([job.id])
    await act(http, "retry", [job.id], one_more=True)
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert (details.attempts, details.max_attempts) == (3, 4)


async def test_give_up_names_the_person(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a")
    await act(http, "give_up", [job.id], reason="bank is down")
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert details.state == "failed"
    assert details.last_error == "Given up by anonymous: bank is down"


async def test_add_again_keeps_the_values(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    """Except for the key. Large numbers stay what they are."""
    job = await utils.add_job(
        "a", {"n": 12345678901234567890123}, queue_name="q", priority=3, max_attempts=7, job_key="k",
        flags=["f"],
    )  # fmt: skip
    answer = await act(http, "add_again", [job.id])
    (added,) = answer["added"]
    again = await utils.jobs.get(added)
    assert again is not None
    assert (again.raw_payload, again.queue_name, again.priority, again.max_attempts, again.key) == (
        '{"n":12345678901234567890123}', "q", 3, 7, None,
    )  # fmt: skip
    assert again.flags == {"f": True}


async def test_reschedule_needs_a_change(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    answer = await http.post("/api/v1/jobs/actions", json={"action": "reschedule", "ids": [1]})
    assert answer.status_code == 400
    job = await utils.add_job("a")
    await act(http, "reschedule", [job.id], run_at="2040-01-01T00:00:00Z", priority=-5)
    details = await utils.jobs.get(job.id)
    assert details is not None
    assert (details.state, details.priority) == ("scheduled", -5)


async def test_a_job_that_changed_state_is_skipped(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a")
    answer = await act(http, "delete", [job.id], state="failed")
    assert answer["skipped"][0]["why"] == "changed"


async def test_cancel_asks_the_worker(http: httpx.AsyncClient, utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("a")
    await lock(connection, job.id)
    answer = await act(http, "cancel", [job.id], reason="wrong file")
    assert (answer["changed"], answer["asked"], answer["undo"]) == ([job.id], [job.id], None)
    reason = await connection.fetchval(f"select reason from {SCHEMA}._private_py_cancels")
    assert reason == "cancelled by anonymous: wrong file"


async def test_two_people_delete_the_same_job(
    http: httpx.AsyncClient, utils: WorkerUtils, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both requests are under way at once; exactly one deletes it, and the other is told that it is gone."""
    monkeypatch.setattr("graphile_worker.admin.database.LOCK_WITHIN", 60_000)  # neither may give up
    job = await utils.add_job("a")
    holder = await asyncpg.connect(database_url)
    try:
        async with holder.transaction():  # both wait for this row
            await holder.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", job.id)
            both = [asyncio.create_task(act(http, "delete", [job.id])) for _ in range(2)]
            waiting = 0
            while waiting < 2:
                waiting = await holder.fetchval(
                    "select count(*) from pg_locks where not granted and locktype <> 'advisory'"
                )
        answers = await asyncio.gather(*both)
    finally:
        await holder.close()
    assert sorted(len(answer["changed"]) for answer in answers) == [0, 1]
    (loser,) = [answer for answer in answers if not answer["changed"]]
    assert loser["skipped"][0]["why"] in ("gone", "changed")


async def test_a_row_that_stays_locked_is_skipped(
    http: httpx.AsyncClient, utils: WorkerUtils, database_url: str
) -> None:
    free, held = [(await utils.add_job("a")).id for _ in range(2)]
    holder = await asyncpg.connect(database_url)
    try:
        async with holder.transaction():
            await holder.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", held)
            answer = await act(http, "delete", [free, held])
    finally:
        await holder.close()
    assert answer["changed"] == [free]
    assert answer["skipped"] == [
        {
            "id": held,
            "why": "busy",
            "detail": "a worker or another transaction has locked its row at the moment; try again",
        }
    ]


@pytest.mark.parametrize("ids", [[], list(range(201))])
async def test_between_one_and_200_ids(http: httpx.AsyncClient, ids: list[int]) -> None:
    answer = await http.post("/api/v1/jobs/actions", json={"action": "delete", "ids": ids})
    assert answer.status_code == 400


async def test_a_role_that_may_not_write_is_told(
    database_url: str, utils: WorkerUtils, connection: Any
) -> None:
    """Nothing is changed, and the answer says what is missing."""
    job = await utils.add_job("a")
    role = f"reader_{job.id}_{id(connection)}"
    await connection.execute(f"create role {role} login")
    try:
        await connection.execute(
            f"grant usage on schema {SCHEMA} to {role}; "
            f"grant select on all tables in schema {SCHEMA} to {role}"
        )
        app = admin_app(connection_string=_as_role(database_url, role), authorize=everyone_may)
        async with client_of(app) as http:
            body = {"action": "delete", "ids": [job.id]}
            answer = await http.post("/api/v1/jobs/actions", json=body)
            assert answer.status_code == 403, answer.text
            assert "role" in answer.json()["detail"]
            operation = await http.post("/api/v1/operations", json={"action": "delete", "filter": "task:a"})
            assert operation.status_code == 403
            for path in ("/audit", "/operations", "/failures"):
                assert (await http.get(path)).status_code == 200, path
        await app.aclose()
    finally:
        await connection.execute(f"drop owned by {role}; drop role {role}")
    assert await utils.jobs.get(job.id) is not None


def _as_role(url: str, role: str) -> str:
    return re.sub(r"//[^@/]*@", f"//{role}@", url)

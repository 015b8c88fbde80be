"""Undo, and the audit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import httpx

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.history.audit import purge_audit
from graphile_worker.values.schema_name import SchemaName

SCHEMA = "graphile_worker"


async def act(http: httpx.AsyncClient, action: str, ids: list[int], **more: Any) -> Any:
    answer = await http.post("/api/v1/jobs/actions", json={"action": action, "ids": ids, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def undo(http: httpx.AsyncClient, answer: Any) -> Any:
    found = await http.post(f"/api/v1/audit/{answer['undo']}/undo")
    assert found.status_code == 200, found.text
    return found.json()


async def test_a_deleted_job_comes_back_with_a_new_id(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    job = await utils.add_job(
        "a", {"big": 12345678901234567890, "text": "é\\u0000"[:1]}, queue_name="q", priority=4,
        max_attempts=9, job_key="k", flags=["f"], run_at=None,
    )  # fmt: skip
    before = await utils.jobs.get(job.id)
    deleted = await act(http, "delete", [job.id])
    assert await utils.jobs.get(job.id) is None
    # Its task and its queue may be gone as well.
    await connection.execute(f"delete from {SCHEMA}._private_job_queues")
    await connection.execute(f"delete from {SCHEMA}._private_tasks")
    answer = await undo(http, deleted)
    (restored,) = answer["restored"]
    assert restored["id"] == job.id
    assert f"Job {job.id} is back as job {restored['new_id']}." in answer["message"]
    after = await utils.jobs.get(restored["new_id"])
    assert before is not None
    assert after is not None
    for name in (
        "task_identifier", "raw_payload", "queue_name", "priority", "max_attempts", "key", "flags", "run_at",
        "created_at", "state",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name


async def test_a_key_that_is_taken_keeps_the_job_away(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a", job_key="k")
    deleted = await act(http, "delete", [job.id])
    await utils.add_job("a", job_key="k")
    answer = await undo(http, deleted)
    assert answer["restored"] == []
    assert answer["left"][0]["detail"] == "another job has its key by now"


async def test_only_what_is_unchanged_is_put_back(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    same, changed, running, gone, ran = [
        (await utils.add_job("a", run_at=None, priority=7)).id for _ in range(5)
    ]
    ids = [same, changed, running, gone, ran]
    done = await act(http, "reschedule", ids, priority=1)
    await utils.reschedule_jobs([changed], priority=2)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = 'w' where id = $1", running
    )
    await utils.complete_jobs([gone])
    # An attempt that failed does not touch updated_at.
    await connection.execute(f"update {SCHEMA}._private_jobs set attempts = 1 where id = $1", ran)
    answer = await undo(http, done)
    assert [job["id"] for job in answer["restored"]] == [same]
    assert {job["id"]: job["why"] for job in answer["left"]} == {
        changed: "changed", running: "running", gone: "gone", ran: "changed",
    }  # fmt: skip
    job = await utils.jobs.get(same)
    assert job is not None
    assert job.priority == 7


async def test_an_added_job_is_removed_again(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    job = await utils.add_job("a")
    added = await act(http, "add_again", [job.id])
    await undo(http, added)
    assert await utils.jobs.get(added["added"][0]) is None
    assert await utils.jobs.get(job.id) is not None


async def test_an_undo_happens_once(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    """Two people press Undo at the same time: one of them is told that the other was faster."""
    job = await utils.add_job("a")
    deleted = await act(http, "delete", [job.id])
    path = f"/api/v1/audit/{deleted['undo']}/undo"
    answers = await asyncio.gather(http.post(path), http.post(path))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert len(await utils.jobs.list()) == 1


async def test_what_is_older_than_a_day_cannot_be_undone(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    job = await utils.add_job("a")
    deleted = await act(http, "delete", [job.id])
    await connection.execute(f"delete from {SCHEMA}._private_py_before")
    answer = await http.post(f"/api/v1/audit/{deleted['undo']}/undo")
    assert answer.status_code == 409
    assert "24 hours" in answer.json()["detail"]


async def test_the_audit_says_who_did_what(http: httpx.AsyncClient, utils: WorkerUtils) -> None:
    jobs = [await utils.add_job("a") for _ in range(3)]
    await act(http, "give_up", [jobs[0].id], reason="bank is down")
    deleted = await act(http, "delete", [jobs[1].id, jobs[2].id])
    await undo(http, deleted)
    found = (await http.get("/api/v1/audit")).json()["items"]
    assert [entry["action"] for entry in found] == ["undo", "delete", "give_up"]
    assert found[2]["details"] == {"reason": "bank is down"}
    assert (found[2]["who"], found[2]["how"], found[2]["jobs"]) == ("anonymous", "open", 1)
    assert found[1]["undone_by"] == found[0]["id"]
    page = (await http.get("/api/v1/audit", params={"limit": 1})).json()
    assert [entry["action"] for entry in page["items"]] == ["undo"]
    more = (await http.get("/api/v1/audit", params={"limit": 1, "after": page["next"]})).json()
    assert [entry["action"] for entry in more["items"]] == ["delete"]
    for params, expected in (
        ({"action": "delete"}, ["delete"]),
        ({"who": "ada"}, []),
        ({"job": str(jobs[0].id)}, ["give_up"]),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"since": "2020-01-01T00:00:00"}, ["undo", "delete", "give_up"]),
    ):
        entries = (await http.get("/api/v1/audit", params=params)).json()["items"]
        assert [entry["action"] for entry in entries] == expected, params


async def test_what_is_old_is_deleted_in_steps(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    jobs = [await utils.add_job("a") for _ in range(3)]
    for job in jobs:
        await act(http, "delete", [job.id])
    assert await purge_audit(connection, SchemaName()) is False
    assert await connection.fetchval(f"select count(*) from {SCHEMA}._private_py_before") == 3
    await connection.execute(f"update {SCHEMA}._private_py_before set at = now() - interval '25 hours'")
    await connection.execute(f"update {SCHEMA}._private_py_audit set at = now() - interval '181 days'")
    assert await purge_audit(connection, SchemaName(), limit=2) is True
    assert await purge_audit(connection, SchemaName(), limit=2) is False
    for table in ("before", "audit"):
        assert await connection.fetchval(f"select count(*) from {SCHEMA}._private_py_{table}") == 0


async def test_commands_are_in_the_audit(
    http: httpx.AsyncClient, utils: WorkerUtils, database_url: str
) -> None:
    jobs = [await utils.add_job("a") for _ in range(2)]
    for arguments in (
        ["cancel", str(jobs[0].id), "--reason", "wrong file"],
        ["fail", "--task", "a", "--yes"],
        ["fail", "--task", "a", "--dry-run"],
        ["pause", "--queue", "imports"],
        ["pause"],
        ["list"],
    ):
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "graphile_worker", *arguments, "-c", database_url],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    found = (await http.get("/api/v1/audit")).json()["items"]
    assert [entry["action"] for entry in found] == ["pause", "give_up", "cancel"]
    assert {entry["how"] for entry in found} == {"command line"}
    assert (found[2]["jobs"], found[2]["job_ids"]) == (1, [jobs[0].id])
    assert "wrong file" in found[2]["target"]


async def test_an_undo_leaves_the_time_of_the_failure(
    http: httpx.AsyncClient, utils: WorkerUtils, connection: Any
) -> None:
    """An old failure does not become a new one, whether it was retried or deleted."""
    jobs = await utils.add_jobs([JobSpec("a", max_attempts=1)] * 2)
    ids = [job.id for job in jobs]
    await utils.permanently_fail_jobs(ids, "boom")
    await connection.execute(
        f"update {SCHEMA}._private_jobs set updated_at = updated_at - interval '4 days', "
        "run_at = run_at - interval '4 days'"
    )

    async def failed() -> list[Any]:
        found = (await http.get("/api/v1/jobs", params={"q": "state:failed"})).json()["items"]
        return sorted(job["failed_at"] for job in found)

    before = await failed()
    assert len(before) == 2
    await undo(http, await act(http, "retry", [ids[0]]))
    await undo(http, await act(http, "delete", [ids[1]]))
    assert await failed() == before


async def test_a_pause_that_was_resumed_cannot_be_undone(http: httpx.AsyncClient) -> None:
    for action, body in (("queues/pause", {"name": "q"}), ("queues/resume", {"name": "q"})):
        assert (await http.post(f"/api/v1/{action}", json=body)).status_code == 200
    entries = (await http.get("/api/v1/audit")).json()["items"]
    first = next(entry for entry in entries if entry["action"] == "pause_queue")
    assert first["can_undo"] is False
    assert f"/audit/{first['id']}/undo" not in (await http.get("/audit")).text
    refused = await http.post(f"/api/v1/audit/{first['id']}/undo")
    assert (refused.status_code, refused.json()["detail"]) == (409, "What was paused has been resumed since.")
    await http.post("/api/v1/queues/pause", json={"name": "q"})
    entries = (await http.get("/api/v1/audit")).json()["items"]
    assert entries[0]["can_undo"] is True
    assert (await http.post(f"/api/v1/audit/{entries[0]['id']}/undo")).status_code == 200
    assert (await http.get("/api/v1/overview")).json()["pauses"] == []

"""Adding with a key: replace, preserve_run_at and unsafe_dedupe on jobs in every state."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from sql_functions.jobs import (
    FAILED,
    LOCKED,
    STALE,
    add_job,
    add_jobs,
    all_jobs,
    job_by_id,
    names,
    payload_of,
    set_job,
)

LATER = datetime(2200, 1, 1, tzinfo=UTC)
LATEST = datetime(2300, 1, 1, tzinfo=UTC)
both = pytest.mark.parametrize("how", ["add_job", "add_jobs"])


async def add_keyed(
    connection: Any, how: str, identifier: str, *, preserve: bool = False, **spec: Any
) -> Any:
    """The same keyed job through either function."""
    if how == "add_job":
        mode = "preserve_run_at" if preserve else "replace"
        return await add_job(connection, identifier, job_key="k", job_key_mode=mode, **spec)
    (job,) = await add_jobs(connection, [{"identifier": identifier, "job_key": "k", **spec}], preserve)
    return job


@both
@pytest.mark.compat("AJ6")
async def test_a_waiting_job_takes_all_new_values(connection: Any, how: str) -> None:
    first = await add_keyed(
        connection, how, "old", payload='{"a":1}', queue_name="q", run_at=LATER, max_attempts=3, priority=4,
        flags=["f"],
    )  # fmt: skip
    await set_job(connection, first["id"], attempts="2", last_error="'broken'")
    second = await add_keyed(connection, how, "new", payload='{"b":2}')
    assert second["id"] == first["id"]
    assert second["created_at"] == first["created_at"]
    assert second["revision"] == 1
    assert second["updated_at"] == second["run_at"] > first["updated_at"]
    values = {name: second[name] for name in ("job_queue_id", "flags", "last_error", "attempts", "priority")}
    assert values == {"job_queue_id": None, "flags": None, "last_error": None, "attempts": 0, "priority": 0}
    assert (second["max_attempts"], payload_of(second)) == (25, {"b": 2})
    assert await connection.fetchval("select task_identifier from graphile_worker.jobs") == "new"
    assert await all_jobs(connection) == [second]


@both
@pytest.mark.compat("AJ6")
async def test_a_replacement_can_set_every_value(connection: Any, how: str) -> None:
    await add_keyed(connection, how, "old")
    job = await add_keyed(
        connection, how, "new", queue_name="q", run_at=LATER, max_attempts=3, priority=4, flags=["f"]
    )
    assert (job["run_at"], job["max_attempts"], job["priority"]) == (LATER, 3, 4)
    assert json.loads(job["flags"]) == {"f": True}
    assert await connection.fetchval("select queue_name from graphile_worker.jobs") == "q"


@both
@pytest.mark.compat("AJ6")
@pytest.mark.parametrize(
    ("old", "new", "stored"),
    [
        ("[1]", '[2, {"b":1,"a":2}]', '[1, 2, {"a": 2, "b": 1}]'),
        ("[]", "[]", "[]"),
        ("[1]", '{"a":1}', '{"a":1}'),
        ('{"a":1}', "[1]", "[1]"),
        ('{"a":1}', '{"b": 2,"a":1}', '{"b": 2,"a":1}'),
        ("[1]", None, "{}"),
        ("[1]", "null", "null"),
    ],
)
async def test_two_arrays_are_joined_and_anything_else_is_replaced(
    connection: Any, how: str, old: str, new: str | None, stored: str
) -> None:
    await add_keyed(connection, how, "a", payload=old)
    assert (await add_keyed(connection, how, "a", payload=new))["payload"] == stored


@both
@pytest.mark.compat("AJ6", "EXT-3")
@pytest.mark.parametrize(
    ("attempts", "preserve", "expected"),
    [(0, True, LATER), (0, False, LATEST), (2, True, LATEST), (2, False, LATEST)],
)
async def test_run_at_is_preserved_only_before_the_first_attempt(
    connection: Any, how: str, attempts: int, preserve: bool, expected: datetime
) -> None:
    job = await add_keyed(connection, how, "a", run_at=LATER)
    await set_job(connection, job["id"], attempts=str(attempts))
    again = await add_keyed(connection, how, "a", run_at=LATEST, preserve=preserve)
    assert (again["id"], again["run_at"], again["attempts"]) == (job["id"], expected, 0)


@pytest.mark.compat("AJ6", "A1")
async def test_a_null_preserve_flag_or_mode_means_replace(connection: Any) -> None:
    spec = {"identifier": "a", "job_key": "k", "run_at": LATER}
    await add_jobs(connection, [spec])
    (job,) = await add_jobs(connection, [spec | {"run_at": LATEST}], preserve=None)
    assert (job["run_at"], job["revision"]) == (LATEST, 1)
    job = await add_job(connection, "a", job_key="k", run_at=LATER, job_key_mode=None)
    assert (job["run_at"], job["revision"]) == (LATER, 2)


@both
@pytest.mark.compat("AJ3", "EXT-1")
@pytest.mark.parametrize("state", [LOCKED, STALE, FAILED], ids=["locked", "stale", "failed"])
async def test_a_job_that_cannot_wait_any_more_gives_up_its_key(
    connection: Any, how: str, state: dict[str, str]
) -> None:
    old = await add_keyed(
        connection, how, "a", payload='{"n": 1}', max_attempts=4, queue_name="q", flags=["f"]
    )
    await set_job(connection, old["id"], **state, updated_at="now() - interval '1 day'")
    old = await job_by_id(connection, old["id"])
    new = await add_keyed(connection, how, "a", payload="[2]")
    assert new["id"] != old["id"]
    assert (new["key"], new["revision"], new["attempts"], payload_of(new)) == ("k", 0, 0, [2])
    kept = dict(await job_by_id(connection, old["id"]))
    assert kept.pop("updated_at") > old["updated_at"]
    expected = dict(old) | {"key": None, "attempts": 4}
    expected.pop("updated_at")
    assert kept == expected


@pytest.mark.compat("AJ3")
async def test_several_keys_of_one_call_are_each_judged_by_their_own_job(connection: Any) -> None:
    keys = ("waiting", "locked", "failed", "new")
    old = {key: await add_job(connection, "a", payload='"old"', job_key=key) for key in keys[:3]}
    await set_job(connection, old["locked"]["id"], **LOCKED)
    await set_job(connection, old["failed"]["id"], **FAILED)
    added = await add_jobs(
        connection, [{"identifier": "b", "payload": f'"{key}"', "job_key": key} for key in keys]
    )
    assert [payload_of(job) for job in added] == list(keys)
    assert [job["revision"] for job in added] == [1, 0, 0, 0]
    assert added[0]["id"] == old["waiting"]["id"]
    assert [job["key"] for job in await all_jobs(connection) if payload_of(job) == "old"] == [None, None]
    assert len(await all_jobs(connection)) == 6


@pytest.mark.compat("AJ8", "EXT-4")
@pytest.mark.parametrize("state", [None, LOCKED, FAILED], ids=["waiting", "locked", "failed"])
async def test_the_same_key_twice_in_one_call_fails_the_whole_call(
    connection: Any, state: dict[str, str] | None
) -> None:
    job = await add_job(connection, "a", job_key="k")
    if state:
        await set_job(connection, job["id"], **state)
    before = await all_jobs(connection)
    specs = [{"identifier": "a", "job_key": "k"}, {"identifier": "b"}, {"identifier": "a", "job_key": "k"}]
    with pytest.raises(asyncpg.CardinalityViolationError) as refusal:
        await add_jobs(connection, specs)
    assert refusal.value.sqlstate == "21000"
    assert await all_jobs(connection) == before


@pytest.mark.compat("A2", "EXT-2")
@pytest.mark.parametrize("state", [None, LOCKED, FAILED], ids=["waiting", "locked", "failed"])
async def test_unsafe_dedupe_only_counts_the_repetition(
    connection: Any, state: dict[str, str] | None
) -> None:
    job = await add_job(connection, "a", payload="[1]", job_key="k", run_at=LATER)
    if state:
        await set_job(connection, job["id"], **state)
    before = dict(await job_by_id(connection, job["id"]))
    again = await add_job(
        connection,
        "other",
        payload="[2]",
        queue_name="q",
        job_key="k",
        job_key_mode="unsafe_dedupe",
        priority=3,
    )
    after = dict(again)
    assert after.pop("updated_at") > before.pop("updated_at")
    assert after == before | {"revision": 1}
    # The names are made all the same.
    assert await names(connection, "_private_tasks") == ["a", "other"]
    assert await names(connection, "_private_job_queues") == ["q"]


@pytest.mark.compat("A2")
async def test_unsafe_dedupe_adds_a_job_when_the_key_is_free(connection: Any) -> None:
    job = await add_job(
        connection, "a", payload="[2]", queue_name="q", job_key="k", job_key_mode="unsafe_dedupe",
        run_at=LATER,
        max_attempts=3, priority=1, flags=["f"],
    )  # fmt: skip
    assert (payload_of(job), job["key"], job["revision"], job["run_at"]) == ([2], "k", 0, LATER)
    assert (job["max_attempts"], job["priority"], json.loads(job["flags"])) == (3, 1, {"f": True})


async def test_replacing_one_job_costs_no_job_ids(connection: Any) -> None:
    for mode in ("replace", "preserve_run_at", "unsafe_dedupe"):
        for _ in range(3):
            await add_job(connection, "a", job_key="k", job_key_mode=mode)
    assert await connection.fetchval("select last_value from graphile_worker.jobs_id_seq1") == 1

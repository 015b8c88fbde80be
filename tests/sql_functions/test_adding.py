"""add_job and add_jobs without keys: what a new row holds, what is created with it, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from sql_functions.jobs import add_job, add_jobs, all_jobs, names, payload_of

LATER = datetime(2200, 1, 1, tzinfo=UTC)
FULL = {
    "payload": '{"b":1,  "a":2}',
    "queue_name": "q",
    "run_at": LATER,
    "max_attempts": 7,
    "job_key": "k",
    "priority": -5,
    "flags": ["x", "y"],
}


async def add_one(connection: Any, how: str, identifier: str | None, **spec: Any) -> Any:
    """The same job through either function."""
    if how == "add_job":
        return await add_job(connection, identifier, **spec)
    (job,) = await add_jobs(connection, [{"identifier": identifier, **spec}])
    return job


both = pytest.mark.parametrize("how", ["add_job", "add_jobs"])


@both
@pytest.mark.compat("AJ5")
async def test_a_bare_job_gets_the_defaults(connection: Any, how: str) -> None:
    async with connection.transaction():
        now = await connection.fetchval("select now()")
        job = await add_one(connection, how, "bare")
    values = dict(job)
    task_id = await connection.fetchval(
        "select id from graphile_worker._private_tasks where identifier = 'bare'"
    )
    assert values == {
        "id": 1, "job_queue_id": None, "task_id": task_id, "payload": "{}", "priority": 0, "run_at": now,
        "attempts": 0, "max_attempts": 25, "last_error": None, "created_at": now, "updated_at": now,
        "key": None,
        "locked_at": None, "locked_by": None, "revision": 0, "flags": None, "is_available": True,
    }  # fmt: skip
    assert await all_jobs(connection) == [job]


@both
@pytest.mark.compat("AJ5")
async def test_every_given_value_is_stored(connection: Any, how: str) -> None:
    job = await add_one(connection, how, "full", **FULL)
    assert job["payload"] == FULL["payload"]
    assert (job["run_at"], job["max_attempts"], job["key"], job["priority"]) == (LATER, 7, "k", -5)
    assert json.loads(job["flags"]) == {"x": True, "y": True}
    view = await connection.fetchrow("select * from graphile_worker.jobs")
    assert (view["task_identifier"], view["queue_name"]) == ("full", "q")


@both
@pytest.mark.compat("AJ5")
@pytest.mark.parametrize("text", ["null", "0", '"s"', "[]", "[1, 2]", '{"z":1,"z":2}', "true"])
async def test_any_json_is_kept_verbatim_as_payload(connection: Any, how: str, text: str) -> None:
    assert (await add_one(connection, how, "a", payload=text))["payload"] == text


@both
@pytest.mark.compat("AJ1", "EXT-11")
async def test_known_names_cost_no_identity_values(connection: Any, how: str) -> None:
    for spec in ({}, {"queue_name": "q"}, {"queue_name": "q", "job_key": "k"}):
        await add_one(connection, how, "first", **spec)
        await add_one(connection, how, "first", **spec)
    await add_one(connection, how, "second", queue_name="q2")
    assert [
        tuple(row) for row in await connection.fetch("select id from graphile_worker._private_tasks")
    ] == [
        (1,),
        (2,),
    ]
    for sequence in ("tasks_id_seq", "job_queues_id_seq"):
        assert await connection.fetchval(f"select last_value from graphile_worker.{sequence}") == 2


@pytest.mark.compat("AJ1")
async def test_names_are_created_once_however_often_they_are_given(connection: Any) -> None:
    await add_jobs(
        connection,
        [
            {"identifier": "b", "queue_name": "q1"},
            {"identifier": "a", "queue_name": ""},
            {"identifier": "b", "queue_name": "q1"},
            {"identifier": "c"},
        ],
    )
    assert sorted(await names(connection, "_private_tasks")) == ["a", "b", "c"]
    assert sorted(await names(connection, "_private_job_queues")) == ["", "q1"]


@both
@pytest.mark.compat("AJ1")
async def test_an_empty_queue_name_is_a_queue(connection: Any, how: str) -> None:
    job = await add_one(connection, how, "a", queue_name="")
    assert job["job_queue_id"] is not None
    assert await names(connection, "_private_job_queues") == [""]


@both
@pytest.mark.compat("AJ2", "AJ10", "EXT-12")
@pytest.mark.parametrize(
    ("identifier", "spec", "error", "detail"),
    [
        (None, {}, asyncpg.NotNullViolationError, "identifier"),
        (None, {"queue_name": "q", "job_key": "k"}, asyncpg.NotNullViolationError, "identifier"),
        ("i" * 129, {}, asyncpg.CheckViolationError, "tasks_identifier_check"),
        ("a", {"queue_name": "q" * 129}, asyncpg.CheckViolationError, "job_queues_queue_name_check"),
        ("a", {"job_key": ""}, asyncpg.CheckViolationError, "jobs_key_check"),
        ("a", {"job_key": "k" * 513}, asyncpg.CheckViolationError, "jobs_key_check"),
        ("a", {"max_attempts": 0}, asyncpg.CheckViolationError, "jobs_max_attempts_check"),
        (
            "a",
            {"max_attempts": 0, "job_key": "taken"},
            asyncpg.CheckViolationError,
            "jobs_max_attempts_check",
        ),
    ],
)
async def test_values_out_of_bounds_are_refused_by_the_named_constraint(
    connection: Any,
    how: str,
    identifier: str | None,
    spec: dict[str, Any],
    error: type[Exception],
    detail: str,
) -> None:
    await add_job(connection, "a", job_key="taken")
    with pytest.raises(error) as refusal:
        await add_one(connection, how, identifier, **spec)
    assert detail in (refusal.value.constraint_name, refusal.value.column_name)  # type: ignore[attr-defined]
    assert len(await all_jobs(connection)) == 1


@both
@pytest.mark.compat("AJ2", "AJ10")
async def test_values_at_the_bounds_are_accepted(connection: Any, how: str) -> None:
    job = await add_one(
        connection, how, "i" * 128, queue_name="q" * 128, job_key="k" * 512, max_attempts=1, priority=-32768
    )
    assert (len(job["key"]), job["max_attempts"], job["priority"]) == (512, 1, -32768)


@pytest.mark.compat("AJ10", "A1")
@pytest.mark.parametrize("key", [None, "new", "taken"])
@pytest.mark.parametrize("argument", ["priority", "max_attempts"])
async def test_numbers_beyond_smallint_are_refused(connection: Any, argument: str, key: str | None) -> None:
    await add_job(connection, "a", job_key="taken")
    with pytest.raises(asyncpg.NumericValueOutOfRangeError):
        await add_job(connection, "a", job_key=key, **{argument: 40000})
    assert len(await all_jobs(connection)) == 1


@both
@pytest.mark.compat("AJ9")
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    ("flags", "stored"),
    [(["a", "b", "a"], {"a": True, "b": True}), ([], None), (None, None), ([""], {"": True})],
)
async def test_flags_become_an_object_with_true_for_each(
    connection: Any, how: str, key: str | None, flags: list[str] | None, stored: dict[str, bool] | None
) -> None:
    for _ in range(2):
        job = await add_one(connection, how, "a", flags=flags, job_key=key)
        assert (job["flags"] and json.loads(job["flags"])) == stored


@both
@pytest.mark.compat("AJ9", "EXT-5")
@pytest.mark.parametrize("key", [None, "new", "taken"])
async def test_a_null_among_the_flags_is_refused(connection: Any, how: str, key: str | None) -> None:
    await add_job(connection, "a", job_key="taken")
    with pytest.raises(asyncpg.InvalidParameterValueError) as refusal:
        await add_one(connection, how, "a", flags=["a", None], job_key=key)
    assert refusal.value.sqlstate == "22023"


@pytest.mark.compat("AJ11")
@pytest.mark.parametrize("specs", ["'{}'", "null"])
async def test_no_specs_add_nothing(connection: Any, specs: str) -> None:
    assert await connection.fetch(f"select * from graphile_worker.add_jobs({specs})") == []
    assert await all_jobs(connection) == []


@pytest.mark.compat("AJ2")
async def test_a_null_spec_is_a_spec_without_identifier(connection: Any) -> None:
    with pytest.raises(asyncpg.NotNullViolationError):
        await connection.execute(
            "select graphile_worker.add_jobs(array[('a',null,null,null,null,null,null,null), null]"
            "::graphile_worker.job_spec[])"
        )
    assert await all_jobs(connection) == []


@pytest.mark.compat("AJ12")
@pytest.mark.parametrize("keys", ["no keys", "all keys", "some keys", "some keys taken", "some keys locked"])
async def test_rows_come_back_in_the_order_of_the_specs(connection: Any, keys: str) -> None:
    specs = [
        {
            "identifier": f"task{place % 7}",
            "payload": str(place),
            "queue_name": None if place % 3 else f"queue{place % 5}",
            "job_key": f"key{(place * 37) % 100}"
            if keys == "all keys" or (keys.startswith("some") and place % 2)
            else None,
        }
        for place in range(100)
    ]
    if keys.endswith("taken") or keys.endswith("locked"):
        taken = await add_jobs(connection, [spec for spec in specs if spec["job_key"]][::3])
        if keys.endswith("locked"):
            await connection.execute(
                "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'w'"
            )
        assert len(taken) == 17
    jobs = await add_jobs(connection, specs)
    assert [payload_of(job) for job in jobs] == list(range(100))
    assert [job["key"] for job in jobs] == [spec["job_key"] for spec in specs]
    task_names = dict(
        tuple(row)
        for row in await connection.fetch("select id, identifier from graphile_worker._private_tasks")
    )
    assert [task_names[job["task_id"]] for job in jobs] == [spec["identifier"] for spec in specs]
    assert len({job["id"] for job in jobs}) == 100


async def test_ids_rise_in_the_order_of_the_specs(connection: Any) -> None:
    jobs = await add_jobs(connection, [{"identifier": f"t{place % 3}"} for place in range(50)])
    assert [job["id"] for job in jobs] == list(range(1, 51))


@pytest.mark.compat("A1")
async def test_without_a_key_any_mode_is_accepted(connection: Any) -> None:
    for mode in ("replace", "unsafe_dedupe", "nonsense", None):
        job = await add_job(connection, "a", job_key_mode=mode)
        assert (job["key"], job["revision"]) == (None, 0)
    assert len(await all_jobs(connection)) == 4


@pytest.mark.compat("A3")
@pytest.mark.parametrize("mode", ["nonsense", "", "REPLACE"])
async def test_an_unknown_mode_with_a_key_is_refused_before_anything_is_created(
    connection: Any, mode: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refusal:
        await add_job(connection, "new", queue_name="new", job_key="k", job_key_mode=mode)
    assert refusal.value.sqlstate == "GWBKM"
    assert all(
        known in str(refusal.value.as_dict()) for known in ("replace", "preserve_run_at", "unsafe_dedupe")
    )
    assert await names(connection, "_private_tasks") == []
    assert await names(connection, "_private_job_queues") == []


async def test_positional_and_both_named_notations_reach_the_same_parameters(connection: Any) -> None:
    for call in (
        "'a', '[1]', 'q', now(), 3, 'k', 2, array['f'], 'replace'",
        "identifier => 'a', payload => '[1]', queue_name => 'q', run_at => now(), max_attempts => 3, "
        "job_key => 'k2', priority => 2, flags => array['f'], job_key_mode => 'replace'",
        "identifier := 'a', payload := '[1]', queue_name := 'q', run_at := now(), max_attempts := 3, "
        "job_key := 'k3', priority := 2, flags := array['f'], job_key_mode := 'replace'",
    ):
        job = await connection.fetchrow(f"select * from graphile_worker.add_job({call})")
        assert (payload_of(job), job["max_attempts"], job["priority"]) == ([1], 3, 2)


async def test_a_rolled_back_add_leaves_nothing(connection: Any) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await add_job(connection, "a", job_key="k")
    await add_jobs(connection, [{"identifier": "b"}])
    await transaction.rollback()
    assert await all_jobs(connection) == []


async def test_run_at_defaults_to_the_start_of_the_transaction(connection: Any) -> None:
    async with connection.transaction():
        now = await connection.fetchval("select now()")
        jobs = [
            await add_job(connection, "a"),
            *await add_jobs(connection, [{"identifier": "a", "job_key": "k"}]),
        ]
    assert {job["run_at"] for job in jobs} == {now}
    assert (await add_job(connection, "a", run_at=now + timedelta(days=1)))["run_at"] == now + timedelta(
        days=1
    )

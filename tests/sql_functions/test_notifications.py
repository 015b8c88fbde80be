"""What is told on the channel jobs:insert, by whom, and with which count."""

from __future__ import annotations

import json
from typing import Any

import pytest

from migrations.listening import heard_by
from sql_functions.jobs import LOCKED, add_job, add_jobs, selection_of_jobs, set_job

CHANNEL = "jobs:insert"


def counts(heard: list[str]) -> list[int]:
    """The counts, once each payload was seen to have the agreed form."""
    found = []
    for text in heard:
        values = json.loads(text)
        assert values.keys() == {"r", "count"}
        assert isinstance(values["r"], float)
        assert 0 <= values["r"] < 1
        found.append(values["count"])
    return found


@pytest.mark.compat("AJ4", "EXT-8")
async def test_each_call_notifies_once_with_the_number_of_specs(connection: Any, database_url: str) -> None:
    async with heard_by(database_url, CHANNEL) as heard:
        await add_job(connection, "a")
        await add_job(connection, "a", queue_name="q")
        await add_job(connection, "a", job_key="k")
        await add_job(connection, "a", job_key="k")
        await add_jobs(connection, [{"identifier": "a"}] * 3)
        await add_jobs(connection, [{"identifier": "a", "job_key": "k"}, {"identifier": "b"}])
    assert counts(heard) == [1, 1, 1, 1, 3, 2]


@pytest.mark.compat("EXT-8")
async def test_two_equal_calls_in_one_transaction_are_both_heard(connection: Any, database_url: str) -> None:
    async with heard_by(database_url, CHANNEL) as heard:
        async with connection.transaction():
            await add_job(connection, "a")
            await add_job(connection, "a")
        transaction = connection.transaction()
        await transaction.start()
        await add_job(connection, "a")
        await transaction.rollback()
    assert counts(heard) == [1, 1]


@pytest.mark.compat("A2", "EXT-8")
async def test_unsafe_dedupe_notifies_only_of_a_new_job(connection: Any, database_url: str) -> None:
    async with heard_by(database_url, CHANNEL) as heard:
        for _ in range(3):
            await add_job(connection, "a", job_key="k", job_key_mode="unsafe_dedupe")
    assert counts(heard) == [1]


@pytest.mark.compat("RJ2", "RJ3", "EXT-8")
async def test_removing_notifies_only_when_a_row_was_deleted(connection: Any, database_url: str) -> None:
    await add_job(connection, "a", job_key="waiting")
    running = await add_job(connection, "a", job_key="running")
    await set_job(connection, running["id"], **LOCKED)
    async with heard_by(database_url, CHANNEL) as heard:
        for key in ("missing", "running", "waiting"):
            await connection.execute("select graphile_worker.remove_job($1)", key)
    assert counts(heard) == [-1]


@pytest.mark.compat("AJ4", "AJ11", "EXT-6", "EXT-8")
@pytest.mark.parametrize("specs", ["'{}'", "null"])
async def test_no_specs_notify_with_an_empty_payload(connection: Any, database_url: str, specs: str) -> None:
    async with heard_by(database_url, CHANNEL) as heard:
        await connection.execute(f"select graphile_worker.add_jobs({specs})")
    assert heard == [""]


@pytest.mark.compat("CJ1", "RS2", "FU1", "EXT-8")
async def test_managing_jobs_and_raw_inserts_notify_nobody(connection: Any, database_url: str) -> None:
    ids = list((await selection_of_jobs(connection)).values())
    async with heard_by(database_url, CHANNEL) as heard:
        await connection.execute("select graphile_worker.reschedule_jobs($1, run_at => now())", ids)
        await connection.execute("select graphile_worker.permanently_fail_jobs($1)", ids)
        await connection.execute("select graphile_worker.force_unlock_workers(array['test'])")
        await connection.execute("select graphile_worker.complete_jobs($1)", ids)
        await connection.execute("insert into graphile_worker._private_jobs (task_id) values (1)")
    assert heard == []

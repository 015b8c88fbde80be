"""A keyed add is never lost: two sessions, stopped at the moments that matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.sql import PLACEHOLDER
from migrations.waiting import is_blocked
from sql_functions.jobs import LOCKED, add_job, add_jobs, all_jobs, job_by_id, payload_of, set_job

UPSTREAM_SHAPE = (
    Path(__file__).with_name("upstream_shape.sql").read_text().replace(PLACEHOLDER, "graphile_worker")
)
MODES = ["replace", "preserve_run_at", "unsafe_dedupe", "bulk"]


@pytest.fixture
async def adder(database_url: str) -> AsyncIterator[Any]:
    """A second session, which adds while the first one holds something."""
    adder = await asyncpg.connect(database_url)
    try:
        yield adder
    finally:
        await adder.close(timeout=60)


async def add(connection: Any, mode: str, key: str = "k") -> Any:
    if mode == "bulk":
        specs = [{"identifier": "a", "payload": '"new"', "job_key": key}, {"identifier": "a"}]
        return (await add_jobs(connection, specs))[0]
    return await add_job(connection, "a", payload='"new"', job_key=key, job_key_mode=mode)


async def while_open(connection: Any, adder: Any, work: Any, mode: str, *, commit: bool = True) -> Any:
    """Do `work` in a transaction, let the adder run into it, end the transaction; return what was added."""
    transaction = connection.transaction()
    await transaction.start()
    await work
    adding = asyncio.create_task(add(adder, mode))
    await is_blocked(connection, adder)
    await (transaction.commit() if commit else transaction.rollback())
    return await adding


@pytest.mark.compat("EXT-15", "AJ7")
@pytest.mark.parametrize("mode", MODES)
async def test_a_job_that_is_being_fetched_is_cut_off_and_a_new_one_added(
    connection: Any, adder: Any, mode: str
) -> None:
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    job = await while_open(connection, adder, set_job(connection, old["id"], **LOCKED), mode)
    fetched = await job_by_id(connection, old["id"])
    if mode == "unsafe_dedupe":
        assert (job["id"], job["revision"], payload_of(job)) == (old["id"], 1, "old")
        return
    assert job["id"] not in (None, old["id"])
    assert (job["key"], payload_of(job), job["revision"]) == ("k", "new", 0)
    assert (fetched["key"], fetched["locked_by"], fetched["attempts"]) == (None, "other", 25)
    assert payload_of(fetched) == "old"


@pytest.mark.compat("EXT-15", "AJ7")
@pytest.mark.parametrize("mode", ["replace", "bulk"])
async def test_a_fetch_that_is_rolled_back_leaves_the_job_to_be_replaced(
    connection: Any, adder: Any, mode: str
) -> None:
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    job = await while_open(connection, adder, set_job(connection, old["id"], **LOCKED), mode, commit=False)
    assert (job["id"], job["revision"], payload_of(job)) == (old["id"], 1, "new")


@pytest.mark.compat("AJ7")
@pytest.mark.parametrize("mode", MODES)
async def test_a_job_that_is_being_completed_makes_room_for_a_new_one(
    connection: Any, adder: Any, mode: str
) -> None:
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    delete = connection.execute("delete from graphile_worker._private_jobs where id = $1", old["id"])
    job = await while_open(connection, adder, delete, mode)
    assert (job["key"], payload_of(job), job["revision"]) == ("k", "new", 0)
    assert job["id"] != old["id"]


@pytest.mark.compat("AJ7")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("locked", [False, True], ids=["waiting", "running"])
async def test_a_key_that_is_being_removed_is_given_to_a_new_job(
    connection: Any, adder: Any, mode: str, locked: bool
) -> None:
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    if locked:
        await set_job(connection, old["id"], **LOCKED)
    job = await while_open(
        connection, adder, connection.execute("select graphile_worker.remove_job('k')"), mode
    )
    assert (job["key"], payload_of(job), job["revision"]) == ("k", "new", 0)
    assert job["id"] != old["id"]


@pytest.mark.compat("AJ7")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", ["free", "waiting", "running"])
async def test_two_adders_of_one_key_come_one_after_the_other(
    connection: Any, adder: Any, mode: str, first: str
) -> None:
    if first != "free":
        old = await add_job(connection, "a", payload='"old"', job_key="k")
        if first == "running":
            await set_job(connection, old["id"], **LOCKED)
    job = await while_open(connection, adder, add_job(connection, "a", payload='"first"', job_key="k"), mode)
    (keyed,) = [row for row in await all_jobs(connection) if row["key"] == "k"]
    assert keyed == job
    assert payload_of(job) == ("first" if mode == "unsafe_dedupe" else "new")
    assert job["revision"] == (2 if first == "waiting" else 1)


@pytest.mark.compat("AJ7")
async def test_adders_of_different_keys_do_not_wait_for_each_other(connection: Any, adder: Any) -> None:
    await add_job(connection, "a", job_key="one")
    async with connection.transaction():
        await add_job(connection, "a", job_key="one")
        await add_job(connection, "a", job_key="new one")
        async with asyncio.timeout(60):
            for mode in MODES:
                assert (await add(adder, mode, key=f"two {mode}"))["id"] is not None


@pytest.mark.compat("AJ7")
async def test_batches_with_the_same_keys_in_other_orders_do_not_deadlock(
    connection: Any, adder: Any
) -> None:
    keys = [f"k{place}" for place in range(20)]
    await add_jobs(connection, [{"identifier": "a", "job_key": key} for key in keys[::3]])
    async with connection.transaction():
        await add_jobs(connection, [{"identifier": "a", "job_key": key} for key in keys])
        backwards = [{"identifier": "a", "payload": f'"{key}"', "job_key": key} for key in reversed(keys)]
        adding = asyncio.create_task(add_jobs(adder, backwards))
        await is_blocked(connection, adder)
    assert [payload_of(job) for job in await adding] == list(reversed(keys))
    assert len(await all_jobs(connection)) == 20


@pytest.mark.compat("AJ7")
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
@pytest.mark.parametrize("mode", MODES)
async def test_stricter_transactions_get_an_error_and_not_an_empty_row(
    connection: Any, adder: Any, isolation: str, mode: str
) -> None:
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    transaction = adder.transaction(isolation=isolation)
    await transaction.start()
    await adder.fetchval("select count(*) from graphile_worker._private_jobs")
    await set_job(connection, old["id"], **LOCKED)
    with pytest.raises(asyncpg.SerializationError):
        await add(adder, mode)
    await transaction.rollback()


@pytest.mark.compat("AJ7")
@pytest.mark.parametrize("mode", ["replace", "bulk"])
async def test_the_shape_without_the_lock_loses_the_add(connection: Any, adder: Any, mode: str) -> None:
    """The same moment with the weak functions: this is what the tests above guard against."""
    await connection.execute(UPSTREAM_SHAPE)
    old = await add_job(connection, "a", payload='"old"', job_key="k")
    transaction = connection.transaction()
    await transaction.start()
    await set_job(connection, old["id"], **LOCKED)
    adding = asyncio.create_task(
        add_jobs(adder, [{"identifier": "a", "payload": '"new"', "job_key": "k"}])
        if mode == "bulk"
        else add(adder, mode)
    )
    await is_blocked(connection, adder)
    await transaction.commit()
    added = await adding
    assert added == [] if mode == "bulk" else set(added.values()) == {None}
    assert [payload_of(job) for job in await all_jobs(connection)] == ["old"]

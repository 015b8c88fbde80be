"""Jobs added through other libraries are committed and rolled back with the user's transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foreign.places import Place
from graphile_worker import JobSpec
from graphile_worker.database.statements import add_many

TASKS = "select task_identifier from graphile_worker.jobs order by id"
CHUNK = 40
MANY = 100  # more than two statements


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add_many, "CHUNK_SPECS", CHUNK)


async def committed(observer: Any) -> list[str]:
    return [row[0] for row in await observer.fetch(TASKS)]


async def test_a_job_and_its_notification_appear_with_the_commit(place: Place, observer: Any) -> None:
    notified = asyncio.Event()
    await observer.add_listener("jobs:insert", lambda *_: notified.set())
    job = await place.do(place.utils().add_job("first", {"a": [1, None, "ü"]}))
    assert await committed(observer) == []
    await observer.fetchval("select 1")  # a notification would arrive with the answer
    assert not notified.is_set()
    await place.commit()
    assert await committed(observer) == ["first"]
    assert (job.task_identifier, job.payload) == ("first", {"a": [1, None, "ü"]})
    async with asyncio.timeout(60):
        await notified.wait()


async def test_a_job_added_before_any_other_statement_is_rolled_back(place: Place, observer: Any) -> None:
    """With asyncpg, SQLAlchemy begins the transaction with its own first statement."""
    await place.do(place.utils().add_job("never"))
    await place.rollback()
    assert await committed(observer) == []


async def test_a_savepoint_is_rolled_back_without_the_rest(place: Place, observer: Any) -> None:
    utils = place.utils()
    await place.do(utils.add_job("kept"))

    async def fail() -> None:
        async with place.savepoint():
            await place.do(utils.add_job("undone"))
            await place.do(utils.add_jobs([JobSpec("undone", job_key="k")]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await place.commit()
    assert await committed(observer) == ["kept"]


async def test_many_jobs_are_all_or_none(place: Place, observer: Any) -> None:
    utils = place.utils()
    specs = [JobSpec("many", number) for number in range(MANY)]
    keyed = [JobSpec("keyed", number, job_key=f"key {number}", flags=["f"]) for number in range(20)]
    for again in range(2):  # the tasks are new, then known
        jobs = await place.do(utils.add_jobs(specs + keyed))
        assert [job.payload for job in jobs] == [spec.payload for spec in specs + keyed]
        assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == 0
        await (place.commit if again else place.rollback)()
        if not again:
            assert await committed(observer) == []
            place = await _restarted(place)
    assert await observer.fetchval("select count(*) from graphile_worker._private_jobs") == MANY + 20


async def _restarted(place: Place) -> Place:
    """asyncpg's transaction object serves once; the others begin the next one by themselves."""
    if type(place.given).__module__.startswith("asyncpg"):
        transaction = place.given.transaction()
        await transaction.start()
        return Place(place.given, place.execute, transaction.commit, transaction.rollback, place.savepoint)
    return place


async def test_a_key_replaces_the_job_of_the_same_transaction(place: Place, observer: Any) -> None:
    utils = place.utils()
    first = await place.do(utils.add_job("keyed", [1], job_key="k", queue_name="q"))
    again = await place.do(utils.add_job("keyed", [2], job_key="k", priority=-32768, max_attempts=3))
    assert (again.id, again.payload, again.priority) == (first.id, [1, 2], -32768)
    removed = await place.do(utils.remove_job("k"))
    assert removed is not None
    assert removed.id == first.id
    await place.commit()
    assert await committed(observer) == []


async def test_a_failed_batch_leaves_the_transaction_usable(place: Place, observer: Any) -> None:
    """It runs in a savepoint, which is rolled back."""
    utils = place.utils()
    await place.do(utils.add_job("before"))

    def failing() -> Any:
        yield from (JobSpec("undone", number) for number in range(MANY))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await place.do(utils.add_jobs(failing()))
    await place.do(utils.add_job("after"))
    await place.commit()
    assert await committed(observer) == ["before", "after"]

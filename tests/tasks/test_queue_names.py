"""Queue names: requested in batches, cached, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.database.statements.fetch import get_queue_names
from graphile_worker.errors import GraphileWorkerError, InvalidArgumentError
from graphile_worker.tasks import services as module
from graphile_worker.tasks.services import QueueNames
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.values.schema_name import SchemaName

DELAY = 0.05


class Source:
    """Looks names up in a dictionary and records the requests."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names
        self.asked: list[list[int]] = []
        self.error: Exception | None = None

    async def __call__(self, queue_ids: Sequence[int]) -> list[str | None]:
        self.asked.append(list(queue_ids))
        if self.error is not None:
            raise self.error
        return [self.names.get(queue_id) for queue_id in queue_ids]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2024, 1, 1, tzinfo=UTC))


@pytest.fixture
def source() -> Source:
    return Source({1: "one", 2: "two", 3: "three"})


@pytest.fixture
async def names(source: Source, clock: FakeClock) -> AsyncIterator[QueueNames]:
    made = QueueNames(source, delay=DELAY, clock=clock)
    yield made
    await made.close()


def is_immediate(coroutine: Any) -> bool:
    """Whether a coroutine ends without suspending."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


async def test_requests_within_the_delay_share_one_look_up(
    names: QueueNames, source: Source, clock: FakeClock
) -> None:
    waiting = [asyncio.ensure_future(names.get(queue_id)) for queue_id in (2, 1, 2, 3)]
    await clock.until_sleeping()
    assert source.asked == []
    await clock.advance(DELAY)
    assert await asyncio.gather(*waiting) == ["two", "one", "two", "three"]
    assert source.asked == [[2, 1, 3]]


async def test_a_known_name_is_given_without_waiting(
    names: QueueNames, source: Source, clock: FakeClock
) -> None:
    first = asyncio.ensure_future(names.get(1))
    await clock.until_sleeping()
    assert names.cached(1) is None
    await clock.advance(DELAY)
    await first
    assert names.cached(1) == "one"
    assert is_immediate(names.get(1))
    assert source.asked == [[1]]


async def test_an_unknown_id_is_an_error_and_is_asked_for_again(
    names: QueueNames, source: Source, clock: FakeClock
) -> None:
    missing, known = asyncio.ensure_future(names.get(9)), asyncio.ensure_future(names.get(1))
    await clock.until_sleeping()
    await clock.advance(DELAY)
    with pytest.raises(InvalidArgumentError, match="no queue with the id 9"):
        await missing
    assert await known == "one"
    source.names[9] = "nine"
    again = asyncio.ensure_future(names.get(9))
    await clock.until_sleeping()
    await clock.advance(DELAY)
    assert await again == "nine"
    assert source.asked == [[9, 1], [9]]


async def test_a_look_up_that_fails_fails_for_everybody_and_is_tried_again_next_time(
    names: QueueNames, source: Source, clock: FakeClock
) -> None:
    source.error = ConnectionResetError("gone")
    waiting = [asyncio.ensure_future(names.get(queue_id)) for queue_id in (1, 2)]
    await clock.until_sleeping()
    await clock.advance(DELAY)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in results] == ["gone", "gone"]
    source.error = None
    again = asyncio.ensure_future(names.get(1))
    await clock.until_sleeping()
    await clock.advance(DELAY)
    assert await again == "one"


async def test_one_who_gives_up_does_not_take_the_answer_from_another(
    names: QueueNames, clock: FakeClock
) -> None:
    impatient, patient = asyncio.ensure_future(names.get(1)), asyncio.ensure_future(names.get(1))
    await clock.until_sleeping()
    impatient.cancel()
    await clock.advance(DELAY)
    assert await patient == "one"
    assert impatient.cancelled()


async def test_closing_fails_those_who_wait(names: QueueNames, clock: FakeClock) -> None:
    waiting = asyncio.ensure_future(names.get(1))
    await clock.until_sleeping()
    await names.close()
    with pytest.raises(GraphileWorkerError, match="the worker has stopped"):
        await waiting


async def test_the_oldest_names_are_forgotten_when_there_are_too_many(
    names: QueueNames, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    waiting = [asyncio.ensure_future(names.get(queue_id)) for queue_id in (1, 2, 3)]
    await clock.until_sleeping()
    await clock.advance(DELAY)
    assert await asyncio.gather(*waiting) == ["one", "two", "three"]
    assert [names.cached(queue_id) for queue_id in (1, 2, 3)] == [None, "two", "three"]


# -- with the database -------------------------------------------------------------------------------------


async def queue_ids(connection: Any, *names: str) -> list[int]:
    return [
        await connection.fetchval(
            "insert into graphile_worker._private_job_queues (queue_name) values ($1) returning id", name
        )
        for name in names
    ]


async def test_the_statement_keeps_the_order_and_gives_none_for_unknown_ids(connection: Any) -> None:
    a, b, c = await queue_ids(connection, "a", "b", "c")
    found = await get_queue_names(connection, SchemaName(), [c, 2_000_000_000, a, b, a])
    assert found == ["c", None, "a", "b", "a"]
    assert await get_queue_names(connection, SchemaName(), []) == []


@pytest.mark.compat("QN-1")
async def test_jobs_over_several_queues_ask_once_and_later_rounds_use_what_is_known(
    connection: Any, make_job: Any, make_helpers: Any
) -> None:
    statements: list[list[int]] = []

    async def look_up(ids: Sequence[int]) -> list[str | None]:
        statements.append(list(ids))
        return await get_queue_names(connection, SchemaName(), ids)

    names = QueueNames(look_up, delay=0.01)
    by_number = await queue_ids(connection, *(f"q{number}" for number in range(10)))

    async def round_of(numbers: list[int]) -> list[bool]:
        """Run a job per number; returns which of them got the name without waiting."""
        immediate = []
        for batch in (numbers[:7], numbers[7:]):  # the repeats of a queue run when its first job is done
            helpers = [make_helpers(make_job(job_queue_id=by_number[n]), queue_names=names) for n in batch]
            immediate += [names.cached(by_number[n]) is not None for n in batch]
            for one, n in zip(helpers, batch, strict=True):
                if names.cached(by_number[n]) is not None:
                    assert is_immediate(one.get_queue_name())
            found = await asyncio.gather(*(one.get_queue_name() for one in helpers))
            assert found == [f"q{n}" for n in batch]
        return immediate

    first = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3]
    assert await round_of(first) == [False] * 7 + [True] * 3
    assert await round_of(first) == [True] * 10
    third = [1, 7, 3, 8, 5, 9, 0, 7, 8, 3]
    assert await round_of(third) == [True, False, True, False, True, False, True, True, True, True]
    assert [sorted(ids) for ids in statements] == [sorted(by_number[:7]), sorted(by_number[7:])]
    await names.close()


async def test_a_job_without_a_queue_has_no_queue_name(make_helpers: Any) -> None:
    assert await make_helpers().get_queue_name() is None

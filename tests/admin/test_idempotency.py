"""Idempotency keys: a request that is sent twice takes effect once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from starlette.responses import Response

from graphile_worker.admin.answers import Problem
from graphile_worker.admin.idempotency import KEPT_FOR, MAX_BYTES, MAX_ENTRIES, KeptAnswers
from graphile_worker.testing.fake_clock import FakeClock


class Work:
    """A handler that counts its calls, and can be held."""

    def __init__(self) -> None:
        self.calls = 0
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None

    async def __call__(self) -> Response:
        self.calls += 1
        number = self.calls
        self.began.set()
        await self.go_on.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return Response(f"answer {number}", 201, headers={"X-Own": "1"})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def kept(clock: FakeClock) -> KeptAnswers:
    return KeptAnswers(clock)


async def test_the_same_request_gets_the_same_answer(kept: KeptAnswers, clock: FakeClock) -> None:
    work = Work()
    first = await kept.once(("ada", "k"), b"body", work)
    second = await kept.once(("ada", "k"), b"body", work)
    other = await kept.once(("eve", "k"), b"body", work)
    assert (first.body, second.body, other.body) == (b"answer 1", b"answer 1", b"answer 2")
    assert (second.status_code, second.headers["X-Own"]) == (201, "1")
    assert second.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    with pytest.raises(Problem, match="another request"):
        await kept.once(("ada", "k"), b"other body", work)
    await clock.advance(KEPT_FOR)
    assert (await kept.once(("ada", "k"), b"other body", work)).body == b"answer 3"


async def test_a_duplicate_waits_for_the_first(kept: KeptAnswers) -> None:
    work = Work()
    work.go_on.clear()
    both = [asyncio.create_task(kept.once(("ada", "k"), b"", work)) for _ in range(3)]
    await work.began.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    work.go_on.set()
    answers = await asyncio.gather(*both)
    assert work.calls == 1
    assert {answer.body for answer in answers} == {b"answer 1"}


async def test_a_request_that_failed_can_be_sent_again(kept: KeptAnswers) -> None:
    work = Work()
    work.error = Problem(409, "not now")
    work.go_on.clear()
    first = asyncio.create_task(kept.once(("ada", "k"), b"", work))
    await work.began.wait()
    second = asyncio.create_task(kept.once(("ada", "k"), b"", work))
    await asyncio.sleep(0)
    work.go_on.set()
    with pytest.raises(Problem, match="not now"):
        await first
    assert (await second).body == b"answer 2"


async def test_memory_is_bounded(kept: KeptAnswers) -> None:
    async def large() -> Response:
        return Response(b"x" * (MAX_BYTES // 4))

    for number in range(8):
        await kept.once((str(number),), b"", large)
    assert sum(entry.size for entry in kept._entries.values()) <= MAX_BYTES

    async def small() -> Response:
        return Response(b"")

    for number in range(MAX_ENTRIES + 20):
        await kept.once((f"k{number}",), b"", small)
    assert len(kept._entries) <= MAX_ENTRIES


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "ü"])
async def test_keys_have_a_form(kept: KeptAnswers, key: str) -> None:
    with pytest.raises(Problem, match="not valid"):
        await kept.once(("ada", key), b"", Work())
